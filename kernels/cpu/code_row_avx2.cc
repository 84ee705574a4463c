// A row of x in int8 codes.
#include <immintrin.h>

#include <cstring>

#include "hwy/base.h"
#include "kernels/cpu/storage_ops.h"

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace transload::kernels::cpu {
namespace {

constexpr int32_t kAbsent = 0x7fffffff;  // all but the sign
constexpr int32_t kTiny = 0x0d800000;    // the bits of 2^-100: below, a group counts as zero
constexpr float kCodes = 127;            // the largest code

// Bits of the largest magnitude of a group; a NaN is above all numbers.
int32_t largest_bits(const __m256* x) {
  const __m256i mask = _mm256_set1_epi32(kAbsent);
  __m256i most = _mm256_and_si256(_mm256_castps_si256(x[0]), mask);
  for (int i = 1; i < 4; ++i) {
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), mask));
  }
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}

// Codes of a group in order; what is no number gets any code: the scale is none either.
__m256i codes_of(const __m256* x, float inverse) {
  const __m256 by = _mm256_set1_ps(inverse);
  __m256i code[4];
  for (int i = 0; i < 4; ++i) code[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], by));
  const __m256i low = _mm256_packs_epi32(code[0], code[1]);
  const __m256i high = _mm256_packs_epi32(code[2], code[3]);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

GroupTerms terms_of(__m256i codes, float scale) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  sums = _mm256_hadd_epi32(sums, sums);
  sums = _mm256_hadd_epi32(sums, sums);
  const int32_t low = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums));
  const int32_t high = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
  return {scale, scale * static_cast<float>(low + high), -(low + high), {-low, -high}};
}

}  // namespace

void code_row_avx2(const float* x, int64_t cols, std::byte* out) {
  std::byte* terms = out + cols;
  for (int64_t c = 0; c < cols; c += kCodeGroup, terms += sizeof(GroupTerms)) {
    __m256 group[4];
    for (int i = 0; i < 4; ++i) group[i] = _mm256_loadu_ps(x + c + 8 * i);
    const int32_t bits = largest_bits(group);
    float largest = 0;
    std::memcpy(&largest, &bits, sizeof largest);
    const bool zero = bits < kTiny;
    const __m256i codes = codes_of(group, zero ? 0 : kCodes / largest);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + c), codes);
    const GroupTerms of = terms_of(codes, zero ? 0 : largest / kCodes);
    std::memcpy(terms, &of, sizeof of);
  }
}

}  // namespace transload::kernels::cpu
HWY_POP_ATTRIBUTES
