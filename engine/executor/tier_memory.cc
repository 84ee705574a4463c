#include "engine/executor/tier_memory.h"

#include <algorithm>

namespace transload::engine {

TierMemory::TierMemory(const layout::Model& model, const planner::Plan& plan,
                       const planner::Footprint& needs, const TierOptions& options)
    : device_("device", needs.bytes[0], 0) {
  if (needs.bytes[1] > 0) {
    // What moves to the device comes first in the host region: staging and rings.
    const int64_t wanted =
        options.pinned_bytes < 0 ? needs.bytes[1] : std::min(options.pinned_bytes, needs.bytes[1]);
    host_ = offload::Region("host", needs.bytes[1], wanted);
  }
  for (const std::string& path : model.files)
    files_.push_back(offload::File::open_read(path, true));
  if (plan.kv_blocks[2] > 0) {
    spill_ = offload::File::create_spill(options.disk_directory, needs.bytes[2]);
    checksums_ = std::make_unique<offload::BlockChecksums>(spill_.name(), plan.kv_blocks[2],
                                                           needs.kv_block_bytes);
  }
}

}  // namespace transload::engine
