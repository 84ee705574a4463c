#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "engine/tokenizer/shown.h"

namespace transload::engine {
namespace {

std::string message_of(int error) {
  PCRE2_UCHAR text[128];
  if (pcre2_get_error_message(error, text, sizeof text) < 0) return fmt::format("error {}", error);
  return reinterpret_cast<const char*>(text);
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

template <class T>
using Owned = std::unique_ptr<T, Free>;

template <class T>
Owned<T> owned(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return Owned<T>(made);
}

// A line may hold a whole book, which takes steps in proportion; a pattern that takes many more
// tries all ways to cut the text.
uint32_t match_limit(std::string_view text) {
  constexpr size_t kLeastSteps = 10'000'000, kStepsPerByte = 100;
  return static_cast<uint32_t>(std::min<size_t>(kLeastSteps + kStepsPerByte * text.size(),
                                                std::numeric_limits<uint32_t>::max()));
}

}  // namespace

struct Pattern::Code {
  std::string pattern, source;
  Owned<pcre2_code> code;
};

struct Pattern::Match::Data {
  Owned<pcre2_match_data> data = owned(pcre2_match_data_create(1, nullptr));
  Owned<pcre2_match_context> context = owned(pcre2_match_context_create(nullptr));
};

Pattern::Match::Match() : data_(new Data) {}
Pattern::Match::Match(Match&&) noexcept = default;
Pattern::Match::~Match() = default;

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern::Pattern(std::string_view oniguruma, const std::string& source)
    : code_(new Code{std::string(oniguruma), source, nullptr}) {
  const std::string pattern = pcre2_pattern(oniguruma, source);
  const auto context = owned(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t at = 0;
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                                  context.get()));
  if (code_->code == nullptr) {
    throw Error(Kind::kBadInput, fmt::format("{}: the pattern {} cannot be read: {} at byte {}",
                                             source, shown(oniguruma), message_of(error), at));
  }
  // Where the system forbids new code pages, matching goes on without.
  pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE);
}

std::optional<Pattern::Span> Pattern::find(std::string_view text, size_t from, Match& match) const {
  pcre2_match_data* data = match.data_->data.get();
  pcre2_match_context* context = match.data_->context.get();
  pcre2_set_match_limit(context, match_limit(text));
  const int result = pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), from, PCRE2_NO_UTF_CHECK, data, context);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw Error(Kind::kUnsupported,
                fmt::format("{}: the pattern {} cannot split a text of {} bytes: {}", code_->source,
                            shown(code_->pattern), text.size(), message_of(result)));
  }
  const size_t* ends = pcre2_get_ovector_pointer(data);
  return Span{ends[0], ends[1]};
}

}  // namespace transload::engine
