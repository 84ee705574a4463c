// Integer dot products of weights in codes with rows of x in codes, for one `Isa`.
//
//   y = sum over groups g of
//       scale_w[g] * scale_x[g] * sum(w * x) + minimum_w[g] * scaled_sum_x[g]
//
// (with a scale for each half of a group in Q6_K).
// The inner sums are whole numbers and exact; the outer one runs over g in order, with fused
// products. A group of a vector of rows is 8 vectors of codes: lane r of vector j holds columns
// 4 j .. 4 j + 3 of row r.
#pragma once

#include "kernels/cpu/storage_vector_inl.h"

namespace transload::kernels::cpu {

inline constexpr int kCodeVectors = 8;

// One group of a vector of rows.
template <class Isa>
struct CodeGroup {
  typename Isa::Codes codes[kCodeVectors];
  typename Isa::Floats scale[2];
  typename Isa::Floats minimum;
};

// A row of x as code_row_avx2 writes it.
struct CodeRow {
  const std::byte* codes = nullptr;
  const GroupTerms* terms = nullptr;
};
template <class Isa>
CodeRow code_row(const StoragePanelArgs& args, int64_t i) {
  const std::byte* at = args.x + i * x_row_bytes(args.cols);
  return {at, reinterpret_cast<const GroupTerms*>(at + args.cols)};
}

// -sum of the codes of part `half` of a group.
template <class Format>
int32_t minus_sum_of(const GroupTerms& group, int half) {
  if constexpr (Format::kScales == 1) return group.minus_sum;
  return half == 0 ? group.minus_half : group.minus_sum - group.minus_half;
}

// Adds the part `half` of group g of kM rows of x times kV vectors of rows to sums.
template <class Isa, class Format, int kM, int kV>
[[gnu::always_inline]] inline void add_codes(const CodeGroup<Isa>* const (&w)[kV], const CodeRow* x,
                                             int64_t g, int half,
                                             typename Isa::Floats (&sums)[kM][kV]) {
  constexpr int kVectors = kCodeVectors / Format::kScales;
  typename Isa::Codes whole[kM][kV];
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
    const GroupTerms& of = x[m].terms[g];
    const auto start = Isa::template start<Format>(minus_sum_of<Format>(of, half));
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) whole[m][v] = start;
  }
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; j += Isa::template run<Format>()) {
    Isa::template add_run<Format, kM, kV>(w, half * kVectors + j, x, g * kCodeGroup, whole);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
    const auto scale = Isa::set(x[m].terms[g].scale);
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) {
      const auto factor = Isa::multiply(w[v]->scale[half], scale);
      sums[m][v] = Isa::multiply_add(Isa::to_floats(whole[m][v]), factor, sums[m][v]);
    }
  }
}

// Adds group g.
template <class Isa, class Format, int kM, int kV>
[[gnu::always_inline]] inline void add_group(const CodeGroup<Isa>* const (&w)[kV], const CodeRow* x,
                                             int64_t g, typename Isa::Floats (&sums)[kM][kV]) {
  add_codes<Isa, Format, kM, kV>(w, x, g, 0, sums);
  if constexpr (Format::kScales == 2) add_codes<Isa, Format, kM, kV>(w, x, g, 1, sums);
  if constexpr (Format::kMinimum) {
#pragma GCC unroll 8
    for (int m = 0; m < kM; ++m) {
      const auto sum = Isa::set(x[m].terms[g].scaled_sum);
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) {
        sums[m][v] = Isa::multiply_add(w[v]->minimum, sum, sums[m][v]);
      }
    }
  }
}

template <class Format>
constexpr int64_t format_row_bytes(int64_t cols) {
  return cols / Format::kValues * Format::kBytes;
}

// Few rows of x: each group of weights is unpacked and used at once.
template <class Isa, class Format, int kM>
void multiply_few(const StoragePanelArgs& args, int64_t first_x) {
  const int64_t groups = args.cols / kCodeGroup;
  CodeRow x[kM];
  for (int m = 0; m < kM; ++m) x[m] = code_row<Isa>(args, first_x + m);
  for (int64_t row = 0; row < args.rows; row += Isa::kLanes) {
    const RowVector rows = row_vector<Isa>(args, format_row_bytes<Format>(args.cols), row);
    typename Isa::Floats sums[kM][1];
    for (int m = 0; m < kM; ++m) sums[m][0] = Isa::set(0);
    for (int64_t g = 0; g < groups; ++g) {
      prefetch_next<Isa>(rows, g, groups);
      CodeGroup<Isa> group;
      Format::template unpack<Isa>(rows.at, rows.stride, g, group);
      const CodeGroup<Isa>* const w[1] = {&group};
      add_group<Isa, Format, kM, 1>(w, x, g, sums);
    }
    for (int m = 0; m < kM; ++m) store_sums<Isa>(args, rows, first_x + m, sums[m][0]);
  }
}

}  // namespace transload::kernels::cpu
