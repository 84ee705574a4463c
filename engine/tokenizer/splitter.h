// Pre-tokenisation: a text cut into the words that are merged apart from each other.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/rules.h"

namespace transload::engine {

// Threads: split is const and may run on several threads, each with its own Scratch.
class Splitter {
 public:
  using Scratch = std::vector<Pattern::Match>;
  // Errors: those of Pattern.
  Splitter(const std::vector<SplitRule>& rules, const std::string& source);

  Scratch scratch() const;
  // Hands over the words in order; none is empty. Each rule sees the pieces of the one before it.
  // Requires: text is UTF-8.
  void split(std::string_view text, Scratch& scratch,
             const std::function<void(std::string_view)>& word) const;

 private:
  struct Step {
    SplitRule rule;
    std::vector<Pattern> pattern;  // one, for Kind::kPattern
  };
  struct Run;

  std::vector<Step> steps_;
};

}  // namespace transload::engine
