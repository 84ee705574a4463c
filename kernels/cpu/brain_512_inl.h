// 16 rows of W of F16 or BF16 as vectors of pairs of columns in bfloat16. `Source` is the
// including source's own type, so that nothing here is shared between sources.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/storage_vector_inl.h"

namespace transload::kernels::cpu {

inline constexpr int64_t kStep = 8;   // columns that are brought at once
inline constexpr int64_t kWide = 32;  // a cache line of each row: as long as so many are left
// Rows a multiple of kClash bytes apart have all their lines in the same few places of the cache,
// where they push each other out: kSpan columns of each are copied to rows kSpanStride bytes apart.
inline constexpr int64_t kClash = 2048;
inline constexpr int64_t kSpan = 256;
inline constexpr int kSpanLines = 2 * kSpan / 64;
inline constexpr int64_t kSpanStride = 2 * kSpan + 64;
inline constexpr int64_t kSpanBytes = 16 * kSpanStride;

// Columns of the next span where so many are left.
constexpr int64_t span_columns(int64_t left) { return left < kSpan ? left / kWide * kWide : kSpan; }

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

  // out[j] = pair j of each 128 bits of a, b, d and e, side by side.
  [[gnu::always_inline]] static void transpose(__m512i a, __m512i b, __m512i d, __m512i e,
                                               __m512i* out) {
    const __m512i ab = _mm512_unpacklo_epi32(a, b);
    const __m512i de = _mm512_unpacklo_epi32(d, e);
    const __m512i ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i de_high = _mm512_unpackhi_epi32(d, e);
    out[0] = _mm512_unpacklo_epi64(ab, de);
    out[1] = _mm512_unpackhi_epi64(ab, de);
    out[2] = _mm512_unpacklo_epi64(ab_high, de_high);
    out[3] = _mm512_unpackhi_epi64(ab_high, de_high);
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
    transpose(a, b, d, e, out);
  }

  // Columns c .. c + 31 of a row.
  template <quant::Format kFormat>
  [[gnu::always_inline]] static __m512i load32(const std::byte* row, int64_t c) {
    const std::byte* const at = row + 2 * c;
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32));
    // Half lines: of whole ones that are not aligned, each would lie across two.
    if constexpr (kFormat == quant::Format::kBF16)
      return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_cvtph_ps(high), _mm512_cvtph_ps(low)));
  }

  // Columns c .. c + columns - 1, whole groups of kWide, as rows of their own; `copy` [kSpanBytes].
  static RowVector span(RowVector rows, int64_t c, int64_t columns, std::byte* copy) {
    rows.at += 2 * c;
    if (rows.stride % kClash != 0 || columns < kSpan) return rows;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      __m512i lines[kSpanLines];  // all at once: no loop that a compiler takes for memcpy
#pragma GCC unroll 8
      for (int i = 0; i < kSpanLines; ++i) {
        lines[i] = _mm512_loadu_si512(rows.at + lane * rows.stride + 64 * i);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kSpanLines; ++i) {
        _mm512_store_si512(copy + lane * kSpanStride + 64 * i, lines[i]);
      }
    }
    return {copy, kSpanStride, rows.row, rows.skip};
  }

  // out[j] = columns c + 2 j and the next of 16 rows, j < 16.
  template <quant::Format kFormat>
  [[gnu::always_inline]] static void unpack32(const RowVector& rows, int64_t c, __m512i* out) {
    __m512i four[4][4];  // [k][j]: rows 4 k .. 4 k + 3 of pairs j, 4 + j, 8 + j and 12 + j
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const std::byte* at = rows.at + 4 * k * rows.stride;
      transpose(load32<kFormat>(at, c), load32<kFormat>(at + rows.stride, c),
                load32<kFormat>(at + 2 * rows.stride, c), load32<kFormat>(at + 3 * rows.stride, c),
                four[k]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i even = _mm512_shuffle_i32x4(four[0][j], four[1][j], 0x88);
      const __m512i odd = _mm512_shuffle_i32x4(four[0][j], four[1][j], 0xdd);
      const __m512i even_high = _mm512_shuffle_i32x4(four[2][j], four[3][j], 0x88);
      const __m512i odd_high = _mm512_shuffle_i32x4(four[2][j], four[3][j], 0xdd);
      out[j] = _mm512_shuffle_i32x4(even, even_high, 0x88);
      out[4 + j] = _mm512_shuffle_i32x4(odd, odd_high, 0x88);
      out[8 + j] = _mm512_shuffle_i32x4(even, even_high, 0xdd);
      out[12 + j] = _mm512_shuffle_i32x4(odd, odd_high, 0xdd);
    }
  }

  template <quant::Format kFormat>
  static void unpack(const RowVector& rows, int64_t cols, __m512i* out) {
    int64_t c = 0;
    alignas(64) std::byte copy[kSpanBytes];
    while (c + kWide <= cols) {
      const int64_t columns = span_columns(cols - c);
      const RowVector near = span(rows, c, columns, copy);
      for (int64_t i = 0; i < columns; i += kWide, out += kWide / 2) {
        prefetch_next<BrainVectors512>(rows, (c + i) / kWide, cols / kWide);
        unpack32<kFormat>(near, i, out);
      }
      c += columns;
    }
    for (; c + kStep <= cols; c += kStep, out += kStep / 2) {
      unpack8<kFormat, false>(rows, c, kStep, out);
    }
    if (c < cols) unpack8<kFormat, true>(rows, c, cols - c, out);
  }
};

}  // namespace transload::kernels::cpu
