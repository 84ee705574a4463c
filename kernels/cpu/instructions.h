// Which instruction set the CPU backend computes with, chosen once at construction.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace transload::kernels::cpu {

// In rising order of preference. kBaseline needs no more than x86-64 has by definition. kAvxVnni is
// kAvx2 with integer dot products, which Compute::kFast uses; float32 is computed as in kAvx2.
enum class InstructionSet { kBaseline, kSse4, kAvx2, kAvxVnni, kAvx512 };

// "baseline", "sse4", "avx2", "avx_vnni", "avx512"
std::string_view name(InstructionSet set);

// Those that this processor has and this program holds; kBaseline is always among them.
std::vector<InstructionSet> available_instructions();

// The set called `asked`, or the best of `available` where `asked` is empty.
// Errors: kUsage for a name that is none; kUnsupported for a set that is not available.
InstructionSet choose_instructions(std::string_view asked,
                                   std::span<const InstructionSet> available);

}  // namespace transload::kernels::cpu
