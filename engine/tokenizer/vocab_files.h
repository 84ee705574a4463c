// GPT-2's two files, vocab.json and merges.txt, with the small files beside them.
#pragma once

#include <istream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/tokenizer/rules.h"

namespace transload::engine {

// What stands beside vocab.json and merges.txt; null where a file is absent.
struct VocabFilesExtra {
  nlohmann::json tokenizer_config;    // tokenizer_config.json
  nlohmann::json special_tokens_map;  // special_tokens_map.json
  nlohmann::json added_tokens;        // added_tokens.json
  std::string model_type;             // of config.json
};

// Names of the files, for errors.
struct VocabFilesNames {
  std::string vocabulary, merges, tokenizer_config, special_tokens_map, added_tokens;
};

// GPT-2's rules. A text gets a BOS in front where tokenizer_config says add_bos_token, and for OPT
// without a tokenizer_config (its tokenizer always adds </s>).
// Errors, naming file and key: kBadInput for damage, kUnsupported for a tokenizer_class of other
// rules and for options that are not implemented.
TokenizerRules read_vocab_files(std::istream& vocabulary, std::istream& merges,
                                const VocabFilesExtra& extra, const VocabFilesNames& names);

// BOS as tokenizer_config.json of a LLaMA wants it, where a tokenizer.json stands beside it: its
// add_bos_token, where given, overrules the template.
void apply_llama_config(const nlohmann::json& tokenizer_config, const std::string& source,
                        TokenizerRules& rules);

}  // namespace transload::engine
