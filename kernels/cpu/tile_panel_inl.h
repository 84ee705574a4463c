// Products with weights as they are stored by matrix tiles (AMX), over an interface of tiles that
// the instructions implement and, in tests, an emulation. A tile has 16 rows of 64 bytes at most:
//
//   Tiles::configure(TileShapes)          sets the shapes and clears all tiles; release() gives
//   back Tiles::zero<T>(), load<T>(at, stride), store<T>(at, stride) Tiles::dot_codes<C, A, B>()
//   C[m, n] += sum_k A[m, k] * B[k / 4, 4 n + k % 4], whole
//                                         numbers: A with a sign, B without
//   Tiles::dot_pairs<C, A, B>()           the same of bfloat16 pairs, in float32
//
// A row of a tile of results depends on one row of x: on no company. Sums of codes are exact and
// are added as in code_dot_inl.h, so their bits are those of the other instructions.
#pragma once

#include "kernels/cpu/brain_512_inl.h"
#include "kernels/cpu/code_512_inl.h"

namespace transload::kernels::cpu {

inline constexpr int64_t kTileRowCount = 16;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileFloats = 256;

// As the instruction LDTILECFG reads it.
struct TileShapes {
  uint8_t palette = 1;
  uint8_t unused[15] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  void set(int tile, int64_t row_count, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(row_count);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

// Calls multiply(first_x, m) for 16 rows of x at a time, tiles 0 and 1 for results, 2 for x and 3
// and 4 for W; w_rows and x_bytes are the shape of W's tiles and the width of x's.
template <class Tiles, class Multiply>
void for_each_tile(int64_t rows_of_x, int64_t w_rows, int64_t x_bytes, const Multiply& multiply) {
  int64_t configured = 0;
  for (int64_t i = 0; i < rows_of_x; i += kTileRowCount) {
    const int64_t m = rows_of_x - i < kTileRowCount ? rows_of_x - i : kTileRowCount;
    if (m != configured) {
      TileShapes shapes;
      for (const int tile : {0, 1}) shapes.set(tile, m, kTileRowBytes);
      shapes.set(2, m, x_bytes);
      for (const int tile : {3, 4}) shapes.set(tile, w_rows, kTileRowBytes);
      Tiles::configure(shapes);
      configured = m;
    }
    multiply(i, m);
  }
  Tiles::release();
}

// Sums of part `half` of group g of 16 rows of W times those of a tile of x.
template <class Tiles, class Isa, class Format>
void dot_codes(const CodeGroup<Isa>& w, const std::byte* x, int64_t x_bytes, int half,
               int32_t* whole) {
  constexpr int kVectors = kCodeVectors / Format::kScales;
  Tiles::template zero<0>();
  Tiles::template load<2>(x + 4 * kVectors * half, x_bytes);
  Tiles::template load<3>(w.codes + kVectors * half, kTileRowBytes);
  Tiles::template dot_codes<0, 2, 3>();
  Tiles::template store<0>(whole, kTileRowBytes);
}

// m <= 16 rows of x from first_x on; rows of results beyond are dropped.
template <class Tiles, class Isa, class Format>
void multiply_code_tile(const StoragePanelArgs& args, const RowVector& rows,
                        const CodeGroup<Isa>* panel, int64_t first_x, int64_t m) {
  const int64_t x_bytes = x_row_bytes(args.cols);
  const CodeRow first = code_row<Isa>(args, first_x);
  const auto terms = [&](int64_t i, int64_t g) -> const GroupTerms& {
    return code_row<Isa>(args, first_x + (i < m ? i : m - 1)).terms[g];
  };
  typename Isa::Floats sums[kTileRowCount];
  for (auto& sum : sums) sum = Isa::set(0);
  alignas(64) int32_t whole[kTileFloats] = {};
  for (int64_t g = 0; g < args.cols / kCodeGroup; ++g) {
    for (int half = 0; half < Format::kScales; ++half) {
      dot_codes<Tiles, Isa, Format>(panel[g], first.codes + g * kCodeGroup, x_bytes, half, whole);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRowCount; ++i) {
        const GroupTerms& of = terms(i, g);
        const int32_t minus_sum = minus_sum_of<Format>(of, half);
        const auto sum =
            Isa::add_whole(Isa::load_whole(whole + 16 * i), Isa::template start<Format>(minus_sum));
        const auto factor = Isa::multiply(panel[g].scale[half], Isa::set(of.scale));
        sums[i] = Isa::multiply_add(Isa::to_floats(sum), factor, sums[i]);
      }
    }
    if constexpr (Format::kMinimum) {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRowCount; ++i) {
        sums[i] = Isa::multiply_add(panel[g].minimum, Isa::set(terms(i, g).scaled_sum), sums[i]);
      }
    }
  }
  for (int64_t i = 0; i < m; ++i) store_sums<Isa>(args, rows, first_x + i, sums[i]);
}

template <class Tiles, class Isa, class Format>
void multiply_code_tiles(const StoragePanelArgs& args) {
  auto* const panel = reinterpret_cast<CodeGroup<Isa>*>(args.scratch);
  for (int64_t row = 0; row < args.rows; row += Isa::kLanes) {
    const RowVector rows = row_vector<Isa>(args, format_row_bytes<Format>(args.cols), row);
    const int64_t groups = args.cols / kCodeGroup;
    for (int64_t g = 0; g < groups; ++g) {
      prefetch_next<Isa>(rows, g, groups);
      Format::template unpack<Isa>(rows.at, rows.stride, g, panel[g]);
    }
    for_each_tile<Tiles>(args.m, kCodeVectors / Format::kScales, kCodeGroup / Format::kScales,
                         [&](int64_t first_x, int64_t m) {
                           multiply_code_tile<Tiles, Isa, Format>(args, rows, panel, first_x, m);
                         });
  }
}

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

template <class Tiles, class Isa>
void multiply_codes_by_tiles(const StoragePanelArgs& args) {
  with_code_format(args.format,
                   [&](auto of) { multiply_code_tiles<Tiles, Isa, decltype(of)>(args); });
}

template <class Tiles, class Isa, quant::Format kFormat>
void multiply_brain_tiles(const StoragePanelArgs& args) {
  const int64_t row_bytes = args.cols * (kFormat == quant::Format::kF32 ? 4 : 2);
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
  switch (args.format) {
    case quant::Format::kF32:
      return multiply_brain_tiles<Tiles, Isa, quant::Format::kF32>(args);
    case quant::Format::kF16:
      return multiply_brain_tiles<Tiles, Isa, quant::Format::kF16>(args);
    default:
      return multiply_brain_tiles<Tiles, Isa, quant::Format::kBF16>(args);
  }
}

}  // namespace transload::kernels::cpu
