#include "tests/kernels/emulated_tile_ops.h"

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "hwy/base.h"
#include "quant/format.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
// After the attributes: all that is instantiated there is compiled with them.
#include "tests/kernels/emulated_tiles.h"

namespace transload::kernels {
namespace {

struct CodeVectors : cpu::Vectors512<CodeVectors> {};
struct BrainVectors : cpu::BrainVectors512<BrainVectors> {};

}  // namespace

void multiply_codes_by_emulated_tiles(const cpu::StoragePanelArgs& args) {
  cpu::multiply_codes_by_tiles<EmulatedTiles, CodeVectors>(args);
}

void multiply_brain_by_emulated_tiles(const cpu::StoragePanelArgs& args) {
  cpu::multiply_brain_by_tiles<EmulatedTiles, BrainVectors>(args);
}

}  // namespace transload::kernels
HWY_POP_ATTRIBUTES
