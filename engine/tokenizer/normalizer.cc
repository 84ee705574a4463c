#include "engine/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include "base/check.h"
#include "base/error.h"

namespace transload::engine {
namespace {

std::string nfc(const std::string& text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFCInstance(status);
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  if (U_SUCCESS(status)) normalizer->normalizeUTF8(0, text, sink, nullptr, status);
  check(U_SUCCESS(status), "ICU cannot normalize");
  return result;
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, done)) {
    result.append(text.substr(done, at - done)).append(with);
    done = at + what.size();
  }
  return result.append(text.substr(done));
}

std::string normalize(const std::vector<NormalizeRule>& rules, std::string_view text) {
  std::string result(text);
  for (const NormalizeRule& rule : rules) {
    if (result.empty()) break;
    switch (rule.kind) {
      case NormalizeRule::Kind::kNfc:
        result = nfc(result);
        break;
      case NormalizeRule::Kind::kPrepend:
        result.insert(0, rule.text);
        break;
      case NormalizeRule::Kind::kReplace:
        result = replace_all(result, rule.text, rule.with);
        break;
    }
  }
  return result;
}

}  // namespace transload::engine
