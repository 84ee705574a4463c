// Memory that kernels compute in, beside the tiers.
#pragma once

#include <cstdint>

namespace transload::layout {

// The most bytes of scratch that a CPU backend takes, whichever instructions and weights: see
// kernels::cpu_scratch_bytes. cols: of the longest weight row.
int64_t kernel_scratch_bytes(int64_t threads, int64_t cols, int64_t head_dim);

}  // namespace transload::layout
