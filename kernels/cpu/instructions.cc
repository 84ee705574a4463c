#include "kernels/cpu/instructions.h"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "kernels/cpu/targets.h"
// After targets.h.
#include "hwy/highway.h"

namespace transload::kernels::cpu {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"baseline", "sse4", "avx2", "avx_vnni",
                                                    "avx512"};

// Highway does not know it: CPUID leaf 7, part 1. What AVX2 needs of the system is enough for it.
bool has_avx_vnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1U) != 0;
}

}  // namespace

std::string_view name(InstructionSet set) { return kNames.at(static_cast<size_t>(set)); }

std::vector<InstructionSet> available_instructions() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<InstructionSet> available = {InstructionSet::kBaseline};
  if ((targets & HWY_SSE4) != 0) available.push_back(InstructionSet::kSse4);
  if ((targets & HWY_AVX2) != 0) {
    available.push_back(InstructionSet::kAvx2);
    if (has_avx_vnni()) available.push_back(InstructionSet::kAvxVnni);
  }
  if ((targets & HWY_AVX3) != 0) available.push_back(InstructionSet::kAvx512);
  return available;
}

InstructionSet choose_instructions(std::string_view asked,
                                   std::span<const InstructionSet> available) {
  if (asked.empty()) return *std::max_element(available.begin(), available.end());
  const auto* const found = std::find(kNames.begin(), kNames.end(), asked);
  if (found == kNames.end()) {
    throw Error(Kind::kUsage, "instructions: '" + std::string(asked) +
                                  "' is not known: use baseline, sse4, avx2, avx_vnni or avx512");
  }
  const auto set = static_cast<InstructionSet>(found - kNames.begin());
  if (std::find(available.begin(), available.end(), set) == available.end()) {
    throw Error(Kind::kUnsupported, "instructions: this processor has no " + std::string(asked) +
                                        ": leave the choice out to use the best it has");
  }
  return set;
}

}  // namespace transload::kernels::cpu
