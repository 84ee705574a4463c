// Counts the heap allocations of a test program (replaces operator new).
#pragma once

#include <cstdint>

namespace transload::tests {

int64_t allocations();  // so far

}  // namespace transload::tests
