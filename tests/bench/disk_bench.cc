// Streaming reads of a 1 GiB file: the DiskLane beside plain preads of the same size.
//   disk_bench --benchmark_repetitions=5; TMPDIR chooses the disk. The file is larger than any CPU
//   cache; O_DIRECT keeps the page cache out.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/units.h"
#include "offload/disk.h"
#include "offload/region.h"

namespace transload::offload {
namespace {

constexpr int64_t kFileBytes = kGiB;
constexpr int64_t kTransferBytes = 8 * kMiB;  // about a layer of a small model
constexpr int kBuffers = 4;

// The file of all benchmarks, filled once.
const File& bench_file() {
  static const File file = [] {
    const char* directory = std::getenv("TMPDIR");
    File made = File::create_spill(directory != nullptr ? directory : "/var/tmp", kFileBytes);
    const Region memory("bench", kTransferBytes, 0);
    for (int64_t at = 0; at < kFileBytes; at += kTransferBytes) {
      std::memset(memory.data(), static_cast<int>(at / kTransferBytes) + 1, kTransferBytes);
      if (pwrite(made.descriptor(), memory.data(), kTransferBytes, at) != kTransferBytes) {
        throw std::runtime_error("cannot fill the file of the benchmark");
      }
    }
    return made;
  }();
  return file;
}

void finish(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kFileBytes);
  state.SetLabel(bench_file().direct() ? "O_DIRECT" : "buffered");
}

void BM_PlainPread(benchmark::State& state) {
  const int64_t bytes = state.range(0) * kKiB;
  const Region memory("bench", bytes, 0);
  const int descriptor = bench_file().descriptor();
  for (auto _ : state) {
    for (int64_t at = 0; at < kFileBytes; at += bytes) {
      if (pread(descriptor, memory.data(), static_cast<size_t>(bytes), at) != bytes) {
        state.SkipWithError("short pread");
        return;
      }
    }
  }
  finish(state);
}
BENCHMARK(BM_PlainPread)->ArgName("KiB")->Arg(512)->Arg(8192)->UseRealTime();

void BM_DiskLane(benchmark::State& state, DiskOptions::Engine engine) {
  DiskOptions options;
  options.engine = engine;
  options.request_bytes = state.range(0) * kKiB;
  options.queue_depth = static_cast<int>(state.range(1));
  auto lane = make_disk_lane(options);
  const Region memory("bench", kBuffers * kTransferBytes, 0);
  lane->register_memory(memory.data(), memory.bytes());
  const File& source = bench_file();
  const int32_t file =
      lane->add_file(source.descriptor(), source.bytes(), source.name(), source.direct());
  for (auto _ : state) {
    for (int64_t i = 0; i < kFileBytes / kTransferBytes; ++i) {
      if (lane->open_transfers() == kBuffers) lane->finish();
      const DiskRequest request{file, i * kTransferBytes, kTransferBytes,
                                memory.data() + i % kBuffers * kTransferBytes};
      lane->submit({&request, 1}, false, static_cast<uint64_t>(i));
    }
    while (lane->open_transfers() > 0) lane->finish();
  }
  finish(state);
}
BENCHMARK_CAPTURE(BM_DiskLane, io_uring, DiskOptions::Engine::kIoUring)
    ->ArgNames({"KiB", "depth"})
    ->Args({512, 16})
    ->Args({128, 32})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_DiskLane, threads, DiskOptions::Engine::kThreads)
    ->ArgNames({"KiB", "depth"})
    ->Args({512, 16})
    ->UseRealTime();

}  // namespace
}  // namespace transload::offload

BENCHMARK_MAIN();
