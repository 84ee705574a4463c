// Integer dot products with AVX2: 8 rows of W a vector, products in pairs of 16 bits.
#include <immintrin.h>

#include <cstring>

#include "hwy/base.h"
#include "kernels/cpu/storage_ops.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
// After the attributes: all that is instantiated there is compiled with them.
#include "kernels/cpu/code_256_inl.h"

namespace transload::kernels::cpu {
namespace {

struct Avx2 : Vectors256<Avx2> {
  static void unpack_bytes(const std::byte* at, int64_t stride, Codes* out) {
    transpose(at, stride, out);
  }

  template <class Format>
  static constexpr int run() {
    return Format::kRun;
  }
  template <class Format>
  static Codes start(int32_t minus_sum) {
    if constexpr (Format::kOffsetBits == 0 || Format::kSigned) return _mm256_setzero_si256();
    return _mm256_slli_epi32(_mm256_set1_epi32(minus_sum), Format::kOffsetBits);
  }
  // Codes of W with a sign give it to x: |w| <= 128 and |x| <= 127, so a pair fits 16 bits.
  template <class Format>
  static Codes pairs(Codes w, Codes x) {
    if constexpr (!Format::kSigned) return _mm256_maddubs_epi16(w, x);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  }
  template <class Format, int kM, int kV>
  [[gnu::always_inline]] static void add_run(const CodeGroup<Avx2>* const (&w)[kV], int first,
                                             const CodeRow* x, int64_t column,
                                             Codes (&sums)[kM][kV]) {
    Codes run[kM][kV];
#pragma GCC unroll 8
    for (int j = 0; j < Format::kRun; ++j) {
#pragma GCC unroll 8
      for (int m = 0; m < kM; ++m) {
        const Codes of = broadcast(x[m].codes + column + 4 * (first + j));
#pragma GCC unroll 2
        for (int v = 0; v < kV; ++v) {
          const Codes next = pairs<Format>(w[v]->codes[first + j], of);
          run[m][v] = j == 0 ? next : _mm256_add_epi16(run[m][v], next);
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) {
        const Codes words = _mm256_madd_epi16(run[m][v], _mm256_set1_epi16(1));
        sums[m][v] = _mm256_add_epi32(sums[m][v], words);
      }
    }
  }
};

}  // namespace

void multiply_codes_avx2(const StoragePanelArgs& args) { multiply_codes<Avx2>(args); }

}  // namespace transload::kernels::cpu
HWY_POP_ATTRIBUTES
