// Weights in codes by matrix tiles: see tiles_inl.h. Sums of codes are exact and are added as in
// code_dot_inl.h, so bits are those of the other instructions.
#pragma once

#include "kernels/cpu/code_512_inl.h"
#include "kernels/cpu/tiles_inl.h"

namespace transload::kernels::cpu {

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

template <class Tiles, class Isa>
void multiply_codes_by_tiles(const StoragePanelArgs& args) {
  with_code_format(args.format,
                   [&](auto of) { multiply_code_tiles<Tiles, Isa, decltype(of)>(args); });
}

}  // namespace transload::kernels::cpu
