// A panel of weights in codes times any number of rows of x: few rows from storage as they pass,
// many from a panel that is unpacked once. See code_dot_inl.h for the arithmetic, the same in both.
#pragma once

#include "kernels/cpu/code_formats_inl.h"

namespace transload::kernels::cpu {

inline constexpr int64_t kFewRows = 4;

// kM rows of x times kV unpacked vectors of rows.
template <class Isa, class Format, int kM, int kV>
void multiply_tile(const StoragePanelArgs& args, const RowVector* rows, const CodeGroup<Isa>* panel,
                   int64_t first_x) {
  const int64_t groups = args.cols / kCodeGroup;
  CodeRow x[kM];
  for (int m = 0; m < kM; ++m) x[m] = code_row<Isa>(args, first_x + m);
  typename Isa::Floats sums[kM][kV];
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) sums[m][v] = Isa::set(0);
  }
  for (int64_t g = 0; g < groups; ++g) {
    const CodeGroup<Isa>* w[kV];
    for (int v = 0; v < kV; ++v) w[v] = panel + v * groups + g;
    add_group<Isa, Format, kM, kV>(w, x, g, sums);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) store_sums<Isa>(args, rows[v], first_x + m, sums[m][v]);
  }
}

template <class Isa, class Format, int kV>
void multiply_rows(const StoragePanelArgs& args, const RowVector* rows,
                   const CodeGroup<Isa>* panel) {
  int64_t i = 0;
  for (; i + Isa::kTileRows <= args.m; i += Isa::kTileRows) {
    multiply_tile<Isa, Format, Isa::kTileRows, kV>(args, rows, panel, i);
  }
  for (; i + 2 <= args.m; i += 2) multiply_tile<Isa, Format, 2, kV>(args, rows, panel, i);
  if (i < args.m) multiply_tile<Isa, Format, 1, kV>(args, rows, panel, i);
}

// Two vectors of rows at a time: a broadcast of x then serves both.
template <class Isa, class Format>
void multiply_many(const StoragePanelArgs& args) {
  const int64_t groups = args.cols / kCodeGroup;
  auto* panel = reinterpret_cast<CodeGroup<Isa>*>(args.scratch);
  for (int64_t row = 0; row < args.rows; row += 2 * Isa::kLanes) {
    const int64_t vectors = args.rows - row <= Isa::kLanes ? 1 : 2;
    RowVector rows[2];
    for (int64_t v = 0; v < vectors; ++v) {
      rows[v] = row_vector<Isa>(args, format_row_bytes<Format>(args.cols), row + v * Isa::kLanes);
      for (int64_t g = 0; g < groups; ++g) {
        prefetch_next<Isa>(rows[v], g, groups);
        Format::template unpack<Isa>(rows[v].at, rows[v].stride, g, panel[v * groups + g]);
      }
    }
    if (vectors == 1) {
      multiply_rows<Isa, Format, 1>(args, rows, panel);
    } else {
      multiply_rows<Isa, Format, 2>(args, rows, panel);
    }
  }
}

template <class Isa, class Format>
void multiply_format(const StoragePanelArgs& args) {
  switch (args.m) {
    case 1:
      return multiply_few<Isa, Format, 1>(args, 0);
    case 2:
      return multiply_few<Isa, Format, 2>(args, 0);
    case 3:
      return multiply_few<Isa, Format, 3>(args, 0);
    case kFewRows:
      return multiply_few<Isa, Format, kFewRows>(args, 0);
    default:
      return multiply_many<Isa, Format>(args);
  }
}

// use(Format()) for the format of that name.
template <class Use>
void with_code_format(quant::Format format, const Use& use) {
  switch (format) {
    case quant::Format::kQ4_0:
      return use(Q4_0());
    case quant::Format::kQ4_1:
      return use(Q4_1());
    case quant::Format::kQ4_K:
      return use(Q45_K<false>());
    case quant::Format::kQ5_K:
      return use(Q45_K<true>());
    case quant::Format::kQ6_K:
      return use(Q6_K());
    default:
      return use(Q8_0());
  }
}

template <class Isa>
void multiply_codes(const StoragePanelArgs& args) {
  with_code_format(args.format, [&](auto of) { multiply_format<Isa, decltype(of)>(args); });
}

}  // namespace transload::kernels::cpu
