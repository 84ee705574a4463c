// Integer dot products with AVX-512 VNNI: 16 rows of W a vector.
#include <immintrin.h>

#include <cstring>

#include "hwy/base.h"
#include "kernels/cpu/storage_ops.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
// After the attributes: all that is instantiated there is compiled with them.
#include "kernels/cpu/code_512_inl.h"

namespace transload::kernels::cpu {
namespace {

struct Vnni512 : Vectors512<Vnni512> {
  template <class Format>
  static constexpr int run() {
    return kCodeVectors / Format::kScales;
  }
  template <class Format, int kM, int kV>
  [[gnu::always_inline]] static void add_run(const CodeGroup<Vnni512>* const (&w)[kV], int first,
                                             const CodeRow* x, int64_t column,
                                             Codes (&sums)[kM][kV]) {
#pragma GCC unroll 8
    for (int j = 0; j < kCodeVectors / Format::kScales; ++j) {
#pragma GCC unroll 8
      for (int m = 0; m < kM; ++m) {
        int32_t four = 0;
        std::memcpy(&four, x[m].codes + column + 4 * (first + j), sizeof four);
        const Codes of = _mm512_set1_epi32(four);
#pragma GCC unroll 2
        for (int v = 0; v < kV; ++v) {
          sums[m][v] = _mm512_dpbusd_epi32(sums[m][v], w[v]->codes[first + j], of);
        }
      }
    }
  }
};

}  // namespace

void multiply_codes_avx512_vnni(const StoragePanelArgs& args) { multiply_codes<Vnni512>(args); }

}  // namespace transload::kernels::cpu
HWY_POP_ATTRIBUTES
