// Reading safetensors: an 8-byte header length, a JSON header, then the tensors' bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/input_file.h"

namespace transload::engine {

// Largest header that is read, as in the format's own implementation.
inline constexpr int64_t kSafetensorsHeaderLimit = 100'000'000;

// Buffers that old checkpoints carry beside their weights: masks and rotary tables, which the
// configuration defines again. Such tensors are left out whatever their type.
bool is_unused_buffer(std::string_view tensor);

// Tensors of one file, ascending by offset, extents with file index `file`.
// Errors: kBadInput naming the file and the field or tensor that is damaged (a tensor past the end:
// with expected and actual bytes), kUnsupported naming a tensor and its type.
// Source: the format's specification; tensors cover the rest of the file without holes.
std::vector<TensorInfo> parse_safetensors_header(const ByteSource& source, int32_t file);

// `path`: a folder or a .safetensors file. Fills all but `path` of a checkpoint.
Checkpoint open_safetensors(const std::string& path);

}  // namespace transload::engine
