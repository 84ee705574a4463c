// Which KV block of which tier holds which slots of a sequence.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "layout/tier.h"

namespace transload::layout {

inline constexpr int64_t kKvBlockSlots = 64;

// Width of a number in the KV cache, in bits: 32 (float32) or 16 (float16).
constexpr bool is_kv_bits(int64_t bits) { return bits == 32 || bits == 16; }
std::string_view kv_format_name(int64_t bits);  // "float32", "float16"

// Bytes of `values` numbers of K or V at a width. Requires: is_kv_bits(bits).
constexpr int64_t kv_bytes(int64_t values, int64_t bits) { return values * bits / 8; }

// Bytes of one KV block: K and V of kKvBlockSlots tokens of one (sequence, layer), laid out as
// kernels::KvShape says; a whole number of pages, so that it can go to the disk.
int64_t kv_block_bytes(int64_t kv_heads, int64_t head_dim, int64_t bits);

struct KvPlace {
  Tier tier = Tier::kDevice;
  int32_t block = -1;  // index into the tier's arena
};

// Tables of KV blocks of all sequences, and the free blocks of the three arenas. A sequence
// reserves all the blocks that it can need when it is admitted, so a run never runs out.
// Invariant: every block is free or belongs to one (row slot, layer). Allocates nothing after
// construction. Threads: one.
class KvTable {
 public:
  // `arena_blocks`: capacity of each tier.
  KvTable(int64_t row_slots, int64_t layers, int64_t max_blocks,
          const std::array<int64_t, kTiers>& arena_blocks);

  // Reserves ceil(tokens / kKvBlockSlots) blocks in every layer for a free row slot. Blocks are
  // taken from the arena with the largest free part, so each tier's part follows its capacity.
  // False, with nothing reserved, where too few are free.
  bool reserve(int64_t row_slot, int64_t tokens);
  void release(int64_t row_slot);

  KvPlace at(int64_t row_slot, int64_t layer, int64_t block) const {
    return places_[static_cast<size_t>((row_slot * layers_ + layer) * max_blocks_ + block)];
  }
  int64_t reserved_blocks(int64_t row_slot) const {  // in each layer
    return reserved_[static_cast<size_t>(row_slot)];
  }
  int64_t free_blocks() const;

 private:
  KvPlace take();

  int64_t layers_;
  int64_t max_blocks_;
  std::vector<KvPlace> places_;
  std::vector<int64_t> reserved_;
  std::array<int64_t, kTiers> capacity_;
  std::array<std::vector<int32_t>, kTiers> free_;
};

}  // namespace transload::layout
