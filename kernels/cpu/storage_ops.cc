#include "kernels/cpu/storage_ops.h"

namespace transload::kernels::cpu {
namespace {

using Multiply = decltype(StorageOps::multiply_panel);

StorageOps codes_by(std::string_view instructions, Multiply multiply) {
  return {code_row_avx2, multiply, {"8-bit codes", instructions}};
}
StorageOps brain_by(std::string_view instructions, Multiply multiply) {
  return {brain_row_avx512, multiply, {"bfloat16", instructions}};
}

}  // namespace

StorageOps storage_ops(quant::Format format, InstructionSet set) {
  if (set < InstructionSet::kAvx2) return {};
  const bool wide = set >= InstructionSet::kAvx512;
  const bool tiles = set == InstructionSet::kAmx;
  switch (format) {
    case quant::Format::kQ4_0:
    case quant::Format::kQ4_1:
    case quant::Format::kQ8_0:
    case quant::Format::kQ4_K:
    case quant::Format::kQ5_K:
    case quant::Format::kQ6_K:
      if (tiles) return codes_by("AMX-INT8", multiply_codes_amx);
      if (wide && has(Extension::kAvx512Vnni))
        return codes_by("AVX-512-VNNI", multiply_codes_avx512_vnni);
      if (set == InstructionSet::kAvxVnni) return codes_by("AVX-VNNI", multiply_codes_avx_vnni);
      return codes_by("AVX2", multiply_codes_avx2);
    case quant::Format::kF32:
      return {};  // who stores float32 wants it
    case quant::Format::kF16:
    case quant::Format::kBF16:
      if (tiles) return brain_by("AMX-BF16", multiply_brain_amx);
      if (wide && has(Extension::kAvx512Bf16))
        return brain_by("AVX-512-BF16", multiply_brain_avx512);
      return {};
  }
  return {};
}

}  // namespace transload::kernels::cpu
