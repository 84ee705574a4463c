// Products of rows of x with weights as they are stored (Compute::kFast): rows of x are brought
// into a form once, then panels of weights are multiplied by integer or bfloat16 dot products.
// Every lane holds a row of W and sums over columns in their order, so a result depends on its two
// rows alone: not on their company, on slices, or on how many rows are multiplied at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/instructions.h"
#include "quant/format.h"

namespace transload::kernels::cpu {

inline constexpr int64_t kCodeGroup = 32;     // values of x with one scale
inline constexpr int64_t kStoragePanel = 32;  // rows of W in a panel

// Bytes from a row of x in either form to the next, never a multiple of 1024: rows that are read
// side by side would push each other out of the cache.
constexpr int64_t x_row_bytes(int64_t cols) {
  const int64_t bytes = 2 * ((cols + kCodeGroup - 1) / kCodeGroup * kCodeGroup);
  return bytes % 1024 == 0 ? bytes + 64 : bytes;
}
// Of a worker's scratch: a panel, and rows of W that stand in where a slice is shorter than a
// vector.
constexpr int64_t storage_scratch_bytes(int64_t cols) {
  return 2 * kStoragePanel * x_row_bytes(cols);
}

// What a group of x adds to products: x = scale * code.
struct GroupTerms {
  float scale = 0;
  float scaled_sum = 0;    // scale * sum of the codes
  int32_t minus_sum = 0;   // -sum of the codes
  int32_t minus_half = 0;  // the same of the first half
};

// y[i, r] = sum_c x[i, c] * W[first + r, c] (+ bias[r]), r < rows <= kStoragePanel
//   x [m] rows of x_row_bytes, as the prepare_row of the same ops writes them
//   y [m, rows] ld_y;  scratch [storage_scratch_bytes], at a multiple of 64
struct StoragePanelArgs {
  const std::byte* x = nullptr;
  int64_t m = 0;
  const std::byte* slice = nullptr;  // row 0 of the slice
  quant::Format format{};
  int64_t cols = 0;
  int64_t first = 0;
  int64_t rows = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ld_y = 0;
  std::byte* scratch = nullptr;
};

struct StorageOps {
  void (*prepare_row)(const float* x, int64_t cols, std::byte* out) = nullptr;
  void (*multiply_panel)(const StoragePanelArgs& args) = nullptr;
  Product product;
};

// Rows of x in int8 codes, a scale a group: [cols] codes, then GroupTerms a group. AVX2.
void code_row_avx2(const float* x, int64_t cols, std::byte* out);
// Q4_0, Q4_1, Q8_0 and K formats by integer dot products. All give the same bits.
void multiply_codes_avx2(const StoragePanelArgs& args);
void multiply_codes_avx_vnni(const StoragePanelArgs& args);
void multiply_codes_avx512_vnni(const StoragePanelArgs& args);
// F16 and BF16: both sides rounded to bfloat16, sums in float32.
void brain_row_avx512(const float* x, int64_t cols, std::byte* out);
void multiply_brain_avx512(const StoragePanelArgs& args);
// The same by matrix tiles; the process must have leave to use them (instructions.h). Products of
// codes have the bits of the others; those of bfloat16 are summed as TDPBF16PS does.
void multiply_codes_amx(const StoragePanelArgs& args);
void multiply_brain_amx(const StoragePanelArgs& args);

// What multiplies `format` with `set` on this processor; null members where nothing does.
StorageOps storage_ops(quant::Format format, InstructionSet set);

}  // namespace transload::kernels::cpu
