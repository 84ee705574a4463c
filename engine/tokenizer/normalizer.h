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

// Every `what` in the text replaced, from the left. Requires: `what` is not empty.
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

}  // namespace transload::engine
