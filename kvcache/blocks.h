// KV blocks in memory: where they are at home, and where attention finds them.
//
// A block lies at home in the arena of its tier. What is not at home where attention runs is
// brought into a ring: the device's (attention on the device) and, for blocks of the disk, the
// host's. In a single memory tier blocks of the disk go straight into the device's ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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
  std::byte* device = nullptr;  // at home there, or in the device's ring
  std::byte* host = nullptr;    // at home there, or in the host's ring
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
  std::byte* block(std::byte* base, int64_t index) const {
    return base + index * memory_.block_bytes;
  }

  const BlockMemory& memory_;
  std::span<const layout::KvPlace> places_;
  size_t next_ = 0;
  int64_t device_ring_block_;
  int64_t host_ring_block_;
};

}  // namespace transload::kvcache
