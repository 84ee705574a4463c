#include "engine/tokenizer/shown.h"

namespace transload::engine {
namespace {

std::string one_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string first_bytes(std::string_view text) {
  constexpr size_t kShownBytes = 80;
  return std::string(text.substr(0, kShownBytes)) + (text.size() > kShownBytes ? "..." : "");
}

}  // namespace

std::string shown(std::string_view text) { return one_line(first_bytes(text)); }

std::string shown_json(const nlohmann::json& value) { return first_bytes(one_line(value)); }

}  // namespace transload::engine
