// The vocabulary inside a GGUF file.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/tokenizer/rules.h"

namespace transload::engine {

// The keys of a GGUF that speak of its tokenizer, as Checkpoint holds them.
struct GgufTokenizer {
  const nlohmann::json& metadata;
  const std::map<std::string, StringTable>& string_arrays;
  const std::map<std::string, std::vector<double>>& number_arrays;
  std::string source;  // the file, for errors
};

// Models "gpt2" (byte-level; words as tokenizer.ggml.pre says) and "llama" (SentencePiece by
// scores). Requires: tokenizer.ggml.model is there. Errors, naming `source` and the key:
// kUnsupported for another model or pre kind, kBadInput for arrays that are missing or of different
// lengths. Source: the GGUF specification; pre kinds as llama.cpp and the models' own
// tokenizer.json.
TokenizerRules read_gguf_tokenizer(const GgufTokenizer& gguf);

}  // namespace transload::engine
