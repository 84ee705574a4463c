// The one dot product of the backend, as a register tile. Included once for each target.
#if defined(TRANSLOAD_KERNELS_CPU_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRANSLOAD_KERNELS_CPU_DOT_TILE_INL_H_
#undef TRANSLOAD_KERNELS_CPU_DOT_TILE_INL_H_
#else
#define TRANSLOAD_KERNELS_CPU_DOT_TILE_INL_H_
#endif

#include "kernels/cpu/tail_inl.h"
#include "kernels/cpu/targets.h"
// After targets.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of x in a full tile: with 4 rows of W the sums, x and one row of W fit the registers.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 3;
#endif
inline constexpr int kTileCols = 4;

#if HWY_TARGET == HWY_SCALAR
// out[r] = the lane of sums[r], r < 4.
template <class D>
HWY_INLINE void store_sums(D, const hn::Vec<D>* sums, float* out) {
  for (int r = 0; r < kTileCols; ++r) out[r] = hn::GetLane(sums[r]);
}
#else
// Adds the 128-bit blocks of v: upper half to lower half until one is left.
template <class D>
HWY_INLINE void store_folded(D d, hn::Vec<D> v, float* out) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    store_folded(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), out);
  } else {
    hn::StoreU(v, d, out);
  }
}

// out[r] = sum of the lanes of sums[r], r < 4. The same tree for each of the four.
template <class D>
HWY_INLINE void store_sums(D d, const hn::Vec<D>* sums, float* out) {
  const hn::Repartition<double, D> dd;
  const auto ab =
      hn::Add(hn::InterleaveLower(d, sums[0], sums[1]), hn::InterleaveUpper(d, sums[0], sums[1]));
  const auto ce =
      hn::Add(hn::InterleaveLower(d, sums[2], sums[3]), hn::InterleaveUpper(d, sums[2], sums[3]));
  const auto low = hn::InterleaveLower(dd, hn::BitCast(dd, ab), hn::BitCast(dd, ce));
  const auto high = hn::InterleaveUpper(dd, hn::BitCast(dd, ab), hn::BitCast(dd, ce));
  store_folded(d, hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)), out);
}
#endif

// out[4 i + r] = sum_c x[i][c] * w[r][c] for i < kM, r < 4. Lane l sums the columns that are
// l modulo the lanes, in order; the last columns are met by zeros.
template <int kM>
HWY_INLINE void dot_tile(const float* const* x, const float* const* w, int64_t cols, float* out) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kM][kTileCols];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileCols; ++r) sums[i][r] = hn::Zero(d);
  }
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    V left[kM];
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) left[i] = hn::LoadU(d, x[i] + c);
#pragma GCC unroll 4
    for (int r = 0; r < kTileCols; ++r) {
      const V right = hn::LoadU(d, w[r] + c);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) sums[i][r] = hn::MulAdd(left[i], right, sums[i][r]);
    }
  }
  if (c < cols) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileCols; ++r) {
      const V right = load_tail(d, w[r] + c, cols - c);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) {
        sums[i][r] = hn::MulAdd(load_tail(d, x[i] + c, cols - c), right, sums[i][r]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) store_sums(d, sums[i], out + i * kTileCols);
}

// dot_tile for a number of rows that is known at run time, at most kTileRows.
HWY_INLINE void dot_rows(int64_t m, const float* const* x, const float* const* w, int64_t cols,
                         float* out) {
  switch (m) {
    case 1:
      return dot_tile<1>(x, w, cols, out);
    case 2:
      return dot_tile<2>(x, w, cols, out);
#if HWY_TARGET == HWY_AVX3
    case 3:
      return dot_tile<3>(x, w, cols, out);
    case 4:
      return dot_tile<4>(x, w, cols, out);
    case 5:
      return dot_tile<5>(x, w, cols, out);
#endif
    default:
      return dot_tile<kTileRows>(x, w, cols, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TRANSLOAD_KERNELS_CPU_DOT_TILE_INL_H_
