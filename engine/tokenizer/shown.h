// What a file says, inside an error's line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace transload::engine {

// In quotes, as ASCII on one line; no more than its first 80 bytes. Any bytes can be shown.
std::string shown(std::string_view text);
// The same of a JSON value.
std::string shown_json(const nlohmann::json& value);

}  // namespace transload::engine
