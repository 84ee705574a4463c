#include "kvcache/blocks.h"

namespace transload::kvcache {

using layout::Tier;

BlockAt BlockWalk::next() {
  BlockAt at;
  at.place = places_[next_++];
  if (at.place.tier == Tier::kDevice) {
    at.device = block(memory_.device, at.place.block);
    return at;
  }
  if (memory_.device_ring != nullptr) at.device = block(memory_.device_ring, device_ring_block_++);
  if (at.place.tier == Tier::kHost) {
    at.host = block(memory_.host, at.place.block);
  } else if (memory_.host_ring != nullptr) {
    at.host = block(memory_.host_ring, host_ring_block_++);
  }
  return at;
}

}  // namespace transload::kvcache
