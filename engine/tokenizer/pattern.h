// The regular expressions of tokenizer files, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace transload::engine {

// Rewrites a pattern of Oniguruma (what tokenizer.json is written for) as PCRE2 reads it, so that
// both match the same: \s becomes Unicode's White_Space, scripts are named as such.
// Errors: kUnsupported naming the construct that the two read differently, and `source`.
std::string pcre2_pattern(std::string_view oniguruma, const std::string& source);

// Threads: find is const and may run on several threads, each with its own Match.
class Pattern {
 public:
  struct Span {
    size_t begin = 0, end = 0;
  };
  // Working memory of find.
  class Match {
   public:
    Match();
    Match(Match&&) noexcept;
    ~Match();

   private:
    friend class Pattern;
    struct Data;
    std::unique_ptr<Data> data_;
  };

  // Errors: kUnsupported as pcre2_pattern, kBadInput for a pattern that is none; both name
  // `source`.
  Pattern(std::string_view oniguruma, const std::string& source);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // The first match at or after `from`. Requires: text is UTF-8, `from` begins a character or is
  // its end. Errors: kUnsupported where PCRE2 gives up, naming the limit.
  std::optional<Span> find(std::string_view text, size_t from, Match& match) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace transload::engine
