// The product of attention as a register tile: of queries with keys, and of weights with values.
// Included once for each target.
#if defined(TRANSLOAD_KERNELS_CPU_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRANSLOAD_KERNELS_CPU_PRODUCT_INL_H_
#undef TRANSLOAD_KERNELS_CPU_PRODUCT_INL_H_
#else
#define TRANSLOAD_KERNELS_CPU_PRODUCT_INL_H_
#endif

#include "hwy/cache_control.h"
#include "kernels/cpu/half_inl.h"
#include "kernels/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out[i, j] = sum over s in [first, last) of a[i][s] * b[s, j], in the order of s, fused. With
// first 0 the sums start at zero, else at what `out` holds: a sum's bits are the same in one go, in
// several, and in any tile.
template <class T>
struct Product {
  const float* const* a;
  const T* b;
  int64_t ld_b;
  int64_t first;
  int64_t last;
  float* out;
  int64_t ld_out;
  const T* ahead;  // what will be read next, of the shape of b: fetched meanwhile (kAhead)
};

// Rows of a whole tile.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileVectors = 8;
#else
inline constexpr int kTileVectors = 6;
#endif
static_assert(kTileVectors <= kAttendTile);

// Vectors of columns in a tile of kM rows: with the sums, one side of the product stays in
// registers (32 with AVX-512, else 16) and the other streams.
template <int kM>
constexpr int tile_vectors() {
#if HWY_TARGET == HWY_AVX3
  return kM <= 6 ? 4 : 2;
#else
  return kM == 1 ? 8 : kM <= 3 ? 4 : 2;
#endif
}

template <int kM, int kN, bool kAhead, class D, class T>
// NOLINTNEXTLINE(readability-function-size): one tile, its sums in registers throughout
HWY_INLINE void product_tile(D d, const Product<T>& of, int64_t column) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* a[kM];
  V sums[kM][kN];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
    a[i] = of.a[i];
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      sums[i][j] =
          of.first == 0 ? hn::Zero(d) : hn::LoadU(d, of.out + i * of.ld_out + column + j * lanes);
    }
  }
  const T* b = of.b + of.first * of.ld_b + column;
  const T* ahead = of.ahead + of.first * of.ld_b + column;
  for (int64_t s = of.first; s < of.last; ++s, b += of.ld_b, ahead += of.ld_b) {
    if constexpr (kAhead) {
      constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
      for (int64_t c = 0; c < kN * lanes; c += kLine) hwy::Prefetch(ahead + c);
    }
    if constexpr (kM <= kN) {
      V left[kM];
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) left[i] = hn::Set(d, a[i][s]);
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) {
        const V right = load_kv(d, b + j * lanes);
#pragma GCC unroll 8
        for (int i = 0; i < kM; ++i) sums[i][j] = hn::MulAdd(left[i], right, sums[i][j]);
      }
    } else {
      V right[kN];
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) right[j] = load_kv(d, b + j * lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) {
        const V left = hn::Set(d, a[i][s]);
#pragma GCC unroll 8
        for (int j = 0; j < kN; ++j) sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      hn::StoreU(sums[i][j], d, of.out + i * of.ld_out + column + j * lanes);
    }
  }
}

// The product for columns [0, columns).
template <int kM, bool kAhead, class T>
HWY_NOINLINE void product(const Product<T>& of, int64_t columns) {
  constexpr int kN = tile_vectors<kM>();
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t column = 0;
  for (; column + kN * lanes <= columns; column += kN * lanes) {
    product_tile<kM, kN, kAhead>(d, of, column);
  }
  for (; column + lanes <= columns; column += lanes) product_tile<kM, 1, kAhead>(d, of, column);
  for (; column < columns; ++column) product_tile<kM, 1, false>(one, of, column);
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TRANSLOAD_KERNELS_CPU_PRODUCT_INL_H_
