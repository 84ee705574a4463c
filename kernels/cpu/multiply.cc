#include <algorithm>
#include <cstdint>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/multiply.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h: once for each target.
#include "kernels/cpu/dot_tile_inl.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {

// Writes a tile of sums [m, kTileCols] to rows i.. and columns r.. of y, of which there are `cols`.
void store_tile(const PanelArgs& args, const float* sums, int64_t i, int64_t m, int64_t r) {
  const int64_t cols = args.rows - r < kTileCols ? args.rows - r : kTileCols;
  for (int64_t a = 0; a < m; ++a) {
    float* y = args.y + (i + a) * args.ld_y + r;
    const float* of = sums + a * kTileCols;
    if (args.bias == nullptr) {
      for (int64_t b = 0; b < cols; ++b) y[b] = of[b];
    } else {
      for (int64_t b = 0; b < cols; ++b) y[b] = of[b] + args.bias[r + b];
    }
  }
}

void multiply_panel(const PanelArgs& args) {
  HWY_ALIGN float sums[kTileRows * kTileCols];
  for (int64_t i = 0; i < args.m; i += kTileRows) {
    const int64_t m = args.m - i < kTileRows ? args.m - i : kTileRows;
    const float* x[kTileRows];
    for (int64_t a = 0; a < m; ++a) x[a] = args.x + (i + a) * args.ld_x;
    for (int64_t r = 0; r < args.rows; r += kTileCols) {
      // The panel always has kPanelRows rows in memory; sums beyond args.rows are dropped.
      const float* w[kTileCols];
      for (int64_t b = 0; b < kTileCols; ++b) w[b] = args.panel + (r + b) * args.ld_panel;
      dot_rows(m, x, w, args.cols, sums);
      store_tile(args, sums, i, m, r);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace transload::kernels::cpu {

void set_multiply_ops(InstructionSet set, Ops* ops) {
  ops->multiply_panel = TRANSLOAD_CHOOSE(set, multiply_panel);
}

}  // namespace transload::kernels::cpu
#endif  // HWY_ONCE
