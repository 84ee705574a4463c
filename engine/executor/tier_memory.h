// The memory of a plan: one region a tier, the spill file, and pointers into them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layout/weights.h"
#include "offload/checksums.h"
#include "offload/disk.h"
#include "offload/region.h"
#include "planner/footprint.h"

namespace transload::engine {

struct TierOptions {
  std::string disk_directory;  // of the spill file; used where the plan puts KV on the disk
  int64_t pinned_bytes = -1;   // most host memory to page-lock; -1: as much as the system permits
};

// Takes all that the plan needs at once: nothing is allocated on a tier later.
class TierMemory {
 public:
  // Errors: kDoesNotFit where the system has not the memory; kIo for the spill file and for model
  // files that cannot be opened.
  TierMemory(const layout::Model& model, const planner::Plan& plan, const planner::Footprint& needs,
             const TierOptions& options);

  std::byte* device(const planner::Place& place) const { return device_.data() + place.offset; }
  std::byte* host(const planner::Place& place) const { return host_.data() + place.offset; }
  float* device_floats(const planner::Place& place) const {
    return reinterpret_cast<float*>(device(place));
  }
  float* host_floats(const planner::Place& place) const {
    return reinterpret_cast<float*>(host(place));
  }
  const offload::Region& device_region() const { return device_; }
  const offload::Region& host_region() const { return host_; }

  const std::vector<offload::File>& model_files() const { return files_; }
  const offload::File* spill() const { return spill_.descriptor() >= 0 ? &spill_ : nullptr; }
  offload::BlockChecksums& checksums() { return *checksums_; }

 private:
  offload::Region device_;
  offload::Region host_;
  std::vector<offload::File> files_;
  offload::File spill_;
  std::unique_ptr<offload::BlockChecksums> checksums_;
};

}  // namespace transload::engine
