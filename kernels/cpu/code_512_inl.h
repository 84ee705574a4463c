// Vectors of 512 bits for code_dot_inl.h: 16 rows of W. `Source` is the including source's own
// type, so that nothing here is shared between sources.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/code_panel_inl.h"

namespace transload::kernels::cpu {

template <class Source>
struct Vectors512 {
  using Codes = __m512i;
  using Floats = __m512;
  static constexpr int64_t kLanes = 16;
  static constexpr int64_t kTileRows = 4;

  static Floats set(float x) { return _mm512_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Codes load_whole(const int32_t* p) { return _mm512_load_si512(p); }
  static Codes add_whole(Codes a, Codes b) { return _mm512_add_epi32(a, b); }
  static Floats to_floats(Codes sums) { return _mm512_cvtepi32_ps(sums); }
  static __mmask16 from(int64_t skip) { return static_cast<__mmask16>(0xffffU << skip); }
  static Floats load_from(const float* p, int64_t skip) {
    return _mm512_maskz_loadu_ps(from(skip), p);
  }
  static void store_from(float* p, int64_t skip, Floats v) {
    _mm512_mask_storeu_ps(p, from(skip), v);
  }

  static Codes lanes(const std::byte* at, int64_t stride) {  // 16 bytes of rows 0, 4, 8, 12
    const auto load = [&](int64_t row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + row * stride));
    };
    Codes v = _mm512_castsi128_si512(load(0));
    v = _mm512_inserti32x4(v, load(4), 1);
    v = _mm512_inserti32x4(v, load(8), 2);
    return _mm512_inserti32x4(v, load(12), 3);
  }
  // Word 0 of each row.
  static Codes first_words(const std::byte* at, int64_t stride) {
    const Codes low = _mm512_unpacklo_epi32(lanes(at, stride), lanes(at + stride, stride));
    const Codes high =
        _mm512_unpacklo_epi32(lanes(at + 2 * stride, stride), lanes(at + 3 * stride, stride));
    return _mm512_unpacklo_epi64(low, high);
  }
  // out[j] = word j of each row.
  static void transpose(const std::byte* at, int64_t stride, Codes* out) {
    const Codes a = lanes(at, stride);
    const Codes b = lanes(at + stride, stride);
    const Codes c = lanes(at + 2 * stride, stride);
    const Codes d = lanes(at + 3 * stride, stride);
    const Codes ab = _mm512_unpacklo_epi32(a, b);
    const Codes cd = _mm512_unpacklo_epi32(c, d);
    const Codes ab_high = _mm512_unpackhi_epi32(a, b);
    const Codes cd_high = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    out[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    out[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
  static Floats low_halves(Codes words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }
  static Floats high_halves(Codes words) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
  }
  static void unpack_nibbles(const std::byte* at, int64_t stride, Codes* out) {
    transpose(at, stride, out);
    const Codes mask = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; ++j) {
      out[4 + j] = _mm512_and_si512(_mm512_srli_epi16(out[j], 4), mask);
      out[j] = _mm512_and_si512(out[j], mask);
    }
  }
  // Signed bytes plus 128: dpbusd takes W without a sign.
  static void unpack_bytes(const std::byte* at, int64_t stride, Codes* out) {
    transpose(at, stride, out);
    for (int j = 0; j < 4; ++j) out[j] = _mm512_xor_si512(out[j], _mm512_set1_epi8(-128));
  }

  // (words >> shift) & mask, in words or in bytes (where no bits come over from the next byte).
  static Codes bits(Codes words, int shift, int mask) {
    return _mm512_and_si512(shift_right(words, shift), _mm512_set1_epi32(mask));
  }
  static Codes byte_bits(Codes bytes, int shift, int mask) {
    return _mm512_and_si512(shift_right(bytes, shift), _mm512_set1_epi8(static_cast<char>(mask)));
  }
  static Codes shift_right(Codes words, int shift) {
    return _mm512_srl_epi32(words, _mm_cvtsi32_si128(shift));
  }
  static Codes join(Codes low, Codes high, int shift) {
    return _mm512_or_si512(low, _mm512_sll_epi32(high, _mm_cvtsi32_si128(shift)));
  }
  static Codes signed_byte(Codes words, int shift) {
    return _mm512_srai_epi32(_mm512_sll_epi32(words, _mm_cvtsi32_si128(24 - shift)), 24);
  }

  // What codes of W hold too much, times the codes of x.
  template <class Format>
  static Codes start(int32_t minus_sum) {
    if constexpr (Format::kOffsetBits == 0) return _mm512_setzero_si512();
    return _mm512_slli_epi32(_mm512_set1_epi32(minus_sum), Format::kOffsetBits);
  }
};

}  // namespace transload::kernels::cpu
