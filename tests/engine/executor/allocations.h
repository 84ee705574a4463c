// Counts the heap allocations of threads (replaces malloc and its kin, but under a sanitizer, which
// has replaced them itself).
#pragma once

#include <cstdint>

namespace transload::engine::testing {

// False where nothing is counted.
bool counts_allocations();

// While true, allocations of all threads but those that are exempt count. For one thread at a time.
void count_allocations(bool on);
// Of the calling thread: it does not count until asked to.
void exempt_this_thread(bool exempt);
int64_t counted_allocations();
// Those of the calling thread, always.
int64_t own_allocations();

}  // namespace transload::engine::testing
