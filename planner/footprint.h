// What a plan needs on each tier, to the byte, and where it lies. The planner searches with it, the
// engine allocates by it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "layout/slices.h"
#include "planner/plan.h"

namespace transload::planner {

struct Place {
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t end() const { return offset + bytes; }
};

// Offsets in the device region. Those named "each" hold several equal parts behind one another.
struct DevicePlaces {
  Place vectors;   // norms and biases in float32
  Place resident;  // weight slices that stay
  Place weight_ring;
  Place kv;  // arena of KV blocks
  Place kv_ring;
  Place hidden;       // each batch: [device rows, hidden]
  Place hidden_work;  // two: [host rows, hidden]
  Place visit;       // each visit buffer: q [batch rows, q width], k and v [batch rows, 2 kv width]
  Place chunk;       // intermediate rows of one chunk
  Place head_input;  // [head rows, embed dim]
  Place logits;
  Place gather;  // two: embedding rows in storage format
};

struct HostPlaces {
  Place resident;
  Place staging;
  Place kv;
  Place kv_ring;
  Place hidden;  // each batch: [host rows, hidden]
  Place query;   // each visit buffer: [batch size, q width]; queries, then outputs
  Place gather;  // two
};

// A part of the resident weights as it is read at the start: whole pages of a file, either straight
// into its home (target) or through staging, from which copy_bytes from `skip` on go to the target.
struct ResidentLoad {
  int32_t file = 0;
  int64_t file_offset = 0;
  int64_t bytes = 0;
  layout::Tier home{};
  int64_t target = 0;  // offset in the home's resident place
  bool staged = false;
  int64_t skip = 0;
  int64_t copy_bytes = 0;
};

inline constexpr int64_t kGatherRows = 64;     // embedding rows fetched at once
inline constexpr int64_t kScoreTileRows = 64;  // logits held at once when scoring
inline constexpr int64_t kScoreTileCols = 4096;

// What measuring the machine takes, before the tiers are there.
inline constexpr int64_t kProbeBytes = 8 * kMiB;

struct Line {  // of the memory report
  std::string_view tier;
  std::string_view name;
  int64_t bytes = 0;
};

struct Footprint {
  layout::WeightSlices slices;
  std::vector<int64_t> vector_offsets;    // by weight, in `vectors`
  std::vector<int64_t> resident_offsets;  // by slices.resident, in the home's `resident`
  std::vector<ResidentLoad> loads;

  DevicePlaces device;
  HostPlaces host;
  std::array<int64_t, layout::kTiers> bytes{};  // of the whole tier
  int64_t process_bytes = 0;                    // everything that is on no tier
  int64_t pinned_bytes = -1;  // of the host tier, that the system page-locks; -1: not asked

  int64_t kv_block_bytes = 0;
  int64_t max_kv_blocks = 0;  // of a sequence in a layer
  int64_t device_rows = 0;    // of a batch's hidden rows; the rest are on the host
  int64_t host_rows = 0;
  int64_t head_rows = 0;           // most rows that the head computes in a sweep
  int64_t gather_device_slot = 0;  // bytes of one gathered embedding row; 0: none is gathered
  int64_t gather_host_slot = 0;
  int64_t largest_stage_bytes = 0;  // ring bytes of the largest stage of the weight stream

  std::vector<Line> lines() const;
};

// Bytes of the weight ring (single tier) or of staging that a piece takes: whole pages.
int64_t paged_bytes(const layout::Piece& piece);
// Bytes that a piece takes in the weight ring.
int64_t ring_bytes(const layout::Piece& piece, bool single_tier);

Footprint footprint(const layout::Model& model, const Plan& plan);

// The least weight ring and staging with which the slices of `needs` can be streamed.
int64_t smallest_weight_ring(const Plan& plan, const Footprint& needs);
int64_t smallest_staging(const Plan& plan, const Footprint& needs);

// Throws kDoesNotFit naming the tier, the bytes needed and there, and what would help; kUsage or
// kUnsupported for a plan that contradicts itself (shares that are no whole, host parts in a single
// tier, host attention with KV on the device, rings smaller than a stage or a sequence, prefill
// tokens below a prompt of max_tokens).
void check_fits(const layout::Model& model, const Plan& plan, const Footprint& needs);

}  // namespace transload::planner
