// Vectors of 256 bits for code_dot_inl.h: 8 rows of W. `Source` is the including source's own type,
// so that nothing here is shared between sources.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/code_panel_inl.h"

namespace transload::kernels::cpu {

template <class Source>
struct Vectors256 {
  using Codes = __m256i;
  using Floats = __m256;
  static constexpr int64_t kLanes = 8;
  static constexpr int64_t kTileRows = 3;

  static Floats set(float x) { return _mm256_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats to_floats(Codes sums) { return _mm256_cvtepi32_ps(sums); }
  static Codes from(int64_t skip) {
    const Codes lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(static_cast<int32_t>(skip) - 1));
  }
  static Floats load_from(const float* p, int64_t skip) {
    return _mm256_maskload_ps(p, from(skip));
  }
  static void store_from(float* p, int64_t skip, Floats v) {
    _mm256_maskstore_ps(p, from(skip), v);
  }

  static Codes lanes(const std::byte* at, int64_t stride) {  // 16 bytes of rows 0 and 4
    return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(at + 4 * stride),
                               reinterpret_cast<const __m128i*>(at));
  }
  // Word 0 of each row.
  static Codes first_words(const std::byte* at, int64_t stride) {
    const Codes low = _mm256_unpacklo_epi32(lanes(at, stride), lanes(at + stride, stride));
    const Codes high =
        _mm256_unpacklo_epi32(lanes(at + 2 * stride, stride), lanes(at + 3 * stride, stride));
    return _mm256_unpacklo_epi64(low, high);
  }
  // out[j] = word j of each row.
  static void transpose(const std::byte* at, int64_t stride, Codes* out) {
    const Codes a = lanes(at, stride);
    const Codes b = lanes(at + stride, stride);
    const Codes c = lanes(at + 2 * stride, stride);
    const Codes d = lanes(at + 3 * stride, stride);
    const Codes ab = _mm256_unpacklo_epi32(a, b);
    const Codes cd = _mm256_unpacklo_epi32(c, d);
    const Codes ab_high = _mm256_unpackhi_epi32(a, b);
    const Codes cd_high = _mm256_unpackhi_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
    out[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    out[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
  }
  static Floats low_halves(Codes words) {
    const Codes low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    return halves(low);
  }
  static Floats high_halves(Codes words) { return halves(_mm256_srli_epi32(words, 16)); }
  static Floats halves(Codes words) {
    const Codes packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
  }
  static void unpack_nibbles(const std::byte* at, int64_t stride, Codes* out) {
    transpose(at, stride, out);
    const Codes mask = _mm256_set1_epi8(15);
    for (int j = 0; j < 4; ++j) {
      out[4 + j] = _mm256_and_si256(_mm256_srli_epi16(out[j], 4), mask);
      out[j] = _mm256_and_si256(out[j], mask);
    }
  }
  // (words >> shift) & mask, in words or in bytes (where no bits come over from the next byte).
  static Codes bits(Codes words, int shift, int mask) {
    return _mm256_and_si256(shift_right(words, shift), _mm256_set1_epi32(mask));
  }
  static Codes byte_bits(Codes bytes, int shift, int mask) {
    return _mm256_and_si256(shift_right(bytes, shift), _mm256_set1_epi8(static_cast<char>(mask)));
  }
  static Codes shift_right(Codes words, int shift) {
    return _mm256_srl_epi32(words, _mm_cvtsi32_si128(shift));
  }
  static Codes join(Codes low, Codes high, int shift) {
    return _mm256_or_si256(low, _mm256_sll_epi32(high, _mm_cvtsi32_si128(shift)));
  }
  static Codes signed_byte(Codes words, int shift) {
    return _mm256_srai_epi32(_mm256_sll_epi32(words, _mm_cvtsi32_si128(24 - shift)), 24);
  }
  static Codes broadcast(const std::byte* four) {
    int32_t word = 0;
    std::memcpy(&word, four, sizeof word);
    return _mm256_set1_epi32(word);
  }
};

}  // namespace transload::kernels::cpu
