// 16 rows of W of F16 or BF16 as vectors of pairs of columns in bfloat16. `Source` is the
// including source's own type, so that nothing here is shared between sources.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/storage_vector_inl.h"

namespace transload::kernels::cpu {

inline constexpr int64_t kStep = 8;  // columns that are brought at once

template <class Source>
struct BrainVectors512 {
  static constexpr int64_t kLanes = 16;
  using Floats = __m512;
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static __mmask16 from(int64_t skip) { return static_cast<__mmask16>(0xffffU << skip); }
  static Floats load_from(const float* p, int64_t skip) {
    return _mm512_maskz_loadu_ps(from(skip), p);
  }
  static void store_from(float* p, int64_t skip, Floats v) {
    _mm512_mask_storeu_ps(p, from(skip), v);
  }

  static __m128i round8(__m256 x) {
    const __m128bh rounded = _mm256_cvtneps_pbh(x);
    __m128i bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    return bits;
  }

  // Columns c .. c + 7 of a row, or with kPart the `live` first of them and zeros.
  template <quant::Format kFormat, bool kPart>
  [[gnu::always_inline]] static __m128i load8(const std::byte* row, int64_t c, int64_t live) {
    const auto mask = static_cast<__mmask8>((1U << live) - 1);
    const auto* at = reinterpret_cast<const __m128i*>(row + 2 * c);
    const __m128i bits = kPart ? _mm_maskz_loadu_epi16(mask, at) : _mm_loadu_si128(at);
    return kFormat == quant::Format::kBF16 ? bits : round8(_mm256_cvtph_ps(bits));
  }

  template <quant::Format kFormat, bool kPart>
  [[gnu::always_inline]] static __m512i lanes(const std::byte* at, int64_t stride, int64_t c,
                                              int64_t live) {
    const auto row = [&](int64_t lane) {
      return load8<kFormat, kPart>(at + lane * stride, c, live);
    };
    __m512i v = _mm512_castsi128_si512(row(0));
    v = _mm512_inserti32x4(v, row(4), 1);
    v = _mm512_inserti32x4(v, row(8), 2);
    return _mm512_inserti32x4(v, row(12), 3);
  }

  // out[j] = columns c + 2 j and the next of 16 rows.
  template <quant::Format kFormat, bool kPart>
  [[gnu::always_inline]] static void unpack8(const RowVector& rows, int64_t c, int64_t live,
                                             __m512i* out) {
    const std::byte* at = rows.at;
    const __m512i a = lanes<kFormat, kPart>(at, rows.stride, c, live);
    const __m512i b = lanes<kFormat, kPart>(at + rows.stride, rows.stride, c, live);
    const __m512i d = lanes<kFormat, kPart>(at + 2 * rows.stride, rows.stride, c, live);
    const __m512i e = lanes<kFormat, kPart>(at + 3 * rows.stride, rows.stride, c, live);
    const __m512i ab = _mm512_unpacklo_epi32(a, b);
    const __m512i de = _mm512_unpacklo_epi32(d, e);
    const __m512i ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i de_high = _mm512_unpackhi_epi32(d, e);
    out[0] = _mm512_unpacklo_epi64(ab, de);
    out[1] = _mm512_unpackhi_epi64(ab, de);
    out[2] = _mm512_unpacklo_epi64(ab_high, de_high);
    out[3] = _mm512_unpackhi_epi64(ab_high, de_high);
  }

  template <quant::Format kFormat>
  static void unpack(const RowVector& rows, int64_t cols, __m512i* out) {
    int64_t c = 0;
    for (; c + kStep <= cols; c += kStep, out += kStep / 2) {
      prefetch_next<BrainVectors512>(rows, c / kStep, cols / kStep);
      unpack8<kFormat, false>(rows, c, kStep, out);
    }
    if (c < cols) unpack8<kFormat, true>(rows, c, cols - c, out);
  }
};

}  // namespace transload::kernels::cpu
