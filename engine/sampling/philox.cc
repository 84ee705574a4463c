#include <array>
#include <cstdint>

#include "engine/sampling/sampler.h"

namespace transload::engine {
namespace {

using Words = std::array<uint32_t, 4>;

constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

Words philox4x32_10(Words counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key0, low(product1),
               high(product0) ^ counter[3] ^ key1, low(product0)};
    key0 += 0x9E3779B9;  // the golden ratio
    key1 += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

}  // namespace

double counter_uniform(uint64_t seed, uint64_t stream, uint64_t step) {
  const Words words =
      philox4x32_10({low(stream), high(stream), low(step), high(step)}, low(seed), high(seed));
  const uint64_t bits = (uint64_t{words[1]} << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace transload::engine
