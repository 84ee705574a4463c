#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/library_versions.h"

#include <pcre2.h>
#include <unicode/uversion.h>

#include <array>

namespace transload::engine {

std::map<std::string, std::string> tokenizer_library_versions() {
  std::array<char, 64> pcre2{};
  if (pcre2_config(PCRE2_CONFIG_VERSION, nullptr) <= static_cast<int>(pcre2.size()))
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2.data());
  UVersionInfo numbers{};
  std::array<char, U_MAX_VERSION_STRING_LENGTH> icu{};
  u_getVersion(numbers);
  u_versionToString(numbers, icu.data());
  const std::string dated = pcre2.data();  // "10.42 2022-12-11"
  return {{"ICU", icu.data()}, {"PCRE2", dated.substr(0, dated.find(' '))}};
}

}  // namespace transload::engine
