// The three places for bytes, and shares of a whole over them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace transload::layout {

enum class Tier : uint8_t { kDevice, kHost, kDisk };
inline constexpr int kTiers = 3;

constexpr std::string_view name(Tier tier) {
  constexpr std::array<std::string_view, kTiers> kNames = {"device", "host", "disk"};
  return kNames[static_cast<size_t>(tier)];
}

// Parts of a whole, each 0 to 1, in sum 1.
struct Shares {
  double device = 1;
  double host = 0;
  double disk = 0;

  bool operator==(const Shares&) const = default;
};

}  // namespace transload::layout
