// Counts what goes through operator new in this executable.
#pragma once

#include <cstdint>

namespace transload::kernels {

int64_t allocation_count();  // since the start, by all threads

}  // namespace transload::kernels
