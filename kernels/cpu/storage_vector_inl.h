// Which rows of W a vector holds, for the sources that multiply from storage. `Isa` says what a
// vector is; each source has its own, compiled for its instructions, so nothing here is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/storage_ops.h"

namespace transload::kernels::cpu {

// kLanes rows from `at`, `stride` bytes apart; results of the first `skip` belong to another
// vector. `row` counts from the panel's first.
struct RowVector {
  const std::byte* at = nullptr;
  int64_t stride = 0;
  int64_t row = 0;
  int64_t skip = 0;
};

// The rows [first_row, first_row + live) of the panel. Where fewer than a vector follow, it ends
// with them and starts earlier; a slice shorter than a vector is copied, its last row repeated.
template <class Isa>
RowVector row_vector(const StoragePanelArgs& args, int64_t row_bytes, int64_t first_row) {
  const int64_t left = args.rows - first_row;
  const int64_t skip = left < Isa::kLanes ? Isa::kLanes - left : 0;
  const int64_t first = args.first + first_row - skip;
  RowVector of{args.slice + first * row_bytes, row_bytes, first_row - skip, skip};
  if (first >= 0) return of;
  std::byte* copy = args.scratch + kStoragePanel * x_row_bytes(args.cols);
  of.at = copy;
  for (int64_t lane = 0; lane < Isa::kLanes; ++lane) {
    const int64_t row = first + lane < 0 ? 0 : first + lane;
    std::memcpy(copy + lane * row_bytes, args.slice + row * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  return of;
}

// Asks for part `step` of `steps` of the rows of the next vector, or one further `ahead`: rows are
// too short for the processor to foresee them. They may lie beyond the slice, which is harmless.
template <class Isa>
[[gnu::always_inline]] inline void prefetch_next(const RowVector& rows, int64_t step, int64_t steps,
                                                 int64_t ahead = 1) {
  const int64_t bytes = Isa::kLanes * rows.stride;
  const std::byte* at = rows.at + ahead * bytes + bytes / steps * step;
  for (int64_t i = 0; i < bytes / steps; i += 64) __builtin_prefetch(at + i);
}

// Writes the sums of x row `i`.
template <class Isa>
void store_sums(const StoragePanelArgs& args, const RowVector& rows, int64_t i,
                typename Isa::Floats sums) {
  if (args.bias != nullptr) {
    sums = Isa::add(sums, Isa::load_from(args.bias + rows.row, rows.skip));
  }
  Isa::store_from(args.y + i * args.ld_y + rows.row, rows.skip, sums);
}

}  // namespace transload::kernels::cpu
