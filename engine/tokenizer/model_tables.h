// A vocabulary and its merges, read from JSON or text into compact tables as they come.
#pragma once

#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/rules.h"

namespace transload::engine {

// The entries of a vocabulary in the order of the file.
class VocabularyEntries {
 public:
  // Errors: kBadInput for an id outside 0 to kMaxVocabulary - 1, naming `source` and the token.
  void add(std::string_view token, int64_t id, const std::string& source);
  // The tokens by id. Errors: kBadInput for an id given twice, naming `source` and the token.
  StringTable by_id(const std::string& source) const;

 private:
  StringTable tokens_;
  std::vector<int32_t> ids_;
};

// "a b" as two strings. Errors: kBadInput naming `source` and the merge, counted from 0, unless
// there is exactly one space, within.
void append_merge(StringTable& merges, std::string_view text, const std::string& source);

struct TokenizerJson {
  nlohmann::json rest;  // the file, model.vocab and model.merges empty
  StringTable tokens;   // by id
  StringTable merges;   // two strings a merge
};

// Reads a tokenizer.json without ever holding its large parts as JSON.
// Errors: kBadInput naming `source` and the place, kUnsupported for a model that is not BPE.
TokenizerJson read_tokenizer_tables(std::istream& in, const std::string& source);

// A vocab.json: {"token": id, ...}. Errors: kBadInput naming `source` and the place.
StringTable read_vocabulary_json(std::istream& in, const std::string& source);

// A merges.txt: a line a merge, the first line may be "#version". Errors: kBadInput as
// append_merge.
StringTable read_merges_text(std::istream& in, const std::string& source);

// A small JSON file as a whole. All readers here: kIo where reading fails. Errors: kBadInput naming
// `source` and the place.
nlohmann::json read_json(std::istream& in, const std::string& source);

}  // namespace transload::engine
