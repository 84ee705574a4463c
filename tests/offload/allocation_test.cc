// Counts every allocation of the process, so that the claim "allocates nothing" can fail.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "offload/checksums.h"
#include "offload/copy.h"
#include "offload/disk.h"
#include "tests/offload/fake_limiter.h"
#include "tests/offload/support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRANSLOAD_COUNTS_ALLOCATIONS 0
#else
#define TRANSLOAD_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<int64_t> allocations{0};
}

#if TRANSLOAD_COUNTS_ALLOCATIONS
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): glibc's own
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  ++allocations;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
}
#endif

namespace transload::offload {
namespace {

using Engine = DiskOptions::Engine;

class Allocation : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override {
    if (!TRANSLOAD_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer owns malloc";
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, Allocation, testing::Values(Engine::kIoUring, Engine::kThreads),
                         [](const auto& one) {
                           return one.param == Engine::kIoUring ? "IoUring" : "Threads";
                         });

TEST_P(Allocation, IsCounted) {
  const int64_t before = allocations;
  std::vector<int>* something = new std::vector<int>(100);
  EXPECT_EQ(allocations - before, 2);
  delete something;
}

TEST_P(Allocation, NeverHappensInALaneThatRuns) {
  if (!probe_disk_engines()[GetParam() == Engine::kIoUring ? 0 : 1].works) {
    GTEST_SKIP() << "io_uring is not allowed here";
  }
  const TempDir directory;
  const File spill = File::create_spill(directory.path(), kMiB);
  FakeLimiter limiter(1e6);
  auto lane =
      make_disk_lane({.engine = GetParam(), .request_bytes = 64 * kKiB, .limiter = &limiter});
  const int32_t file =
      lane->add_file(spill.descriptor(), spill.bytes(), spill.name(), spill.direct());
  Pages memory(2 * kMiB);
  lane->register_memory(memory.data(), memory.bytes());
  BlockChecksums sums(spill.name(), 1, kMiB);
  PacedCopier copier(&limiter);

  const int64_t before = allocations;
  for (uint64_t round = 0; round < 5; ++round) {
    const DiskRequest halves[] = {{file, 0, kMiB / 2, memory.data()},
                                  {file, kMiB / 2, kMiB / 2, memory.data() + kMiB / 2}};
    sums.set(0, memory.data(), kMiB);
    lane->submit(halves, true, round);
    lane->submit({halves, 1}, true, round);
    lane->finish();
    lane->finish();
    lane->submit(halves, false, round);
    uint64_t token = 0;
    limiter.advance(std::chrono::hours(1));
    while (!lane->try_finish(&token)) {
    }
    sums.verify(0, memory.data(), kMiB);
    copier.begin();
    copier.copy(memory.data() + kMiB, memory.data(), kMiB);
    copier.finish();
  }
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace transload::offload
