// Reading GGUF (versions 2 and 3): key/value pairs, tensor descriptions, then aligned data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/input_file.h"

namespace transload::engine {

// The header of one file. Tensors are in the order of the file, extents with file index 0 and
// offsets from its begin.
struct GgufHeader {
  nlohmann::json metadata = nlohmann::json::object();
  std::map<std::string, StringTable> string_arrays;
  std::map<std::string, std::vector<double>> number_arrays;
  std::vector<TensorInfo> tensors;
  int64_t data_end = 0;  // of the last tensor, or of the header where there is none
};

// Source: the GGUF specification of ggml. Reads through 64 KiB; a string may have 16 MiB, an array
// 4 Mi values, whatever the file claims.
// Errors: kBadInput naming file, key or tensor (a tensor past the end: with expected and actual
// bytes; another GGUF file behind the last tensor: "joined by concatenation"); kUnsupported naming
// version, byte order or a tensor and its type.
GgufHeader parse_gguf_header(const ByteSource& source);

// The whole set that `path` belongs to (split.no, split.count, PREFIX-00002-of-00003.gguf).
// Fills all but `path` of a checkpoint. Errors: also kBadInput naming the part that is missing or
// does not belong.
Checkpoint open_gguf(const std::string& path);

}  // namespace transload::engine
