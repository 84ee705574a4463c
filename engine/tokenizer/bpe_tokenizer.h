// Byte-pair encoding by the rules of a model.
#pragma once

#include <string_view>
#include <vector>

#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/rules.h"
#include "engine/tokenizer/splitter.h"
#include "engine/tokenizer/tokenizer.h"

namespace transload::engine {

// A text goes through: added tokens as they stand, normalization, added tokens in normalized text,
// splitting into words, byte-pair encoding of each.
// Memory: as BpeModel, and the bytes of each token.
class BpeTokenizer final : public Tokenizer {
 public:
  // Errors: kBadInput naming the file and the token, merge or id that contradicts the others; those
  // of BpeModel and Splitter.
  explicit BpeTokenizer(const TokenizerRules& rules);

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override;
  std::string_view token_bytes(int32_t token) const override;
  bool is_special(int32_t token) const override;
  int64_t vocab_size() const override { return bytes_.size(); }
  bool strips_leading_space() const override { return strip_leading_space_; }

 private:
  struct Run;

  void check_id(int32_t token) const;
  void fill_bytes(const TokenizerRules& rules);

  std::string source_;
  bool strip_leading_space_;
  std::vector<int32_t> prefix_, suffix_;
  std::vector<NormalizeRule> normalize_;
  BpeModel model_;
  StringTable bytes_;  // by id: what a token stands for
  std::vector<bool> special_;
  AddedTokenFinder raw_added_, normalized_added_;
  Splitter splitter_;
};

}  // namespace transload::engine
