// Bytes on the heap of a test program (replaces operator new).
#pragma once

#include <cstdint>

namespace transload::tests {

int64_t live_bytes();
int64_t peak_bytes();  // since reset_peak()
void reset_peak();

}  // namespace transload::tests
