// Products in bfloat16 with AVX-512-BF16: weights of F16 and BF16 and rows of x are rounded to
// bfloat16 and multiplied in pairs of columns, in their order, summed in float32. 16 rows of W a
// vector; columns beyond the last are zeros.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "hwy/base.h"
#include "kernels/cpu/storage_ops.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
// After the attributes: all that is instantiated there is compiled with them.
#include "kernels/cpu/brain_512_inl.h"

namespace transload::kernels::cpu {
namespace {

// Rows of x whose sums stay in registers while W is brought, with two vectors of W and with one.
using FewRows = std::make_index_sequence<8>;
using FewRowsOfOne = std::make_index_sequence<16>;
constexpr int kTile = 8;  // rows of x that share a pass over two vectors of W
constexpr int64_t kLanes = 16;

struct Brain512 : BrainVectors512<Brain512> {};

[[gnu::always_inline]] inline __m512 dot(__m512 sum, __m512i w, __m512i x) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
}

[[gnu::always_inline]] inline __m512i broadcast(const std::byte* two) {
  int32_t word = 0;
  std::memcpy(&word, two, sizeof word);
  return _mm512_set1_epi32(word);
}

int64_t pairs(int64_t cols) { return (cols + kStep - 1) / kStep * (kStep / 2); }

// A pair of columns of kM rows of x times kV vectors of rows of W.
template <int kM, int kV>
[[gnu::always_inline]] inline void add_pairs(const std::byte* x, int64_t row_bytes,
                                             const __m512i (&w)[kV], __m512 (&sums)[kM][kV]) {
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
    const __m512i of = broadcast(x + m * row_bytes);
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) sums[m][v] = dot(sums[m][v], w[v], of);
  }
}

template <int kM, int kV>
void store_tile(const StoragePanelArgs& args, const RowVector* rows, int64_t first_x,
                const __m512 (&sums)[kM][kV]) {
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) store_sums<Brain512>(args, rows[v], first_x + m, sums[m][v]);
  }
}

// kM rows of x times kV vectors of rows of W in pairs of columns.
template <int kM, int kV>
void multiply_tile(const StoragePanelArgs& args, const RowVector* rows, int64_t first_x) {
  const auto* const w = reinterpret_cast<const __m512i*>(args.scratch);
  const int64_t count = pairs(args.cols);
  const int64_t row_bytes = x_row_bytes(args.cols);
  const std::byte* x = args.x + first_x * row_bytes;
  __m512 sums[kM][kV];
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) sums[m][v] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < count; ++p) {
    __m512i pair[kV];
    for (int v = 0; v < kV; ++v) pair[v] = w[v * count + p];
    add_pairs<kM, kV>(x + 4 * p, row_bytes, pair, sums);
  }
  store_tile<kM, kV>(args, rows, first_x, sums);
}

// Few rows of x: columns are used as they are brought. Two vectors keep the adders busy.
template <quant::Format kFormat, int kM, int kV>
void multiply_few(const StoragePanelArgs& args, const RowVector* rows) {
  const int64_t row_bytes = x_row_bytes(args.cols);
  __m512 sums[kM][kV];
  for (int m = 0; m < kM; ++m) {
    for (int v = 0; v < kV; ++v) sums[m][v] = _mm512_setzero_ps();
  }
  __m512i w[kV][kWide / 2];
  alignas(64) std::byte copies[kV][kSpanBytes];
  const auto add = [&](int64_t column, int64_t columns) {
    for (int64_t first = 0; first < columns / 2; first += kStep / 2) {
#pragma GCC unroll 4
      for (int64_t p = 0; p < kStep / 2; ++p) {
        __m512i pair[kV];
        for (int v = 0; v < kV; ++v) pair[v] = w[v][first + p];
        add_pairs<kM, kV>(args.x + 2 * column + 4 * (first + p), row_bytes, pair, sums);
      }
    }
  };
  int64_t c = 0;
  while (c + kWide <= args.cols) {
    const int64_t columns = span_columns(args.cols - c);
    RowVector near[kV];
    for (int v = 0; v < kV; ++v) near[v] = Brain512::span(rows[v], c, columns, copies[v]);
    for (int64_t i = 0; i < columns; i += kWide) {
      for (int v = 0; v < kV; ++v) {
        prefetch_next<Brain512>(rows[v], (c + i) / kWide, args.cols / kWide, kV);
        Brain512::unpack32<kFormat>(near[v], i, w[v]);
      }
      add(c + i, kWide);
    }
    c += columns;
  }
  for (; c + kStep <= args.cols; c += kStep) {
    for (int v = 0; v < kV; ++v) Brain512::unpack8<kFormat, false>(rows[v], c, kStep, w[v]);
    add(c, kStep);
  }
  if (c < args.cols) {
    for (int v = 0; v < kV; ++v) Brain512::unpack8<kFormat, true>(rows[v], c, args.cols - c, w[v]);
    add(c, kStep);
  }
  store_tile<kM, kV>(args, rows, 0, sums);
}

// Many rows of x: from a panel that is unpacked once.
template <quant::Format kFormat, int kV>
void multiply_many(const StoragePanelArgs& args, const RowVector* rows) {
  auto* const panel = reinterpret_cast<__m512i*>(args.scratch);
  for (int v = 0; v < kV; ++v)
    Brain512::unpack<kFormat>(rows[v], args.cols, panel + v * pairs(args.cols));
  int64_t i = 0;
  for (; i + kTile <= args.m; i += kTile) multiply_tile<kTile, kV>(args, rows, i);
  for (; i + 4 <= args.m; i += 4) multiply_tile<4, kV>(args, rows, i);
  for (; i + 2 <= args.m; i += 2) multiply_tile<2, kV>(args, rows, i);
  if (i < args.m) multiply_tile<1, kV>(args, rows, i);
}

template <quant::Format kFormat, int kV, size_t... kM>
void multiply_rows(const StoragePanelArgs& args, const RowVector* rows,
                   std::index_sequence<kM...>) {
  constexpr void (*kFew[])(const StoragePanelArgs&, const RowVector*) = {
      multiply_few<kFormat, static_cast<int>(kM) + 1, kV>...};
  if (args.m > static_cast<int64_t>(sizeof...(kM))) return multiply_many<kFormat, kV>(args, rows);
  kFew[args.m - 1](args, rows);
}

template <quant::Format kFormat>
void multiply_format(const StoragePanelArgs& args) {
  const int64_t row_bytes = 2 * args.cols;
  const bool one_by_one = args.m > static_cast<int64_t>(FewRows::size()) &&
                          args.m <= static_cast<int64_t>(FewRowsOfOne::size());
  for (int64_t row = 0; row < args.rows;) {
    RowVector rows[2];
    rows[0] = row_vector<Brain512>(args, row_bytes, row);
    row += kLanes;
    if (one_by_one || row >= args.rows) {
      multiply_rows<kFormat, 1>(args, rows, FewRowsOfOne());
      continue;
    }
    rows[1] = row_vector<Brain512>(args, row_bytes, row);
    row += kLanes;
    multiply_rows<kFormat, 2>(args, rows, FewRows());
  }
}

void store16(__m512 x, std::byte* out) {
  const __m256bh rounded = _mm512_cvtneps_pbh(x);
  std::memcpy(out, &rounded, sizeof rounded);
}

}  // namespace

void brain_row_avx512(const float* x, int64_t cols, std::byte* out) {
  const int64_t bytes = x_row_bytes(cols);
  int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) store16(_mm512_loadu_ps(x + c), out + 2 * c);
  for (; 2 * c < bytes; c += kLanes) {
    const int64_t live = cols > c ? cols - c : 0;
    const auto mask = static_cast<__mmask16>((1U << live) - 1);
    store16(_mm512_maskz_loadu_ps(mask, x + c), out + 2 * c);
  }
}

void multiply_brain_avx512(const StoragePanelArgs& args) {
  if (args.format == quant::Format::kF16) return multiply_format<quant::Format::kF16>(args);
  multiply_format<quant::Format::kBF16>(args);
}

}  // namespace transload::kernels::cpu
HWY_POP_ATTRIBUTES
