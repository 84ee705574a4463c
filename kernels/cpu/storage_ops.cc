#include "kernels/cpu/storage_ops.h"

#include <cpuid.h>

namespace transload::kernels::cpu {
namespace {

// Extensions of CPUID leaf 7; that the system keeps the registers is what `set` says already.
struct Extensions {
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
};

Extensions extensions() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  Extensions of;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) of.avx512_vnni = (ecx >> 11 & 1U) != 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) of.avx512_bf16 = (eax >> 5 & 1U) != 0;
  return of;
}

}  // namespace

StorageOps storage_ops(quant::Format format, InstructionSet set) {
  if (set < InstructionSet::kAvx2) return {};
  const bool wide = set == InstructionSet::kAvx512;
  switch (format) {
    case quant::Format::kQ4_0:
    case quant::Format::kQ4_1:
    case quant::Format::kQ8_0:
    case quant::Format::kQ4_K:
    case quant::Format::kQ5_K:
    case quant::Format::kQ6_K:
      if (wide && extensions().avx512_vnni) return {code_row_avx2, multiply_codes_avx512_vnni};
      if (set == InstructionSet::kAvxVnni) return {code_row_avx2, multiply_codes_avx_vnni};
      return {code_row_avx2, multiply_codes_avx2};
    case quant::Format::kF32:
    case quant::Format::kF16:
    case quant::Format::kBF16:
      if (wide && extensions().avx512_bf16) return {brain_row_avx512, multiply_brain_avx512};
      return {};
  }
  return {};
}

}  // namespace transload::kernels::cpu
