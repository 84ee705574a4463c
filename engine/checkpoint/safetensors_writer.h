// Writes safetensors, one file or shards with an index, through one bounded buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quant/format.h"

namespace transload::engine {

struct TensorPlan {
  std::string name;
  quant::Format format{};  // kF32, kF16 or kBF16
  std::vector<int64_t> shape;
  int64_t bytes() const;
};

// Gives the bytes of a tensor, piece by piece from its begin: tensor's index, offset in bytes.
// A piece is a whole number of values and at most kWriterBufferBytes.
using FillPiece = std::function<void(size_t tensor, int64_t offset, std::span<std::byte> out)>;
inline constexpr int64_t kWriterBufferBytes = int64_t{4} << 20;

// Errors: kUsage where `shards` is not within 1 and the number of tensors.
void check_shards(int64_t shards, size_t tensors);

// Writes model.safetensors, or with shards > 1 model-00001-of-... and model.safetensors.index.json,
// into an existing folder; tensors keep their order, shards have about equal bytes.
// Returns the bytes written. Existing files of these names are errors.
// Errors: those of check_shards, kIo naming the file.
int64_t write_safetensors(const std::string& folder, const std::vector<TensorPlan>& tensors,
                          int64_t shards, const FillPiece& fill);

// Writes a small text file; it must not exist yet. Errors: kIo naming the file.
void write_new_file(const std::string& path, const std::string& text);

}  // namespace transload::engine
