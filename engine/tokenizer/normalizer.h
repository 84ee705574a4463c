// What is done to a text before it is cut into words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/rules.h"

namespace transload::engine {

// Applies the rules in order. An empty text stays empty. NFC is that of ICU's Unicode version.
// Requires: text is UTF-8.
std::string normalize(const std::vector<NormalizeRule>& rules, std::string_view text);

}  // namespace transload::engine
