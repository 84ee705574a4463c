// JSON files that come with a model, as far as their nesting can be trusted.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"

namespace transload::engine {

inline constexpr int kMostNested = 100;

// Errors: kBadInput for what is nested deeper; the JSON library copies and writes by recursion.
inline void check_nesting(int depth, const std::string& source) {
  if (depth <= kMostNested) return;
  throw Error(Kind::kBadInput,
              fmt::format("{}: is nested deeper than {} levels, which no model's file is", source,
                          kMostNested));
}

// Parses text or a stream; a discarded value where it is not JSON.
template <class Input>
nlohmann::json parse_model_json(Input&& in, const std::string& source) {
  const auto watch = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    check_nesting(depth, source);
    return true;
  };
  return nlohmann::json::parse(std::forward<Input>(in), watch, /*allow_exceptions=*/false);
}

}  // namespace transload::engine
