#include "layout/kernel_scratch.h"

#include <algorithm>

#include "base/units.h"
#include "layout/kv_table.h"

namespace transload::layout {

int64_t kernel_scratch_bytes(int64_t threads, int64_t cols, int64_t head_dim) {
  constexpr int64_t kFloat = 4;
  constexpr int64_t kPrepared = 2;      // bytes of a number that is prepared for products
  constexpr int64_t kGap = 64;          // bytes between prepared rows
  constexpr int64_t kPanelRows = 64;    // of weights, prepared for a thread
  constexpr int64_t kRows = 256;        // of activations, prepared for all threads
  constexpr int64_t kVectors = 96 + 8;  // of queries: what they merged, and a tile's part
  constexpr int64_t kTile = 8;          // queries that have scores at once
  const int64_t row = round_up(cols, 32) * kPrepared + kGap;
  const int64_t panel = kPanelRows * row;
  const int64_t attention =
      ((2 * kKvBlockSlots + kVectors) * head_dim + kTile * kKvBlockSlots) * kFloat;
  return threads * round_up(std::max(panel, attention), kPageBytes) + kRows * row;
}

}  // namespace transload::layout
