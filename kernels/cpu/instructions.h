// Which instruction set the CPU backend computes with, chosen once at construction.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace transload::kernels::cpu {

// In rising order of preference. kBaseline needs no more than x86-64 has by definition. kAvxVnni is
// kAvx2 with integer dot products, and kAmx is kAvx512 with them, those of bfloat16 and matrix
// tiles, which Compute::kFast uses; float32 is computed as in kAvx2 and kAvx512.
enum class InstructionSet { kBaseline, kSse4, kAvx2, kAvxVnni, kAvx512, kAmx };

// "baseline", "sse4", "avx2", "avx_vnni", "avx512", "amx"
std::string_view name(InstructionSet set);

// Parts of CPUID's leaf 7; kAvxVnni needs what kAvx2 does of the system, the next two what kAvx512
// does, and kAmx (tiles, int8 and bfloat16) its leave.
enum class Extension { kAvxVnni, kAvx512Vnni, kAvx512Bf16, kAmx };
bool has(Extension extension);

// Asks Linux to let this process use matrix tiles; without its leave they end the process. False
// where it refuses.
bool request_tiles();

// Those that this processor has, the system allows and this program holds; kBaseline is always
// among them. The two arguments stand for the processor and the system.
std::vector<InstructionSet> available_instructions(bool (*has_extension)(Extension) = has,
                                                   bool (*tiles_allowed)() = request_tiles);

// The set called `asked`, or the best of `available` where `asked` is empty.
// Errors: kUsage for a name that is none; kUnsupported for a set that is not available.
InstructionSet choose_instructions(std::string_view asked,
                                   std::span<const InstructionSet> available);

}  // namespace transload::kernels::cpu
