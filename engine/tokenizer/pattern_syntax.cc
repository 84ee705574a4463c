#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/shown.h"

namespace transload::engine {
namespace {

constexpr auto kCategories = std::to_array<std::string_view>(
    {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
     "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
     "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs"});
constexpr auto kScripts =
    std::to_array<std::string_view>({"Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek",
                                     "Cyrillic", "Arabic", "Hebrew", "Thai", "Devanagari"});

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Reads a pattern once from left to right. What it lets through means the same in both syntaxes.
class Rewriting {
 public:
  Rewriting(std::string_view pattern, const std::string& source)
      : pattern_(pattern), source_(source) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        escape();
      } else if (in_class_) {
        class_member();
      } else {
        outside_class();
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    throw Error(Kind::kUnsupported,
                fmt::format("{}: {} at byte {} of the pattern {} is not implemented", source_,
                            construct, at_, shown(pattern_)));
  }

  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void copy(size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  void replace(size_t bytes, std::string_view with) {
    out_ += with;
    at_ += bytes;
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a backslash at the end");
    const char kind = pattern_[at_ + 1];
    switch (kind) {
      case 's':
        return replace(2, "\\p{White_Space}");
      case 'S':
        return replace(2, "\\P{White_Space}");
      case 'd':
        return replace(2, "\\p{Nd}");
      case 'D':
        return replace(2, "\\P{Nd}");
      case 'r':
      case 'n':
      case 't':
        return copy(2);
      case 'p':
      case 'P':
        return property(kind == 'P');
      default:
        if (std::ispunct(static_cast<unsigned char>(kind)) == 0)
          refuse(shown(pattern_.substr(at_, 2)));
        return copy(2);
    }
  }

  void property(bool negated) {
    const size_t close = pattern_.find('}', at_);
    if (!pattern_.substr(at_ + 2).starts_with('{') || close == std::string_view::npos) {
      refuse("a property without braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool script = contains(kScripts, name);
    if (!script && !contains(kCategories, name))
      refuse(fmt::format("the property {}", shown(name)));
    replace(close + 1 - at_,
            fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', script ? "sc:" : "", name));
  }

  // Oniguruma nests classes and intersects them with &&; PCRE2 has neither.
  void class_member() {
    if (pattern_[at_] == '[') refuse("a class inside a class");
    if (next_is("&&")) refuse("an intersection of classes");
    if (pattern_[at_] == ']') in_class_ = false;
    copy(1);
  }

  void outside_class() {
    switch (pattern_[at_]) {
      case '[':
        copy(next_is("[^") ? 2 : 1);
        if (next_is("]")) refuse("a class that begins with ]");
        in_class_ = true;
        return;
      case '(':
        return open_group();
      case '{':
        return interval();
      case '.':
      case '^':
      case '$':
        refuse(shown(pattern_.substr(at_, 1)));
      default:
        return copy(1);
    }
  }

  void open_group() {
    if (!next_is("(?") && !next_is("(*")) return copy(1);
    for (const std::string_view kind : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (next_is(kind)) return copy(kind.size());
    }
    refuse(fmt::format("the group {}", shown(pattern_.substr(at_, 3))));
  }

  // {n}, {n,} and {n,m}; what follows them (a second quantifier) the two read differently.
  void interval() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < pattern_.size() && pattern_[end] >= '0' && pattern_[end] <= '9') ++end;
      return end > begin;
    };
    bool good = digits();
    if (good && pattern_.substr(end).starts_with(',')) {
      ++end;
      digits();
    }
    good = good && pattern_.substr(end).starts_with('}');
    if (!good) refuse("a brace that is no repeat count");
    const std::string_view after = pattern_.substr(end + 1, 1);
    if (after == "+" || after == "?" || after == "*") refuse("a repeat count with a second sign");
    copy(end + 1 - at_);
  }

  std::string_view pattern_;
  const std::string& source_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string pcre2_pattern(std::string_view oniguruma, const std::string& source) {
  return Rewriting(oniguruma, source).run();
}

}  // namespace transload::engine
