#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "planner/footprint.h"

namespace transload::planner {
namespace {

using layout::Shares;
using layout::Tier;

void check_shares(const Shares& shares, const std::string& what) {
  const bool whole = std::abs(shares.device + shares.host + shares.disk - 1) < 1e-6;
  if (!whole || shares.device < 0 || shares.host < 0 || shares.disk < 0)
    throw Error(Kind::kUsage, what + ": shares must be at least 0 and sum to 100 percent");
}

void check_consistent(const Plan& plan) {
  check_shares(plan.weights, "--weights");
  check_shares(plan.kv, "--kv");
  check_shares(plan.activations, "--activations");
  if (plan.activations.disk > 0)
    throw Error(Kind::kUnsupported,
                "--activations: activations lie on device or host, not on disk");
  if (plan.single_tier && (plan.weights.host > 0 || plan.kv.host > 0 || plan.activations.host > 0))
    throw Error(Kind::kInternal, "host share in a plan with a single memory tier");
  if (plan.attention == AttentionSite::kHost && (plan.single_tier || plan.kv.device > 0))
    throw Error(Kind::kUnsupported,
                "attention on the host needs all of the KV cache off the device: --kv 0/x/y");
  if (plan.batch_size < 1 || plan.num_batches < 1 || plan.chunk_tokens < 1 || plan.threads < 1)
    throw Error(Kind::kUsage,
                "batch size, number of batches, chunk and threads must be at least 1");
}

void check_rings(const Plan& plan, const Footprint& needs) {
  const int64_t ring = smallest_weight_ring(plan, needs);
  if (plan.weight_ring_bytes < ring)
    throw Error(Kind::kDoesNotFit,
                "device: the weight ring holds " + format_bytes(plan.weight_ring_bytes) +
                    ", but the layers in use at once need " + format_bytes(ring));
  const int64_t staging = smallest_staging(plan, needs);
  if (plan.staging_bytes < staging)
    throw Error(Kind::kDoesNotFit, "host: staging holds " + format_bytes(plan.staging_bytes) +
                                       ", its largest piece needs " + format_bytes(staging));
  if (!plan.keeps_kv()) return;
  const bool off_device = plan.kv_blocks[1] + plan.kv_blocks[2] > 0;
  const int64_t blocks = needs.max_kv_blocks;
  const bool device_ring = off_device && plan.attention == AttentionSite::kDevice;
  const bool host_ring = !plan.single_tier && plan.kv_blocks[2] > 0;
  if ((device_ring && plan.kv_ring_device_blocks < blocks) ||
      (host_ring && plan.kv_ring_host_blocks < blocks))
    throw Error(Kind::kDoesNotFit, "a KV ring is smaller than one sequence's layer (" +
                                       std::to_string(blocks) + " KV blocks)");
}

void check_budget(const Plan& plan, const Footprint& needs, Tier tier) {
  const auto t = static_cast<size_t>(tier);
  const int64_t budget = plan.budget_bytes[t];
  if (needs.bytes[t] <= budget) return;
  static constexpr std::array<const char*, layout::kTiers> kFlags = {
      "--device-memory", "--host-memory", "--disk-memory"};
  throw Error(Kind::kDoesNotFit,
              std::string(layout::name(tier)) + ": the plan needs " + format_bytes(needs.bytes[t]) +
                  " (" + std::to_string(needs.bytes[t]) + " bytes), the budget is " +
                  format_bytes(budget) + "; give " + kFlags[t] + " at least " +
                  std::to_string(needs.bytes[t]) +
                  ", a smaller --batch-size or --prefill-tokens, or a smaller share of this tier");
}

}  // namespace

int64_t smallest_weight_ring(const Plan& plan, const Footprint& needs) {
  int64_t piece = 0;
  for (const layout::Stage& stage : needs.slices.stages)
    for (const layout::Piece& p : stage.pieces)
      piece = std::max(piece, ring_bytes(p, plan.single_tier));
  // Two stages are open at once where the next batch's projections run ahead; a piece never lies
  // across the ring's end, which wastes less than one piece.
  return plan.visit_buffers * needs.largest_stage_bytes + piece;
}

int64_t smallest_staging(const Plan& plan, const Footprint& needs) {
  int64_t staging = 0;
  if (plan.single_tier) return 0;
  for (const layout::Stage& stage : needs.slices.stages)
    for (const layout::Piece& p : stage.pieces)
      if (p.home == Tier::kDisk) staging = std::max(staging, paged_bytes(p));
  for (const ResidentLoad& load : needs.loads)
    if (load.staged) staging = std::max(staging, load.bytes);
  return staging;
}

void check_fits(const layout::Model& model, const Plan& plan, const Footprint& needs) {
  check_consistent(plan);
  check_rings(plan, needs);
  if (plan.keeps_kv()) {
    const int64_t blocks = plan.kv_blocks[0] + plan.kv_blocks[1] + plan.kv_blocks[2];
    if (blocks < needs.max_kv_blocks * model.spec.layers)
      throw Error(Kind::kDoesNotFit, "the KV cache holds fewer blocks (" + std::to_string(blocks) +
                                         ") than one sequence of " +
                                         std::to_string(plan.max_tokens) + " tokens needs (" +
                                         std::to_string(needs.max_kv_blocks * model.spec.layers) +
                                         ")");
  }
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) check_budget(plan, needs, tier);
}

}  // namespace transload::planner
