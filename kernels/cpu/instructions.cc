#include "kernels/cpu/instructions.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "kernels/cpu/targets.h"
// After targets.h.
#include "hwy/highway.h"

namespace transload::kernels::cpu {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"baseline", "sse4", "avx2", "avx512"};

}  // namespace

std::string_view name(InstructionSet set) { return kNames.at(static_cast<size_t>(set)); }

std::vector<InstructionSet> available_instructions() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<InstructionSet> available = {InstructionSet::kBaseline};
  if ((targets & HWY_SSE4) != 0) available.push_back(InstructionSet::kSse4);
  if ((targets & HWY_AVX2) != 0) available.push_back(InstructionSet::kAvx2);
  if ((targets & HWY_AVX3) != 0) available.push_back(InstructionSet::kAvx512);
  return available;
}

InstructionSet choose_instructions(std::string_view asked,
                                   std::span<const InstructionSet> available) {
  if (asked.empty()) return *std::max_element(available.begin(), available.end());
  const auto* const found = std::find(kNames.begin(), kNames.end(), asked);
  if (found == kNames.end()) {
    throw Error(Kind::kUsage, "instructions: '" + std::string(asked) +
                                  "' is not known: use baseline, sse4, avx2 or avx512");
  }
  const auto set = static_cast<InstructionSet>(found - kNames.begin());
  if (std::find(available.begin(), available.end(), set) == available.end()) {
    throw Error(Kind::kUnsupported, "instructions: this processor has no " + std::string(asked) +
                                        ": leave the choice out to use the best it has");
  }
  return set;
}

}  // namespace transload::kernels::cpu
