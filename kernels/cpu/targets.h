// The Highway targets that are compiled, the same in every source of this folder: the baseline,
// SSE4, AVX2 and AVX-512 (AVX3). Comes before any header of Highway; hwy/highway.h comes after
// hwy/foreach_target.h.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)

#include "kernels/cpu/instructions.h"

// The address of `function` as compiled for `set`, which must be available.
#define TRANSLOAD_CHOOSE(set, function)                                                    \
  ((set) >= ::transload::kernels::cpu::InstructionSet::kAvx512 ? HWY_CHOOSE_AVX3(function) \
   : (set) >= ::transload::kernels::cpu::InstructionSet::kAvx2 ? HWY_CHOOSE_AVX2(function) \
   : (set) == ::transload::kernels::cpu::InstructionSet::kSse4 ? HWY_CHOOSE_SSE4(function) \
                                                               : HWY_CHOOSE_FALLBACK(function))
