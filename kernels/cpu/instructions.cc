#include "kernels/cpu/instructions.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "kernels/cpu/targets.h"
// After targets.h.
#include "hwy/highway.h"

namespace transload::kernels::cpu {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"baseline", "sse4",   "avx2",
                                                    "avx_vnni", "avx512", "amx"};

constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of Linux
constexpr long kTileData = 18;               // the state component of tiles

struct Registers {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

Registers leaf_7(unsigned part) {
  Registers of;
  if (__get_cpuid_count(7, part, &of.eax, &of.ebx, &of.ecx, &of.edx) == 0) return {};
  return of;
}

bool bit(unsigned word, int number) { return (word >> number & 1U) != 0; }

}  // namespace

std::string_view name(InstructionSet set) { return kNames.at(static_cast<size_t>(set)); }

bool has(Extension extension) {
  switch (extension) {
    case Extension::kAvxVnni:
      return bit(leaf_7(1).eax, 4);
    case Extension::kAvx512Vnni:
      return bit(leaf_7(0).ecx, 11);
    case Extension::kAvx512Bf16:
      return bit(leaf_7(1).eax, 5);
    case Extension::kAmx:
      const unsigned edx = leaf_7(0).edx;
      return bit(edx, 22) && bit(edx, 24) && bit(edx, 25);
  }
  return false;
}

bool request_tiles() { return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0; }

std::vector<InstructionSet> available_instructions(bool (*has_extension)(Extension),
                                                   bool (*tiles_allowed)()) {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<InstructionSet> available = {InstructionSet::kBaseline};
  if ((targets & HWY_SSE4) != 0) available.push_back(InstructionSet::kSse4);
  if ((targets & HWY_AVX2) != 0) {
    available.push_back(InstructionSet::kAvx2);
    if (has_extension(Extension::kAvxVnni)) available.push_back(InstructionSet::kAvxVnni);
  }
  if ((targets & HWY_AVX3) == 0) return available;
  available.push_back(InstructionSet::kAvx512);
  const bool tiles = has_extension(Extension::kAvx512Vnni) &&
                     has_extension(Extension::kAvx512Bf16) && has_extension(Extension::kAmx);
  if (tiles && tiles_allowed()) available.push_back(InstructionSet::kAmx);
  return available;
}

InstructionSet choose_instructions(std::string_view asked,
                                   std::span<const InstructionSet> available) {
  if (asked.empty()) return *std::max_element(available.begin(), available.end());
  const auto* const found = std::find(kNames.begin(), kNames.end(), asked);
  if (found == kNames.end()) {
    throw Error(Kind::kUsage,
                "instructions: '" + std::string(asked) +
                    "' is not known: use baseline, sse4, avx2, avx_vnni, avx512 or amx");
  }
  const auto set = static_cast<InstructionSet>(found - kNames.begin());
  if (std::find(available.begin(), available.end(), set) == available.end()) {
    throw Error(Kind::kUnsupported, "instructions: this processor has no " + std::string(asked) +
                                        ": leave the choice out to use the best it has");
  }
  return set;
}

}  // namespace transload::kernels::cpu
