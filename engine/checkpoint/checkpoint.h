// Reading checkpoints: what lies in the files, which model it is, how it tokenises.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "layout/weights.h"

namespace transload::engine {

struct TensorInfo {
  std::string name;
  quant::Format format{};
  std::vector<int64_t> shape;  // outermost first, as PyTorch prints it
  layout::Extent extent;
};

// Many strings in one piece of memory (a vocabulary has 50,000 to 250,000).
struct StringTable {
  std::string bytes;
  std::vector<uint32_t> ends;

  int64_t size() const { return static_cast<int64_t>(ends.size()); }
  std::string_view operator[](int64_t index) const {
    const uint32_t begin = index == 0 ? 0 : ends[static_cast<size_t>(index - 1)];
    return std::string_view(bytes).substr(begin, ends[static_cast<size_t>(index)] - begin);
  }
};

// The contents of a safetensors folder or file, or of a GGUF file (all parts of a split set).
struct Checkpoint {
  enum class Kind { kSafetensors, kGguf };
  Kind kind{};
  std::string path;    // as given
  std::string folder;  // where tokenizer.json, vocab.json and the like are looked for
  std::vector<std::string> files;
  std::vector<TensorInfo> tensors;
  nlohmann::json config;                                     // safetensors: config.json
  nlohmann::json generation_config;                          // or null
  nlohmann::json metadata;                                   // GGUF: scalar key/value pairs
  std::map<std::string, StringTable> string_arrays;          // GGUF: arrays by key
  std::map<std::string, std::vector<double>> number_arrays;  // GGUF: arrays by key
};

// Reads headers only. PATH is a folder with config.json and *.safetensors (one file or sharded with
// an index), a .safetensors file in such a folder, or a .gguf file (any part of a split set names
// the set). Errors: kBadInput naming file, tensor, expected and actual bytes (truncation, damaged
// header, missing part, parts joined by concatenation); kUnsupported naming a tensor type.
Checkpoint open_checkpoint(const std::string& path);

// The model in a checkpoint, by its configuration alone (never by file names).
// Errors: kUnsupported naming the family or the configuration key that is not implemented,
// kBadInput naming a missing tensor or a wrong shape.
// Where the configuration ties the head to the embedding, a head tensor that is there too is left
// unread (as transformers 4 does; transformers 5 takes the head).
layout::Model load_model(const Checkpoint& checkpoint);

// Tokens that end a sequence: generation_config's list, else config's, else the GGUF's
// eos, eot and eom tokens. In ascending order, none twice.
std::vector<int32_t> end_tokens(const Checkpoint& checkpoint);

}  // namespace transload::engine
