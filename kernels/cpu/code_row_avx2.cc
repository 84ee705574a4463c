// A row of x in int8 codes.
#include <immintrin.h>

#include "hwy/base.h"
#include "kernels/cpu/storage_ops.h"

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace transload::kernels::cpu {
namespace {

constexpr int32_t kAbsent = 0x7fffffff;  // all but the sign
constexpr int32_t kTiny = 0x0d800000;    // the bits of 2^-100: below, a group counts as zero
constexpr float kCodes = 127;            // the largest code

constexpr int64_t kTermBytes = sizeof(GroupTerms);
constexpr int64_t kBatch = 4;  // groups whose terms fill a vector

// Lane by lane, bits of the largest magnitude of a group; a NaN is above all numbers.
__m128i largest_bits(const float* x) {
  const __m256i mask = _mm256_set1_epi32(kAbsent);
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
    most = _mm256_max_epi32(most, _mm256_and_si256(bits, mask));
  }
  return _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
}

// Lane i: the largest of the lanes of of[i].
__m128i fold_largest(const __m128i* of) {
  const __m128i ab =
      _mm_max_epi32(_mm_unpacklo_epi32(of[0], of[1]), _mm_unpackhi_epi32(of[0], of[1]));
  const __m128i cd =
      _mm_max_epi32(_mm_unpacklo_epi32(of[2], of[3]), _mm_unpackhi_epi32(of[2], of[3]));
  return _mm_max_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}

// Codes of a group in order; what is no number gets any code: the scale is none either.
__m256i codes_of(const float* x, float inverse) {
  const __m256 by = _mm256_set1_ps(inverse);
  __m256i code[4];
  for (int i = 0; i < 4; ++i) {
    code[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), by));
  }
  const __m256i low = _mm256_packs_epi32(code[0], code[1]);
  const __m256i high = _mm256_packs_epi32(code[2], code[3]);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

__m256i fours_of(__m256i codes) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Terms of kLive groups from their scales and the sums of four codes each.
template <int kLive>
void store_terms(const __m256i* fours, __m128 scale, std::byte* out) {
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(fours[0], fours[1]),
                                         _mm256_hadd_epi32(fours[2], fours[3]));
  const __m128i first = _mm256_castsi256_si128(sums);  // halves of the groups
  const __m128i sum = _mm_add_epi32(first, _mm256_extracti128_si256(sums, 1));
  const __m128i zero = _mm_setzero_si128();
  __m128 terms[kBatch] = {scale, _mm_mul_ps(scale, _mm_cvtepi32_ps(sum)),
                          _mm_castsi128_ps(_mm_sub_epi32(zero, sum)),
                          _mm_castsi128_ps(_mm_sub_epi32(zero, first))};
  _MM_TRANSPOSE4_PS(terms[0], terms[1], terms[2], terms[3]);
  for (int i = 0; i < kLive; ++i) {
    _mm_storeu_ps(reinterpret_cast<float*>(out) + 4 * i, terms[i]);
  }
}

// kLive groups; the last stands in for those that are absent.
template <int kLive>
void code_groups(const float* x, std::byte* codes, std::byte* terms) {
  const float* at[kBatch];
  __m128i most[kBatch];
  for (int i = 0; i < kBatch; ++i) {
    at[i] = x + (i < kLive ? i : kLive - 1) * kCodeGroup;
    most[i] = largest_bits(at[i]);
  }
  const __m128i bits = fold_largest(most);
  const __m128 zero = _mm_castsi128_ps(_mm_cmplt_epi32(bits, _mm_set1_epi32(kTiny)));
  const __m128 largest = _mm_castsi128_ps(bits);
  alignas(16) float inverse[kBatch];
  _mm_store_ps(inverse, _mm_andnot_ps(zero, _mm_div_ps(_mm_set1_ps(kCodes), largest)));
  __m256i fours[kBatch];
  for (int i = 0; i < kBatch; ++i) {
    const __m256i of = codes_of(at[i], inverse[i]);
    fours[i] = fours_of(of);
    if (i < kLive) _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i * kCodeGroup), of);
  }
  const __m128 scale = _mm_andnot_ps(zero, _mm_div_ps(largest, _mm_set1_ps(kCodes)));
  store_terms<kLive>(fours, scale, terms);
}

}  // namespace

void code_row_avx2(const float* x, int64_t cols, std::byte* out) {
  static_assert(sizeof(GroupTerms) == 16);
  constexpr int64_t kColumns = kBatch * kCodeGroup;
  std::byte* terms = out + cols;
  const auto terms_at = [&](int64_t c) { return terms + c / kCodeGroup * kTermBytes; };
  int64_t c = 0;
  for (; c + kColumns <= cols; c += kColumns) code_groups<kBatch>(x + c, out + c, terms_at(c));
  if (c == cols) return;
  if (c > 0) {  // the last batch begins among groups that are done
    c = cols - kColumns;
    return code_groups<kBatch>(x + c, out + c, terms_at(c));
  }
  for (; c < cols; c += kCodeGroup) code_groups<1>(x + c, out + c, terms_at(c));
}

}  // namespace transload::kernels::cpu
HWY_POP_ATTRIBUTES
