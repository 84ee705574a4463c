// Speed of attention: bytes/s of the KV cache beside a plain read of as many, flops/s of prompts.
// Run with --benchmark_repetitions=5 and read the median; say the machine with it. Ends with the
// ratios of float16 attention to the plain read; exit status 1 where one is below kGate.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/instructions.h"
#include "offload/region.h"
#include "tests/bench/ratios/ratio_reporter.h"

namespace transload::kernels {
namespace {

constexpr auto kAvx2 = static_cast<int64_t>(cpu::InstructionSet::kAvx2);
constexpr auto kAvx512 = static_cast<int64_t>(cpu::InstructionSet::kAvx512);

std::vector<float> uniform(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

struct Heads {
  int64_t heads;
  KvShape kv;
};
// SmolLM2-135M, a LLaMA with groups of 8, an OPT without groups.
constexpr Heads kHeads[] = {{9, {3, 64}}, {32, {4, 128}}, {32, {32, 64}}};

std::unique_ptr<Backend> backend_of(benchmark::State& state) {
  CpuOptions options;
  options.threads = static_cast<int>(state.range(0));
  options.max_cols = 4096;
  options.max_head_dim = 128;
  for (const cpu::InstructionSet set : cpu::available_instructions()) {
    if (static_cast<int64_t>(set) == state.range(1)) options.instructions = name(set);
  }
  if (options.instructions.empty()) {
    state.SkipWithError("this processor lacks the instruction set");
    return nullptr;
  }
  return make_cpu_backend(options);
}

void count_rate(benchmark::State& state, const char* what, double a_turn) {
  state.counters[what] = benchmark::Counter(static_cast<double>(state.iterations()) * a_turn,
                                            benchmark::Counter::kIsRate);
}

// KV blocks of `rows` sequences of `slots` tokens, filled by the backend.
class Cache {
 public:
  Cache(Backend& backend, const KvShape& kv, int64_t rows, int64_t slots)
      : blocks_((slots + kBlockSlots - 1) / kBlockSlots),
        memory_("cache", rows * blocks_ * kv.block_bytes(), 0) {
    const int64_t width = 2 * kv.kv_heads * kv.head_dim;
    auto token = uniform(width);
    backend.narrow_kv({token.data(), width, 1, width, kv.bits});
    const auto* const k = reinterpret_cast<const std::byte*>(token.data());
    std::byte* const bytes = memory_.data();
    for (int64_t block = 0; block < rows * blocks_; ++block) {
      pointers_.push_back(bytes + block * kv.block_bytes());
      for (int64_t slot = 0; slot < kBlockSlots; ++slot) {
        write_slot(
            {k, k + layout::kv_bytes(width / 2, kv.bits), bytes + block * kv.block_bytes(), slot},
            kv);
      }
    }
  }
  const std::byte* const* row(int64_t index) const { return pointers_.data() + index * blocks_; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  int64_t blocks_;
  offload::Region
      memory_;  // as the KV cache lies in a run: in huge pages where the system has them
  std::vector<const std::byte*> pointers_;
};

// Arguments: threads, instructions, heads (index in kHeads), rows, slots.
void attend(benchmark::State& state, int64_t bits) {
  const auto backend = backend_of(state);
  if (backend == nullptr) return;
  Heads heads = kHeads[state.range(2)];
  heads.kv.bits = bits;
  const int64_t width = heads.heads * heads.kv.head_dim;
  const Cache cache(*backend, heads.kv, state.range(3), state.range(4));
  const auto q = uniform(state.range(3) * width);
  std::vector<float> out(q.size());
  std::vector<AttendRow> rows;
  for (int64_t i = 0; i < state.range(3); ++i) {
    rows.push_back({q.data() + i * width, out.data() + i * width, cache.row(i), state.range(4)});
  }
  for (auto _ : state) backend->attend({rows, heads.heads, heads.kv, 0.125F});
  count_rate(state, "kv_bytes", static_cast<double>(cache.bytes()));
}
void BM_AttendHalf(benchmark::State& state) { attend(state, 16); }
void BM_AttendFloat(benchmark::State& state) { attend(state, 32); }

// Adds up all bytes, as integers of 8; each thread a part.
void BM_PlainRead(benchmark::State& state) {
  const int64_t threads = state.range(0);
  const int64_t count = state.range(1) * (int64_t{1} << 20) / 8;
  const offload::Region memory("read", 8 * count, 0);
  const std::span data(reinterpret_cast<uint64_t*>(memory.data()), static_cast<size_t>(count));
  std::fill(data.begin(), data.end(), 3);
  const auto read = [&](int64_t part) {
    uint64_t sum = 0;
    for (int64_t i = part * count / threads; i < (part + 1) * count / threads; ++i) {
      sum += data[static_cast<size_t>(i)];
    }
    benchmark::DoNotOptimize(sum);
  };
  for (auto _ : state) {
    std::vector<std::thread> others;
    for (int64_t part = 1; part < threads; ++part) others.emplace_back(read, part);
    read(0);
    for (std::thread& other : others) other.join();
  }
  count_rate(state, "kv_bytes", static_cast<double>(8 * count));
}

// 288 to 384 MiB of KV in 16 bits, larger than the caches.
void attend_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "instructions", "heads", "rows", "slots"})->UseRealTime();
  for (const int64_t threads : {1, 2}) {
    bench->Args({threads, kAvx512, 0, 384, 1024});
    bench->Args({threads, kAvx512, 1, 128, 1536});
    bench->Args({threads, kAvx512, 2, 32, 1536});
    bench->Args({threads, kAvx2, 0, 384, 1024});
  }
}
BENCHMARK(BM_PlainRead)
    ->ArgNames({"threads", "MiB"})
    ->UseRealTime()
    ->Args({1, 288})
    ->Args({2, 288});
BENCHMARK(BM_AttendHalf)->Apply(attend_shapes);
BENCHMARK(BM_AttendFloat)
    ->ArgNames({"threads", "instructions", "heads", "rows", "slots"})
    ->UseRealTime()
    ->Args({1, kAvx512, 0, 384, 1024})
    ->Args({1, kAvx512, 0, 16, 512})
    ->Args({1, kAvx2, 0, 16, 512});

// Arguments: threads, instructions, rows, bits of the KV cache. 9 heads over 3 kv heads of 64.
void BM_AttendPrompt(benchmark::State& state) {
  const auto backend = backend_of(state);
  if (backend == nullptr) return;
  const int64_t rows = state.range(2);
  const KvShape kv = {3, 64, state.range(3)};
  const auto q = uniform(rows * 576);
  auto k = uniform(rows * 192);
  std::vector<float> out(q.size());
  backend->narrow_kv({k.data(), 192, rows, 192, kv.bits});
  const auto* const bytes = reinterpret_cast<const std::byte*>(k.data());
  for (auto _ : state) {
    backend->attend_prompt(
        {q.data(), out.data(), 576, 576, bytes, bytes, 192 * 4, rows, 9, kv, 0.125F});
  }
  count_rate(state, "flops", 2 * 576 * static_cast<double>(rows * (rows + 1)));
}
BENCHMARK(BM_AttendPrompt)
    ->ArgNames({"threads", "instructions", "rows", "bits"})
    ->UseRealTime()
    ->Args({1, kAvx512, 512, 32})
    ->Args({1, kAvx512, 512, 16})
    ->Args({1, kAvx2, 512, 32})
    ->Args({2, kAvx512, 512, 32});

}  // namespace
}  // namespace transload::kernels

int main(int argc, char** argv) {
  constexpr double kGate = 0.6;
  const std::vector<transload::bench::Ratio> ratios{
      {"plain read: float16 KV, one thread", "BM_PlainRead/threads:1/", "BM_AttendHalf/threads:1/",
       true, kGate},
      {"plain read: float16 KV, two threads", "BM_PlainRead/threads:2/", "BM_AttendHalf/threads:2/",
       true, kGate},
  };
  return transload::bench::run_benchmarks(argc, argv, {"kv_bytes", "GB/s", ratios});
}
