// Speed of the CPU backend's operations: flops/s, and bytes/s of weights as stored.
// Run with --benchmark_repetitions=5 and read the median; say the machine with it.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/instructions.h"
#include "quant/format.h"

namespace transload::kernels {
namespace {

std::vector<float> uniform(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

constexpr auto kAvx2 = static_cast<int64_t>(cpu::InstructionSet::kAvx2);
constexpr auto kAvxVnni = static_cast<int64_t>(cpu::InstructionSet::kAvxVnni);
constexpr auto kAvx512 = static_cast<int64_t>(cpu::InstructionSet::kAvx512);

std::unique_ptr<Backend> backend_of(const benchmark::State& state,
                                    Compute compute = Compute::kFloat32) {
  CpuOptions options;
  options.threads = static_cast<int>(state.range(0));
  options.max_cols = 4096;
  options.compute = compute;
  options.instructions = name(static_cast<cpu::InstructionSet>(state.range(1)));
  return make_cpu_backend(options);
}

bool available(benchmark::State& state) {
  for (const cpu::InstructionSet set : cpu::available_instructions()) {
    if (static_cast<int64_t>(set) == state.range(1)) return true;
  }
  state.SkipWithError("this processor lacks the instruction set");
  return false;
}

// Arguments: threads, instructions, m, rows, cols.
void matmul(benchmark::State& state, quant::Format format, Compute compute) {
  if (!available(state)) return;
  const int64_t m = state.range(2);
  const int64_t rows = state.range(3);
  const int64_t cols = state.range(4);
  const auto backend = backend_of(state, compute);
  const auto x = uniform(m * cols);
  std::vector<float> y(static_cast<size_t>(m * rows));
  const int64_t bytes = rows * quant::row_bytes(format, cols);
  // Enough copies that the weights come from memory, as they do in a sweep over layers.
  const int64_t copies = 1 + (int64_t{64} << 20) / bytes;
  std::vector<std::byte> w(static_cast<size_t>(bytes * copies));
  // K formats stay zeros, which cost the same: nothing encodes them.
  if (quant::block_values(format) != 256) {
    const auto values = uniform(rows * cols);
    for (int64_t i = 0; i < copies; ++i) {
      quant::encode(format, values, {w.data() + i * bytes, static_cast<size_t>(bytes)});
    }
  }
  int64_t turn = 0;
  for (auto _ : state) {
    const WeightSlice slice = {w.data() + turn++ % copies * bytes, format, 0, rows, cols};
    backend->matmul({x.data(), cols, m, {&slice, 1}, nullptr, y.data(), rows});
  }
  const auto turns = static_cast<double>(state.iterations());
  state.counters["flops"] = benchmark::Counter(turns * 2 * static_cast<double>(m * rows * cols),
                                               benchmark::Counter::kIsRate);
  state.counters["weight_bytes"] =
      benchmark::Counter(turns * static_cast<double>(bytes), benchmark::Counter::kIsRate);
}

void BM_Matmul(benchmark::State& state, quant::Format format) {
  matmul(state, format, Compute::kFloat32);
}
void BM_MatmulFast(benchmark::State& state, quant::Format format) {
  matmul(state, format, Compute::kFast);
}

void matmul_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "instructions", "m", "n", "k"})->UseRealTime();
  for (const int64_t set : {kAvx512, kAvx2}) {
    for (const int64_t m : {1, 4, 16, 64, 512}) bench->Args({1, set, m, 1536, 576});
    bench->Args({2, set, 512, 1536, 576});
    bench->Args({1, set, 512, 576, 1536});
  }
  bench->Args({1, 1, 64, 1536, 576});
  bench->Args({1, 0, 64, 1536, 576});
}
BENCHMARK_CAPTURE(BM_Matmul, q4_1, quant::Format::kQ4_1)->Apply(matmul_shapes);
BENCHMARK_CAPTURE(BM_Matmul, f32, quant::Format::kF32)->Apply(matmul_shapes);
BENCHMARK_CAPTURE(BM_Matmul, f16, quant::Format::kF16)
    ->ArgNames({"threads", "instructions", "m", "n", "k"})
    ->Args({1, kAvx512, 16, 1536, 576});

void fast_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "instructions", "m", "n", "k"})->UseRealTime();
  for (const int64_t set : {kAvx512, kAvxVnni, kAvx2}) {
    for (const int64_t m : {1, 4, 16, 64, 512}) bench->Args({1, set, m, 1536, 576});
  }
  bench->Args({2, kAvx512, 512, 1536, 576});
  bench->Args({1, kAvx512, 512, 576, 1536});
}
BENCHMARK_CAPTURE(BM_MatmulFast, q4_1, quant::Format::kQ4_1)->Apply(fast_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, q8_0, quant::Format::kQ8_0)->Apply(fast_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, f16, quant::Format::kF16)->Apply(fast_shapes);

void k_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "instructions", "m", "n", "k"})->UseRealTime();
  for (const int64_t m : {1, 64}) bench->Args({1, kAvx512, m, 1024, 768});
}
BENCHMARK_CAPTURE(BM_Matmul, q4_k, quant::Format::kQ4_K)->Apply(k_shapes);
BENCHMARK_CAPTURE(BM_Matmul, q6_k, quant::Format::kQ6_K)->Apply(k_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, q4_k, quant::Format::kQ4_K)->Apply(k_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, q6_k, quant::Format::kQ6_K)->Apply(k_shapes);

void BM_Activate(benchmark::State& state) {
  if (!available(state)) return;
  const auto backend = backend_of(state);
  auto gate = uniform(64 * 1536);
  const auto up = uniform(64 * 1536);
  for (auto _ : state) {
    backend->activate({layout::Activation::kSilu, gate.data(), up.data(), 64, 1536, 1536});
  }
  state.SetItemsProcessed(state.iterations() * 64 * 1536);
}
BENCHMARK(BM_Activate)->ArgNames({"threads", "instructions"})->Args({1, kAvx512})->Args({1, kAvx2});

}  // namespace
}  // namespace transload::kernels

BENCHMARK_MAIN();
