#include "tests/engine/executor/allocations.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_counted{0};
thread_local bool t_exempt = false;
thread_local int64_t t_own = 0;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCounts = false;
#else
constexpr bool kCounts = true;

void note() {
  ++t_own;
  if (!t_exempt && g_counting.load(std::memory_order_relaxed))
    g_counted.fetch_add(1, std::memory_order_relaxed);
}
#endif

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): glibc's own
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

// glibc lets a program replace these; free stays its own.
void* malloc(size_t bytes) noexcept {
  note();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  note();
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  note();
  return __libc_memalign(alignment, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  note();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  note();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#endif

namespace transload::engine::testing {

bool counts_allocations() { return kCounts; }
void count_allocations(bool on) {
  g_counted = 0;
  g_counting = on;
}
void exempt_this_thread(bool exempt) { t_exempt = exempt; }
int64_t counted_allocations() { return g_counted; }
int64_t own_allocations() { return t_own; }

}  // namespace transload::engine::testing
