#include "planner/placement_fill.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "layout/kv_table.h"

namespace transload::planner {
namespace {

using layout::Shares;
using layout::Tier;

struct Buffers {
  int64_t chunk_tokens;
  int64_t piece_bytes;
  int64_t kv_rings;        // in sequences
  int64_t prefill_tokens;  // at least the longest prompt
  int64_t visit_buffers;
  bool layer_ahead;  // the weight ring holds a layer more than it must: loads overlap with compute
};
constexpr std::array<Buffers, kThriftLevels> kBuffers = {{
    {128, kMiB, 4, 512, 2, true},
    {64, 512 * kKiB, 2, 0, 1, true},
    {32, 256 * kKiB, 1, 0, 1, false},
    {16, 64 * kKiB, 1, 0, 1, false},
    {16, 16 * kKiB, 1, 0, 1, false},
}};
constexpr int kHostActivations = 3;  // from this level on
constexpr int64_t kSteps = 256;      // shares of weights are multiples of 1 / kSteps

class Filler {
 public:
  Filler(const PlacementInput& input, const BatchShape& shape, int thrift)
      : input_(input), wishes_(input.wishes), buffers_(kBuffers[static_cast<size_t>(thrift)]) {
    start(shape, thrift);
  }

  std::variant<Plan, Shortage> fill();
  Plan least() {
    set_kv(0, plan_.single_tier ? 0 : kv_blocks_);
    plan_.budget_bytes = settle().bytes;
    return plan_;
  }

 private:
  void start(const BatchShape& shape, int thrift);
  void set_kv(int64_t device, int64_t host);
  void set_weights(int64_t device_steps, int64_t host_steps);
  Footprint settle();
  void fill_device(int64_t cap);
  void fill_host(int64_t cap);
  void widen_rings(const std::array<int64_t, layout::kTiers>& caps);

  int64_t bytes(Tier tier) { return settle().bytes[static_cast<size_t>(tier)]; }
  std::optional<int64_t> given(Tier tier) const {
    return wishes_.budget_bytes[static_cast<size_t>(tier)];
  }

  const PlacementInput& input_;
  const Wishes& wishes_;
  Buffers buffers_;
  Plan plan_;
  int64_t kv_blocks_ = 0;  // of all tiers
  int64_t device_steps_ = 0;
};

// Blocks for all row slots, each with the mean prompt and all its new tokens; at least one longest.
int64_t arena_blocks(const PlacementInput& input, const Plan& plan) {
  const Workload& work = input.workload;
  const int64_t longest = ceil_div(plan.max_tokens, layout::kKvBlockSlots);
  const int64_t mean =
      ceil_div(std::min(work.mean_prompt_tokens + work.max_new_tokens, plan.max_tokens),
               layout::kKvBlockSlots);
  const int64_t usual = (plan.row_slots() - 1) * std::min(mean + 1, longest) + longest;
  return usual * input.model.spec.layers;
}

void Filler::start(const BatchShape& shape, int thrift) {
  const Workload& work = input_.workload;
  plan_.model = input_.model.name;
  plan_.work = work.work;
  plan_.single_tier = !wants_two_tiers(wishes_);
  plan_.batch_size = shape.batch_size;
  plan_.num_batches = shape.num_batches;
  plan_.max_tokens = work.max_total_tokens;
  plan_.kv_bits = wishes_.kv_bits;
  const int64_t whole_batch = shape.batch_size * work.max_prompt_tokens;
  plan_.prefill_tokens = wishes_.prefill_tokens.value_or(
      std::max(work.max_prompt_tokens, std::min(buffers_.prefill_tokens, whole_batch)));
  plan_.chunk_tokens = std::min(buffers_.chunk_tokens, plan_.batch_rows());
  plan_.piece_bytes = buffers_.piece_bytes;
  plan_.visit_buffers = shape.num_batches > 1 ? buffers_.visit_buffers : 1;
  plan_.attention = wishes_.attention.value_or(AttentionSite::kDevice);
  plan_.threads = wishes_.threads;
  plan_.link_bytes_per_s = wishes_.link_bytes_per_s;
  plan_.disk_bytes_per_s = wishes_.disk_bytes_per_s;
  plan_.reserve_bytes = wishes_.reserve_bytes;
  const bool host = !plan_.single_tier && thrift >= kHostActivations;
  plan_.activations = wishes_.activations.value_or(host ? Shares{0, 1, 0} : Shares{1, 0, 0});
  plan_.weights = wishes_.weights.value_or(Shares{0, 0, 1});
  kv_blocks_ = plan_.keeps_kv() ? arena_blocks(input_, plan_) : 0;
}

// Blocks by tier: the shares that are fixed, else those given here and the rest on the disk.
void Filler::set_kv(int64_t device, int64_t host) {
  if (wishes_.kv) {
    const auto part = [&](double share) {
      return std::llround(share * static_cast<double>(kv_blocks_));
    };
    plan_.kv = *wishes_.kv;
    device = part(plan_.kv.device);
    host = plan_.kv.disk > 0 ? std::min<int64_t>(part(plan_.kv.host), kv_blocks_ - device)
                             : kv_blocks_ - device;
  } else if (kv_blocks_ > 0) {
    const auto share = [&](int64_t blocks) {
      return static_cast<double>(blocks) / static_cast<double>(kv_blocks_);
    };
    plan_.kv = {share(device), share(host), share(kv_blocks_ - device - host)};
  }
  plan_.kv_blocks = {device, host, kv_blocks_ - device - host};
}

void Filler::set_weights(int64_t device_steps, int64_t host_steps) {
  if (wishes_.weights) return;
  device_steps_ = device_steps;
  const auto share = [](int64_t steps) {
    return static_cast<double>(steps) / static_cast<double>(kSteps);
  };
  plan_.weights = {share(device_steps), share(host_steps),
                   share(kSteps - device_steps - host_steps)};
}

// Gives the plan the smallest rings that it works with at this level.
Footprint Filler::settle() {
  const int64_t sequence = ceil_div(plan_.max_tokens, layout::kKvBlockSlots);
  const int64_t ring = plan_.keeps_kv() ? sequence * buffers_.kv_rings : 0;
  const bool on_device = plan_.attention == AttentionSite::kDevice;
  const bool off_device = plan_.kv_blocks[1] + plan_.kv_blocks[2] > 0;
  plan_.kv_ring_device_blocks = off_device && on_device ? ring : 0;
  plan_.kv_ring_host_blocks = plan_.kv_blocks[2] > 0 && !plan_.single_tier ? ring : 0;
  const Footprint least = footprint(input_.model, plan_);
  plan_.weight_ring_bytes = round_up(
      smallest_weight_ring(plan_, least) +
          (buffers_.layer_ahead && plan_.visit_buffers == 1 ? least.largest_stage_bytes : 0),
      kPageBytes);
  if (least.slices.bytes[1] + least.slices.bytes[2] == 0) plan_.weight_ring_bytes = 0;
  plan_.staging_bytes = smallest_staging(plan_, least);
  return footprint(input_.model, plan_);
}

// The largest number in [least, most] that fits; `fits` holds up to some number and not beyond.
template <class Fits>
int64_t largest(int64_t least, int64_t most, const Fits& fits) {
  if (fits(most)) return most;
  while (most - least > 1) {
    const int64_t middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  fits(least);
  return least;
}

void Filler::fill_device(int64_t cap) {
  if (!wishes_.kv && plan_.attention == AttentionSite::kDevice) {
    largest(0, kv_blocks_, [&](int64_t blocks) {
      set_kv(blocks, plan_.single_tier ? 0 : kv_blocks_ - blocks);
      return bytes(Tier::kDevice) <= cap;
    });
  }
  if (wishes_.weights) return;
  largest(0, kSteps, [&](int64_t steps) {
    set_weights(steps, 0);
    return bytes(Tier::kDevice) <= cap;
  });
}

void Filler::fill_host(int64_t cap) {
  if (!wishes_.kv) {
    const int64_t device = plan_.kv_blocks[0];
    largest(0, kv_blocks_ - device, [&](int64_t blocks) {
      set_kv(device, blocks);
      return bytes(Tier::kHost) <= cap;
    });
  }
  if (wishes_.weights) return;
  const int64_t device = device_steps_;
  largest(0, kSteps - device, [&](int64_t steps) {
    set_weights(device, steps);
    return bytes(Tier::kHost) <= cap;
  });
}

// What is left goes to the buffers of the weight stream: all of it where the user gave the budget,
// else as much again as they have.
void Filler::widen_rings(const std::array<int64_t, layout::kTiers>& caps) {
  const Footprint needs = settle();
  int64_t streamed = 0;
  for (const layout::Stage& stage : needs.slices.stages)
    for (const layout::Piece& piece : stage.pieces)
      streamed += ring_bytes(piece, plan_.single_tier);
  const auto room = [&](Tier tier, int64_t now) {
    const auto t = static_cast<size_t>(tier);
    const int64_t left = round_down(std::max<int64_t>(caps[t] - needs.bytes[t], 0), kPageBytes);
    return given(tier) ? left : std::min(left, now);
  };
  if (streamed == 0) return;
  const int64_t ring = plan_.weight_ring_bytes;
  plan_.weight_ring_bytes =
      std::min(ring + room(Tier::kDevice, ring), std::max(ring, 2 * streamed));
  const int64_t staging = plan_.staging_bytes;
  const int64_t more = std::min(room(Tier::kHost, 3 * staging), 3 * staging);
  plan_.staging_bytes += round_down(more, kPageBytes);
}

std::variant<Plan, Shortage> Filler::fill() {
  set_kv(0, plan_.single_tier ? 0 : kv_blocks_);
  Footprint needs = settle();
  const int64_t memory = input_.free.memory - wishes_.reserve_bytes - needs.process_bytes;
  std::array<int64_t, layout::kTiers> caps{};
  // A host budget holds what it can of the KV cache; without one, all of it if memory allows.
  const int64_t least_host = given(Tier::kHost).value_or(std::min(needs.bytes[1], memory / 2));
  caps[0] = given(Tier::kDevice).value_or(memory - (plan_.single_tier ? 0 : least_host));
  caps[2] = std::min(given(Tier::kDisk).value_or(input_.free.disk), input_.free.disk);
  for (int64_t slack = 0;; ++slack) {
    fill_device(caps[0]);
    caps[1] =
        given(Tier::kHost).value_or(memory - given(Tier::kDevice).value_or(bytes(Tier::kDevice)));
    if (!plan_.single_tier) fill_host(caps[1]);
    needs = settle();
    // The cut between host and disk adds pieces, and so a few bytes to the ring.
    if (needs.bytes[0] <= caps[0] || slack == 2 || wishes_.weights || device_steps_ == 0) break;
    caps[0] -= needs.bytes[0] - caps[0];
  }
  caps[0] = given(Tier::kDevice).value_or(memory - (plan_.single_tier ? 0 : needs.bytes[1]));
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const auto t = static_cast<size_t>(tier);
    if (tier == Tier::kHost && plan_.single_tier) continue;
    if (needs.bytes[t] > caps[t])
      return Shortage{std::string(layout::name(tier)), needs.bytes[t],
                      std::max<int64_t>(caps[t], 0)};
  }
  if (needs.bytes[0] + needs.bytes[1] > memory)
    return Shortage{"memory", needs.bytes[0] + needs.bytes[1], std::max<int64_t>(memory, 0)};
  widen_rings(caps);
  needs = footprint(input_.model, plan_);
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk})
    plan_.budget_bytes[static_cast<size_t>(tier)] =
        given(tier).value_or(needs.bytes[static_cast<size_t>(tier)]);
  return plan_;
}

}  // namespace

std::variant<Plan, Shortage> fill(const PlacementInput& input, const BatchShape& shape,
                                  int thrift) {
  return Filler(input, shape, thrift).fill();
}

Plan fill_least(const PlacementInput& input, const BatchShape& shape) {
  const auto memory = [](const Plan& plan) { return plan.budget_bytes[0] + plan.budget_bytes[1]; };
  Plan least = Filler(input, shape, kThriftLevels - 1).least();
  for (int thrift = 0; thrift < kThriftLevels - 1; ++thrift) {
    Plan plan = Filler(input, shape, thrift).least();
    if (memory(plan) < memory(least)) least = std::move(plan);
  }
  return least;
}

}  // namespace transload::planner
