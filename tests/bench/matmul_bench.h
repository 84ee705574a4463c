// What the benchmarks of matrix products share: shapes, numbers and counters.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

namespace transload::bench {

struct MatmulShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

// Those of SmolLM2-135M: attention, into and out of the gated part, the head. Then attention of
// OPT-1.3B, whose rows are a power of two long.
inline constexpr MatmulShape kMatmulShapes[] = {
    {1, 576, 576},    {16, 576, 576},   {512, 576, 576},  {1, 1536, 576},    {4, 1536, 576},
    {16, 1536, 576},  {64, 1536, 576},  {512, 1536, 576}, {1, 576, 1536},    {16, 576, 1536},
    {512, 576, 1536}, {1, 49152, 576},  {16, 49152, 576}, {512, 49152, 576}, {1, 2048, 2048},
    {4, 2048, 2048},  {16, 2048, 2048}, {512, 2048, 2048}};

inline std::vector<float> uniform(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

// Enough copies that the weights come from memory, as they do in a sweep over layers.
inline int64_t weight_copies(int64_t bytes) { return 1 + (int64_t{64} << 20) / bytes; }

inline void count_products(benchmark::State& state, int64_t products, int64_t weight_bytes) {
  const auto turns = static_cast<double>(state.iterations());
  state.counters["products"] =
      benchmark::Counter(turns * static_cast<double>(products), benchmark::Counter::kIsRate);
  state.counters["weight_bytes"] =
      benchmark::Counter(turns * static_cast<double>(weight_bytes), benchmark::Counter::kIsRate);
}

}  // namespace transload::bench
