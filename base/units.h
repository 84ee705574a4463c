// Byte counts: constants, reading ("64MiB", "2GB", "4096") and printing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace transload {

inline constexpr int64_t kKiB = 1024;
inline constexpr int64_t kMiB = 1024 * kKiB;
inline constexpr int64_t kGiB = 1024 * kMiB;
inline constexpr int64_t kKB = 1000;
inline constexpr int64_t kMB = 1000 * kKB;
inline constexpr int64_t kGB = 1000 * kMB;

// Direct I/O and page-sized things are multiples of this many bytes.
inline constexpr int64_t kPageBytes = 4096;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t round_down(int64_t value, int64_t multiple) {
  return value / multiple * multiple;
}
constexpr int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Reads a size: digits, optionally with a fraction, and B, kB, KB, KiB, MB, MiB, GB, GiB, TB, TiB.
// Errors: kUsage naming `what` for anything else, negative sizes and overflow included.
int64_t parse_bytes(std::string_view text, std::string_view what);

// "24.0 MB" style text, three significant digits, decimal units.
std::string format_bytes(int64_t bytes);

}  // namespace transload
