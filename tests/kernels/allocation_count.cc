// The replaced operators stand apart, so that no caller sees their bodies.
#include "tests/kernels/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace transload::kernels {

int64_t allocation_count() { return allocations; }

}  // namespace transload::kernels
