// The first placement rule: the largest benefit a byte. The planner proper has an issue of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/simulator.h"

namespace transload::planner {

// A job in a few numbers.
struct Workload {
  Work work = Work::kGenerate;
  int64_t requests = 1;
  int64_t max_prompt_tokens = 1;
  int64_t mean_prompt_tokens = 1;
  int64_t max_new_tokens = 1;    // 0 when scoring
  int64_t max_total_tokens = 2;  // longest prompt with its new tokens
};

// What the user has fixed; the rest is chosen.
struct Wishes {
  std::optional<layout::Shares> weights;
  std::optional<layout::Shares> kv;
  std::optional<layout::Shares> activations;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> num_batches;
  std::optional<int64_t> prefill_tokens;
  std::optional<AttentionSite> attention;
  std::array<std::optional<int64_t>, layout::kTiers> budget_bytes;
  int64_t kv_bits = 32;
  int64_t reserve_bytes = 0;  // of free memory, left alone
  int threads = 1;
  double link_bytes_per_s = 0;  // emulated
  double disk_bytes_per_s = 0;
};

struct FreeBytes {  // when the run starts
  int64_t memory = 0;
  int64_t disk = 0;
};

struct PlacementInput {
  const layout::Model& model;
  Workload workload;
  Wishes wishes;
  FreeBytes free;
  Machine machine;
};

struct Placement {
  Plan plan;
  Footprint needs;
  Prediction prediction;
};

// True where the wishes ask for a host tier: a device or host budget, a host share, or attention on
// the host. Without, there is one memory tier above the disk.
bool wants_two_tiers(const Wishes& wishes);

// The plan with the most predicted tokens/s among batch shapes, each filled by these rules: shares
// that are fixed stay exactly; the smallest rings first; what is left of the device goes to the KV
// cache, then to weights, then to the weight ring; the host likewise; the rest lies on the disk. A
// budget that is not given becomes what the plan needs, at most free memory less the reserve.
// Errors: kDoesNotFit naming the tier, bytes needed and there, and the nearest plan that fits, or
// the least that any plan needs, or a budget above the machine's free memory; those of check_fits;
// kUsage for a --prefill-tokens below the longest prompt.
Placement place(const PlacementInput& input);

// The plan with the smallest budgets for the shares and the batch shape wished for (batch 1 x 1
// where none is); budgets given are ignored. Shares left out are all on the disk (KV cache and
// activations: on the host where there is one). Its budgets are what it needs.
Plan smallest_plan(const PlacementInput& input);

// `count` requests as the workload has them: one of the longest, the others of mean length.
std::vector<RequestLength> typical_requests(const Workload& workload, int64_t count);

}  // namespace transload::planner
