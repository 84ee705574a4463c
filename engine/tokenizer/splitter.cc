#include "engine/tokenizer/splitter.h"

#include "engine/tokenizer/utf8.h"

namespace transload::engine {

// One call of split: a piece goes through the steps depth first, so nothing is collected.
struct Splitter::Run {
  const std::vector<Step>& steps;
  Scratch& scratch;
  const std::function<void(std::string_view)>& word;

  void piece(size_t step, std::string_view text) const {
    if (text.empty()) return;
    if (step == steps.size()) return word(text);
    if (steps[step].rule.kind == SplitRule::Kind::kPattern) return cut(step, text);
    if (text.front() == ' ') return piece(step + 1, text);
    piece(step + 1, std::string(" ").append(text));
  }

  void cut(size_t step, std::string_view text) const {
    const SplitRule& rule = steps[step].rule;
    const Pattern& pattern = steps[step].pattern.front();
    size_t done = 0, from = 0;
    while (from <= text.size()) {
      const auto match = pattern.find(text, from, scratch[step]);
      if (!match) break;
      if (rule.keep_gaps) piece(step + 1, text.substr(done, match->begin - done));
      if (rule.keep_matches) piece(step + 1, text.substr(match->begin, match->end - match->begin));
      done = from = match->end;
      if (match->begin == match->end) {  // an empty match cuts, and the search goes on behind it
        if (from == text.size()) break;
        from += next_utf8(text.substr(from)).bytes;
      }
    }
    if (rule.keep_gaps) piece(step + 1, text.substr(done));
  }
};

Splitter::Splitter(const std::vector<SplitRule>& rules, const std::string& source) {
  for (const SplitRule& rule : rules) {
    Step step{rule, {}};
    if (rule.kind == SplitRule::Kind::kPattern) step.pattern.emplace_back(rule.pattern, source);
    steps_.push_back(std::move(step));
  }
}

Splitter::Scratch Splitter::scratch() const { return Scratch(steps_.size()); }

void Splitter::split(std::string_view text, Scratch& scratch,
                     const std::function<void(std::string_view)>& word) const {
  Run{steps_, scratch, word}.piece(0, text);
}

}  // namespace transload::engine
