// The files of tests/data/tokenizer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/rules.h"

namespace transload::engine::test {

// A file's bytes; those of a name ending in .zst unpacked.
std::string read_data(const std::string& name);
nlohmann::json read_data_json(const std::string& name);

// The keys of a GGUF's tokenizer, sorted as Checkpoint holds them.
struct GgufData {
  nlohmann::json metadata;
  std::map<std::string, StringTable> string_arrays;
  std::map<std::string, std::vector<double>> number_arrays;
};
GgufData gguf_data(const nlohmann::json& fields);

TokenizerRules rules_of_gguf(const nlohmann::json& fields);
TokenizerRules rules_of_json(const std::string& text);
std::unique_ptr<Tokenizer> tokenizer_of_json(const nlohmann::json& json);

// SmolLM2's vocabulary from the GGUF, read once.
const Tokenizer& smollm2();

// A byte-level tokenizer.json whose tokens are the 256 bytes (the id is the byte) and no merges.
nlohmann::json bytes_json();

uint32_t hash_of(std::span<const int32_t> ids);

}  // namespace transload::engine::test
