#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/error.h"

namespace transload {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 11> kUnits = {{
    {"", 1.0},
    {"B", 1.0},
    {"kB", 1e3},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
}};

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view what) {
  double number = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (status == std::errc() && number >= 0) {
    for (const auto& [name, factor] : kUnits) {
      const double bytes = number * factor;
      if (unit == name && bytes < 9e18) return std::llround(bytes);
    }
  }
  throw Error(Kind::kUsage, std::string(what) + ": '" + std::string(text) +
                                "' is not a size; write 64MiB, 2GB or plain bytes");
}

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kNames = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < kNames.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  const int digits = unit == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, kNames[unit]);
  return text.data();
}

}  // namespace transload
