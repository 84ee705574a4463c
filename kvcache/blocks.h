// KV blocks in memory: where they are at home, and where attention finds them.
//
// A block lies at home in the arena of its tier. What is not at home where attention runs is
// brought into a ring: the device's (attention on the device) and, for blocks of the disk, the
// host's. In a single memory tier blocks of the disk go straight into the device's ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "layout/kv_table.h"

namespace transload::kvcache {

struct BlockMemory {
  std::byte* device = nullptr;       // arena
  std::byte* device_ring = nullptr;  // null where attention runs on the host
  std::byte* host = nullptr;         // arena
  std::byte* host_ring = nullptr;    // null in a single tier
  int64_t block_bytes = 0;
};

struct BlockAt {
  layout::KvPlace place;
  float* device = nullptr;  // at home there, or in the device's ring
  float* host = nullptr;    // at home there, or in the host's ring
};

// Walks the blocks of a group: `places` are their homes in the order in which the rings hold those
// that are brought, from the given block of each ring on. Threads: one.
class BlockWalk {
 public:
  BlockWalk(const BlockMemory& memory, std::span<const layout::KvPlace> places,
            int64_t device_ring_block, int64_t host_ring_block)
      : memory_(memory),
        places_(places),
        device_ring_block_(device_ring_block),
        host_ring_block_(host_ring_block) {}

  // Requires: fewer calls than places before.
  BlockAt next();

 private:
  float* block(std::byte* base, int64_t index) const {
    return reinterpret_cast<float*>(base + index * memory_.block_bytes);
  }

  const BlockMemory& memory_;
  std::span<const layout::KvPlace> places_;
  size_t next_ = 0;
  int64_t device_ring_block_;
  int64_t host_ring_block_;
};

// Calls copy(to, from, floats) for each run of floats that brings K and V of `tokens` consecutive
// tokens into the slots from `slot` on.
//   kv [tokens, 2 * kv_heads * head_dim]: K of all heads, then V;  block: kernels::KvShape's layout
template <class Copy>
void copy_slots(const kernels::KvShape& shape, std::span<const float> kv, float* block,
                int64_t slot, Copy copy) {
  const int64_t d = shape.head_dim;
  const int64_t width = 2 * shape.kv_heads * d;
  const int64_t tokens = static_cast<int64_t>(kv.size()) / width;
  for (int64_t head = 0; head < shape.kv_heads; ++head)
    for (int64_t part = 0; part < 2; ++part) {
      const float* from = kv.data() + (part * shape.kv_heads + head) * d;
      float* to = block + ((2 * head + part) * layout::kKvBlockSlots + slot) * d;
      for (int64_t i = 0; i < tokens; ++i) copy(to + i * d, from + i * width, d);
    }
}

}  // namespace transload::kvcache
