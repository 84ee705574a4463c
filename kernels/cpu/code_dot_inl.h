// Integer dot products of weights in codes with rows of x in codes, for one `Isa`.
//
//   y = sum over groups g of  scale_w[g] * scale_x[g] * sum(w * x)  + minimum_w[g] *
//   scaled_sum_x[g]
//
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
  typename Isa::Floats scale;
  typename Isa::Floats minimum;
};

// kRun: products of which pairs still fit 16 bits when so many are added.
struct Q4_0 {
  static constexpr int64_t kBytes = 18;
  static constexpr bool kMinimum = false, kSigned = false;
  static constexpr int kOffsetBits = 3, kRun = 8;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, CodeGroup<Isa>& out) {
    out.scale = Isa::low_halves(Isa::first_words(at, stride));
    Isa::unpack_nibbles(at + 2, stride, out.codes);
  }
};

struct Q4_1 {
  static constexpr int64_t kBytes = 20;
  static constexpr bool kMinimum = true, kSigned = false;
  static constexpr int kOffsetBits = 0, kRun = 8;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, CodeGroup<Isa>& out) {
    const auto words = Isa::first_words(at, stride);
    out.scale = Isa::low_halves(words);
    out.minimum = Isa::high_halves(words);
    Isa::unpack_nibbles(at + 4, stride, out.codes);
  }
};

struct Q8_0 {
  static constexpr int64_t kBytes = 34;
  static constexpr bool kMinimum = false, kSigned = true;
  static constexpr int kOffsetBits = 7, kRun = 1;
  template <class Isa>
  static void unpack(const std::byte* at, int64_t stride, CodeGroup<Isa>& out) {
    out.scale = Isa::low_halves(Isa::first_words(at, stride));
    Isa::unpack_bytes(at + 2, stride, out.codes);
    Isa::unpack_bytes(at + 18, stride, out.codes + 4);
  }
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

// Adds group g of kM rows of x times kV vectors of rows to sums.
template <class Isa, class Format, int kM, int kV>
[[gnu::always_inline]] inline void add_group(const CodeGroup<Isa>* const (&w)[kV], const CodeRow* x,
                                             int64_t g, typename Isa::Floats (&sums)[kM][kV]) {
  typename Isa::Codes whole[kM][kV];
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
    const auto start = Isa::template start<Format>(x[m].terms[g].minus_sum);
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) whole[m][v] = start;
  }
#pragma GCC unroll 8
  for (int j = 0; j < kCodeVectors; j += Isa::template run<Format>()) {
    Isa::template add_run<Format, kM, kV>(w, j, x, g * kCodeGroup, whole);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
    const auto scale = Isa::set(x[m].terms[g].scale);
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) {
      const auto factor = Isa::multiply(w[v]->scale, scale);
      sums[m][v] = Isa::multiply_add(Isa::to_floats(whole[m][v]), factor, sums[m][v]);
      if constexpr (Format::kMinimum) {
        const auto sum = Isa::set(x[m].terms[g].scaled_sum);
        sums[m][v] = Isa::multiply_add(w[v]->minimum, sum, sums[m][v]);
      }
    }
  }
}

// Few rows of x: each group of weights is unpacked and used at once.
template <class Isa, class Format, int kM>
void multiply_few(const StoragePanelArgs& args, int64_t first_x) {
  const int64_t groups = args.cols / kCodeGroup;
  CodeRow x[kM];
  for (int m = 0; m < kM; ++m) x[m] = code_row<Isa>(args, first_x + m);
  for (int64_t row = 0; row < args.rows; row += Isa::kLanes) {
    const RowVector rows = row_vector<Isa>(args, groups * Format::kBytes, row);
    typename Isa::Floats sums[kM][1];
    for (int m = 0; m < kM; ++m) sums[m][0] = Isa::set(0);
    const std::byte* at = rows.at;
    for (int64_t g = 0; g < groups; ++g, at += Format::kBytes) {
      CodeGroup<Isa> group;
      Format::template unpack<Isa>(at, rows.stride, group);
      const CodeGroup<Isa>* const w[1] = {&group};
      add_group<Isa, Format, kM, 1>(w, x, g, sums);
    }
    for (int m = 0; m < kM; ++m) store_sums<Isa>(args, rows, first_x + m, sums[m][0]);
  }
}

}  // namespace transload::kernels::cpu
