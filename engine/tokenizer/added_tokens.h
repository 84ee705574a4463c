// Added and special tokens, found in a text.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "engine/tokenizer/rules.h"

namespace transload::engine {

// Threads: find is const and may run on several threads.
class AddedTokenFinder {
 public:
  // Tokens without text are left out.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Hands over the text in order: stretches without a token (id kNoToken, never empty) and tokens.
  // At each place the longest token wins; white space beside it goes to it where it says so, and a
  // token that asks to stand alone is no token inside a word.
  // Source: AddedVocabulary::find_matches of Hugging Face's tokenizers.
  void split(std::string_view text,
             const std::function<void(std::string_view, int32_t id)>& part) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // sorted by text
  std::array<bool, 256> begins_{};  // first bytes of tokens
};

}  // namespace transload::engine
