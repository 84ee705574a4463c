#include "quant/format.h"

#include <array>

#include "base/check.h"

namespace transload::quant {
namespace {

struct Traits {
  std::string_view name;
  int64_t values;
  int64_t bytes;
};

constexpr std::array<Traits, kFormats> kTraits = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 2 + 16},
    {"Q4_1", 32, 2 + 2 + 16},
    {"Q8_0", 32, 2 + 32},
    {"Q4_K", 256, 2 + 2 + 12 + 128},
    {"Q5_K", 256, 2 + 2 + 12 + 32 + 128},
    {"Q6_K", 256, 128 + 64 + 16 + 2},
}};

const Traits& traits(Format format) {
  const auto index = static_cast<size_t>(format);
  check(index < kTraits.size(), "no such storage format");
  return kTraits[index];
}

}  // namespace

int64_t block_values(Format format) { return traits(format).values; }
int64_t block_bytes(Format format) { return traits(format).bytes; }
std::string_view name(Format format) { return traits(format).name; }

int64_t row_bytes(Format format, int64_t values) {
  const Traits& of = traits(format);
  check(values >= 0 && values % of.values == 0, "a row is a whole number of blocks");
  return values / of.values * of.bytes;
}

}  // namespace transload::quant
