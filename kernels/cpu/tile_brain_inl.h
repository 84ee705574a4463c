// Weights of F16 and BF16 by matrix tiles in bfloat16: see tiles_inl.h.
#pragma once

#include "kernels/cpu/brain_512_inl.h"
#include "kernels/cpu/tiles_inl.h"

namespace transload::kernels::cpu {

// Vectors of pairs of columns that whole tiles of W hold, zeros beyond the last column.
template <class Isa, quant::Format kFormat>
void unpack_tiles(const RowVector& rows, int64_t cols, __m512i* panel) {
  Isa::template unpack<kFormat>(rows, cols, panel);
  const int64_t used = (cols + kStep - 1) / kStep * (kStep / 2);
  for (int64_t p = used; p < x_row_bytes(cols) / 4; ++p) panel[p] = _mm512_setzero_si512();
}

// Two vectors of rows of W, of which the second may be the first again, times m rows of x.
template <class Tiles, class Isa>
void multiply_brain_tile(const StoragePanelArgs& args, const RowVector* rows, const __m512i* panel,
                         int64_t first_x, int64_t m) {
  const int64_t x_bytes = x_row_bytes(args.cols);
  const int64_t pairs = x_bytes / 4;
  const std::byte* x = args.x + first_x * x_bytes;
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  for (int64_t p = 0; p < pairs; p += kTileRowCount) {
    Tiles::template load<2>(x + 4 * p, x_bytes);
    Tiles::template load<3>(panel + p, kTileRowBytes);
    Tiles::template load<4>(panel + pairs + p, kTileRowBytes);
    Tiles::template dot_pairs<0, 2, 3>();
    Tiles::template dot_pairs<1, 2, 4>();
  }
  alignas(64) float sums[2][kTileFloats];
  Tiles::template store<0>(sums[0], kTileRowBytes);
  Tiles::template store<1>(sums[1], kTileRowBytes);
  for (int64_t i = 0; i < m; ++i) {
    for (int v = 0; v < 2; ++v) {
      store_sums<Isa>(args, rows[v], first_x + i, Isa::load_from(sums[v] + 16 * i, 0));
    }
  }
}

template <class Tiles, class Isa, quant::Format kFormat>
void multiply_brain_tiles(const StoragePanelArgs& args) {
  const int64_t row_bytes = 2 * args.cols;
  auto* const panel = reinterpret_cast<__m512i*>(args.scratch);
  for (int64_t row = 0; row < args.rows; row += 2 * Isa::kLanes) {
    const bool two = args.rows - row > Isa::kLanes;
    RowVector rows[2];
    for (int v = 0; v < 2; ++v) {
      rows[v] = row_vector<Isa>(args, row_bytes, row + (two ? v * Isa::kLanes : 0));
      unpack_tiles<Isa, kFormat>(rows[v], args.cols, panel + v * x_row_bytes(args.cols) / 4);
    }
    for_each_tile<Tiles>(args.m, kTileRowCount, kTileRowBytes, [&](int64_t first_x, int64_t m) {
      multiply_brain_tile<Tiles, Isa>(args, rows, panel, first_x, m);
    });
  }
}

template <class Tiles, class Isa>
void multiply_brain_by_tiles(const StoragePanelArgs& args) {
  if (args.format == quant::Format::kF16)
    return multiply_brain_tiles<Tiles, Isa, quant::Format::kF16>(args);
  multiply_brain_tiles<Tiles, Isa, quant::Format::kBF16>(args);
}

}  // namespace transload::kernels::cpu
