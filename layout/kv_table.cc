#include "layout/kv_table.h"

#include "base/check.h"
#include "base/units.h"

namespace transload::layout {

std::string_view kv_format_name(int64_t bits) { return bits == 16 ? "float16" : "float32"; }

int64_t kv_block_bytes(int64_t kv_heads, int64_t head_dim, int64_t bits) {
  check(is_kv_bits(bits), "the KV cache has 32 or 16 bits a number");
  return round_up(2 * kv_heads * kKvBlockSlots * kv_bytes(head_dim, bits), kPageBytes);
}

KvTable::KvTable(int64_t row_slots, int64_t layers, int64_t max_blocks,
                 const std::array<int64_t, kTiers>& arena_blocks)
    : layers_(layers),
      max_blocks_(max_blocks),
      places_(static_cast<size_t>(row_slots * layers * max_blocks)),
      reserved_(static_cast<size_t>(row_slots)),
      capacity_(arena_blocks) {
  for (size_t t = 0; t < kTiers; ++t) {
    free_[t].reserve(static_cast<size_t>(capacity_[t]));
    for (int64_t i = capacity_[t]; i-- > 0;) free_[t].push_back(static_cast<int32_t>(i));
  }
}

int64_t KvTable::free_blocks() const {
  return static_cast<int64_t>(free_[0].size() + free_[1].size() + free_[2].size());
}

KvPlace KvTable::take() {
  size_t best = 0;
  double best_part = -1;
  for (size_t t = 0; t < kTiers; ++t) {
    if (free_[t].empty()) continue;
    const double part = static_cast<double>(free_[t].size()) / static_cast<double>(capacity_[t]);
    if (part > best_part) {
      best = t;
      best_part = part;
    }
  }
  const KvPlace place{static_cast<Tier>(best), free_[best].back()};
  free_[best].pop_back();
  return place;
}

bool KvTable::reserve(int64_t row_slot, int64_t tokens) {
  int64_t& reserved = reserved_[static_cast<size_t>(row_slot)];
  check(reserved == 0, "row slot has KV blocks already");
  const int64_t blocks = ceil_div(tokens, kKvBlockSlots);
  check(blocks <= max_blocks_, "sequence longer than its KV table");
  if (blocks * layers_ > free_blocks()) return false;
  for (int64_t layer = 0; layer < layers_; ++layer)
    for (int64_t block = 0; block < blocks; ++block)
      places_[static_cast<size_t>((row_slot * layers_ + layer) * max_blocks_ + block)] = take();
  reserved = blocks;
  return true;
}

void KvTable::release(int64_t row_slot) {
  int64_t& reserved = reserved_[static_cast<size_t>(row_slot)];
  for (int64_t layer = 0; layer < layers_; ++layer)
    for (int64_t block = 0; block < reserved; ++block) {
      const KvPlace place = at(row_slot, layer, block);
      free_[static_cast<size_t>(place.tier)].push_back(place.block);
    }
  reserved = 0;
}

}  // namespace transload::layout
