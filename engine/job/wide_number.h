// Finds the number that makes a line of JSON unreadable because no 64-bit number holds it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace transload::engine {

struct WideNumber {
  std::string field;    // whose value it is, or lies in
  std::string text;     // as the line spells it
  std::string id_json;  // the line's custom_id or id as JSON text; "null" where none was read
};

// The first integer outside [-2^63, 2^64) or number outside a double's range; empty where there is
// none or the line is no JSON.
std::optional<WideNumber> find_wide_number(std::string_view line);

}  // namespace transload::engine
