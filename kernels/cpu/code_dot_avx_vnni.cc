// Integer dot products with AVX-VNNI: 8 rows of W a vector.
#include <immintrin.h>

#include <cstring>

#include "hwy/base.h"
#include "kernels/cpu/storage_ops.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")
// After the attributes: all that is instantiated there is compiled with them.
#include "kernels/cpu/code_256_inl.h"

namespace transload::kernels::cpu {
namespace {

struct Vnni256 : Vectors256<Vnni256> {
  // Signed bytes plus 128: dpbusd takes W without a sign.
  static void unpack_bytes(const std::byte* at, int64_t stride, Codes* out) {
    transpose(at, stride, out);
    for (int j = 0; j < 4; ++j) out[j] = _mm256_xor_si256(out[j], _mm256_set1_epi8(-128));
  }

  template <class Format>
  static constexpr int run() {
    return kCodeVectors / Format::kScales;
  }
  // What codes of W hold too much, times the codes of x.
  template <class Format>
  static Codes start(int32_t minus_sum) {
    if constexpr (Format::kOffsetBits == 0) return _mm256_setzero_si256();
    return _mm256_slli_epi32(_mm256_set1_epi32(minus_sum), Format::kOffsetBits);
  }
  template <class Format, int kM, int kV>
  [[gnu::always_inline]] static void add_run(const CodeGroup<Vnni256>* const (&w)[kV], int first,
                                             const CodeRow* x, int64_t column,
                                             Codes (&sums)[kM][kV]) {
#pragma GCC unroll 8
    for (int j = 0; j < kCodeVectors / Format::kScales; ++j) {
#pragma GCC unroll 8
      for (int m = 0; m < kM; ++m) {
        const Codes of = broadcast(x[m].codes + column + 4 * (first + j));
#pragma GCC unroll 2
        for (int v = 0; v < kV; ++v) {
          sums[m][v] = _mm256_dpbusd_avx_epi32(sums[m][v], w[v]->codes[first + j], of);
        }
      }
    }
  }
};

}  // namespace

void multiply_codes_avx_vnni(const StoragePanelArgs& args) { multiply_codes<Vnni256>(args); }

}  // namespace transload::kernels::cpu
HWY_POP_ATTRIBUTES
