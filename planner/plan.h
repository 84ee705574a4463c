// A plan: what lies where, how a block is cut, which buffers exist. Pure data.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "layout/tier.h"

namespace transload::planner {

enum class AttentionSite { kDevice, kHost };  // where decode attention over off-device KV runs
enum class Work { kGenerate, kScore };

struct Plan {
  std::string model;
  Work work = Work::kGenerate;
  // One memory tier above the disk: no host tier and no memory-to-memory copies.
  bool single_tier = true;

  layout::Shares weights;
  layout::Shares kv;
  layout::Shares activations;  // disk is always 0

  int64_t batch_size = 1;      // sequences computed at once
  int64_t num_batches = 1;     // batches of a block, which share a sweep over the weights
  int64_t prefill_tokens = 0;  // prompt tokens that a batch may admit in one sweep
  int64_t chunk_tokens = 0;    // rows computed at once inside a layer visit
  int64_t max_tokens = 0;      // of a sequence: prompt and new tokens
  int64_t kv_bits = 32;        // of a number in the KV cache: see layout::is_kv_bits
  int64_t visit_buffers = 1;   // 2: a batch's attention overlaps the next batch's projections
  AttentionSite attention = AttentionSite::kDevice;

  int64_t piece_bytes = 0;                          // largest piece of streamed weights
  int64_t weight_ring_bytes = 0;                    // device buffer of streamed weights
  int64_t staging_bytes = 0;                        // host buffer between disk and device
  std::array<int64_t, layout::kTiers> kv_blocks{};  // arena of each tier
  int64_t kv_ring_device_blocks = 0;                // KV blocks brought to the device for attention
  int64_t kv_ring_host_blocks = 0;                  // KV blocks between disk and host

  int threads = 1;
  double link_bytes_per_s = 0;  // emulated; 0: as fast as it goes
  double disk_bytes_per_s = 0;

  // Budgets: what the tiers may hold, and what the process may take besides.
  std::array<int64_t, layout::kTiers> budget_bytes{};
  int64_t reserve_bytes = 0;

  int64_t row_slots() const { return batch_size * num_batches; }
  int64_t batch_rows() const { return batch_size + prefill_tokens; }
  bool keeps_kv() const { return work == Work::kGenerate; }
};

nlohmann::json to_json(const Plan& plan);
// Errors: kBadInput naming the missing or malformed field, and any field it does not know.
Plan plan_from_json(const nlohmann::json& json);

}  // namespace transload::planner
