// Products by AMX: the thin layer between tiles_inl.h and the instructions. The tests run what is
// built on it over an emulation; the layer itself has been compiled, not run on hardware.
#include <immintrin.h>

#include <cstring>

#include "hwy/base.h"
#include "kernels/cpu/storage_ops.h"

HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-int8,amx-bf16")
// After the attributes: all that is instantiated there is compiled with them.
#include "kernels/cpu/tile_brain_inl.h"
#include "kernels/cpu/tile_codes_inl.h"

namespace transload::kernels::cpu {
namespace {

// In assembly: GCC 12's intrinsics take literal numbers only and do not say that they read memory.
struct AmxTiles {
  static void configure(const TileShapes& shapes) {
    asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
  }
  static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const void* at, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* at, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(at), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kC, int kA, int kB>
  static void dot_codes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  template <int kC, int kA, int kB>
  static void dot_pairs() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

struct CodeVectors : Vectors512<CodeVectors> {};
struct BrainVectors : BrainVectors512<BrainVectors> {};

}  // namespace

void multiply_codes_amx(const StoragePanelArgs& args) {
  if (args.m <= kFewRows) return multiply_codes_avx512_vnni(args);
  multiply_codes_by_tiles<AmxTiles, CodeVectors>(args);
}

void multiply_brain_amx(const StoragePanelArgs& args) {
  multiply_brain_by_tiles<AmxTiles, BrainVectors>(args);
}

}  // namespace transload::kernels::cpu
HWY_POP_ATTRIBUTES
