// Speed of the CPU backend's operations: products/s, and bytes/s of weights as stored, and at the
// end ratios between them. Run with --benchmark_repetitions=5 and say the machine with it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/instructions.h"
#include "quant/format.h"
#include "tests/bench/matmul_bench.h"
#include "tests/bench/ratios/ratio_reporter.h"

namespace transload::kernels {
namespace {

using bench::count_products;
using bench::kMatmulShapes;
using bench::MatmulShape;
using bench::uniform;
using bench::weight_copies;

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

// `bytes` of random weights in rows of row_bytes; from row kDistinctRows on they repeat.
// K formats stay zeros, which cost the same: nothing encodes them.
std::vector<std::byte> random_weights(quant::Format format, int64_t bytes, int64_t cols) {
  std::vector<std::byte> w(static_cast<size_t>(bytes));
  if (quant::block_values(format) == 256) return w;
  constexpr int64_t kDistinctRows = 192;
  const int64_t part = std::min(bytes, kDistinctRows * quant::row_bytes(format, cols));
  const auto values = uniform(part / quant::row_bytes(format, cols) * cols);
  quant::encode(format, values, {w.data(), static_cast<size_t>(part)});
  for (int64_t at = part; at < bytes; at += part) {
    std::memcpy(w.data() + at, w.data(), static_cast<size_t>(std::min(part, bytes - at)));
  }
  return w;
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
  const int64_t copies = weight_copies(bytes);
  const auto w = random_weights(format, bytes * copies, cols);
  int64_t turn = 0;
  for (auto _ : state) {
    const WeightSlice slice = {w.data() + turn++ % copies * bytes, format, 0, rows, cols};
    backend->matmul({x.data(), cols, m, {&slice, 1}, nullptr, y.data(), rows});
  }
  count_products(state, m * rows * cols, bytes);
}

void BM_Matmul(benchmark::State& state, quant::Format format) {
  matmul(state, format, Compute::kFloat32);
}
void BM_MatmulFast(benchmark::State& state, quant::Format format) {
  matmul(state, format, Compute::kFast);
}

// On one thread the time is the processor's, which other programs disturb less.
void matmul_shapes(benchmark::internal::Benchmark* bench, std::initializer_list<int64_t> sets) {
  bench->ArgNames({"threads", "instructions", "m", "n", "k"});
  for (const int64_t set : sets) {
    for (const MatmulShape& of : kMatmulShapes) bench->Args({1, set, of.m, of.n, of.k});
  }
}
void wide_shapes(benchmark::internal::Benchmark* bench) { matmul_shapes(bench, {kAvx512}); }
void float32_shapes(benchmark::internal::Benchmark* bench) {
  matmul_shapes(bench, {kAvx512, kAvx2});
}
void fast_shapes(benchmark::internal::Benchmark* bench) {
  matmul_shapes(bench, {kAvx512, kAvxVnni, kAvx2});
}
void old_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "instructions", "m", "n", "k"});
  for (const int64_t set : {1, 0}) bench->Args({1, set, 64, 1536, 576});
}
void thread_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "instructions", "m", "n", "k"})->UseRealTime();
  for (const int64_t threads : {1, 2}) bench->Args({threads, kAvx512, 512, 1536, 576});
}
BENCHMARK_CAPTURE(BM_Matmul, q4_1, quant::Format::kQ4_1)->Apply(float32_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, q4_1, quant::Format::kQ4_1)->Apply(fast_shapes);
BENCHMARK_CAPTURE(BM_Matmul, f32, quant::Format::kF32)->Apply(float32_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, bf16, quant::Format::kBF16)->Apply(wide_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, f16, quant::Format::kF16)->Apply(wide_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, q8_0, quant::Format::kQ8_0)->Apply(fast_shapes);
BENCHMARK_CAPTURE(BM_Matmul, q4_1_old, quant::Format::kQ4_1)->Apply(old_shapes);
BENCHMARK_CAPTURE(BM_Matmul, q4_1_threads, quant::Format::kQ4_1)->Apply(thread_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, q4_1_threads, quant::Format::kQ4_1)->Apply(thread_shapes);

void k_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "instructions", "m", "n", "k"});
  for (const int64_t set : {kAvx512, kAvx2}) {
    for (const int64_t m : {1, 16, 512}) bench->Args({1, set, m, 1024, 768});
  }
}
BENCHMARK_CAPTURE(BM_Matmul, q4_k, quant::Format::kQ4_K)->Apply(k_shapes);
BENCHMARK_CAPTURE(BM_MatmulFast, q4_k, quant::Format::kQ4_K)->Apply(k_shapes);
BENCHMARK_CAPTURE(BM_Matmul, q6_k, quant::Format::kQ6_K)->Apply(k_shapes);
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

int main(int argc, char** argv) {
  const std::vector<transload::bench::Ratio> ratios{
      {"float32 as decoded: fast, q4_1, AVX-512", "BM_Matmul/q4_1/threads:1/instructions:4/",
       "BM_MatmulFast/q4_1/threads:1/instructions:4/"},
      {"float32 as decoded: fast, q8_0, AVX-512", "BM_Matmul/q4_1/threads:1/instructions:4/",
       "BM_MatmulFast/q8_0/threads:1/instructions:4/"},
      {"float32 as decoded: fast, q4_1, AVX-VNNI", "BM_Matmul/q4_1/threads:1/instructions:2/",
       "BM_MatmulFast/q4_1/threads:1/instructions:3/"},
      {"float32 as decoded: fast, q4_1, AVX2", "BM_Matmul/q4_1/threads:1/instructions:2/",
       "BM_MatmulFast/q4_1/threads:1/instructions:2/"},
      {"float32 as decoded: fast, q8_0, AVX2", "BM_Matmul/q4_1/threads:1/instructions:2/",
       "BM_MatmulFast/q8_0/threads:1/instructions:2/"},
      {"oneDNN float32: float32, f32", "BM_MatmulOneDnn/f32/threads:1/",
       "BM_Matmul/f32/threads:1/instructions:4/"},
      {"oneDNN bfloat16: fast, bf16", "BM_MatmulOneDnn/bf16/threads:1/",
       "BM_MatmulFast/bf16/threads:1/instructions:4/"},
      {"oneDNN bfloat16: fast, f16", "BM_MatmulOneDnn/bf16/threads:1/",
       "BM_MatmulFast/f16/threads:1/instructions:4/"},
      {"oneDNN bfloat16: fast, q4_1", "BM_MatmulOneDnn/bf16/threads:1/",
       "BM_MatmulFast/q4_1/threads:1/instructions:4/"},
  };
  return transload::bench::run_benchmarks(argc, argv, {"products", "G products/s", ratios});
}
