#include "planner/placement.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "planner/placement_fill.h"

namespace transload::planner {
namespace {

using layout::Tier;

constexpr std::array<int64_t, 7> kBatchSizes = {1, 2, 4, 8, 16, 32, 64};
constexpr std::array<int64_t, 3> kNumBatches = {1, 2, 4};

std::variant<Plan, Shortage> fill_shape(const PlacementInput& input, const BatchShape& shape) {
  std::variant<Plan, Shortage> made;
  for (int thrift = 0; thrift < kThriftLevels; ++thrift) {
    made = fill(input, shape, thrift);
    if (std::holds_alternative<Plan>(made)) break;
  }
  return made;
}

Placement predict(const PlacementInput& input, Plan plan) {
  Placement out{std::move(plan), {}, {}};
  out.needs = footprint(input.model, out.plan);
  check_fits(input.model, out.plan, out.needs);
  const int64_t count = std::min(input.workload.requests, 2 * out.plan.row_slots());
  out.prediction = simulate(input.model, out.plan, out.needs, input.machine,
                            typical_requests(input.workload, std::max<int64_t>(count, 1)),
                            {.max_sweeps = 4 + out.plan.batch_size,
                             .decode_sweeps = 2,
                             .requests = input.workload.requests});
  return out;
}

std::string in_words(const BatchShape& shape) {
  return "--batch-size " + std::to_string(shape.batch_size) + " --num-batches " +
         std::to_string(shape.num_batches);
}

// The largest shape below the one asked for that fits as it is, or the least that one sequence
// needs.
std::string nearest(const PlacementInput& input, const BatchShape& asked) {
  for (BatchShape shape = asked; shape.batch_size * shape.num_batches > 1;) {
    (shape.num_batches > 1 ? shape.num_batches : shape.batch_size) /= 2;
    if (std::holds_alternative<Plan>(fill_shape(input, shape)))
      return "the nearest plan that fits has " + in_words(shape);
  }
  const Plan least = fill_least(input, {});
  std::string text =
      "the least is --batch-size 1 with --device-memory " + std::to_string(least.budget_bytes[0]);
  if (!least.single_tier) text += " --host-memory " + std::to_string(least.budget_bytes[1]);
  if (least.budget_bytes[2] > 0) text += " --disk-memory " + std::to_string(least.budget_bytes[2]);
  return text;
}

// The disk itself is too small, whatever its budget.
[[noreturn]] void refuse_disk(const PlacementInput& input, const Shortage& missing) {
  throw Error(Kind::kDoesNotFit,
              "disk: the KV cache on it needs " + format_bytes(missing.needed_bytes) + " (" +
                  std::to_string(missing.needed_bytes) + " bytes), there are " +
                  format_bytes(input.free.disk) + " (" + std::to_string(input.free.disk) +
                  " bytes) free where --disk-dir points; make room there, name another "
                  "--disk-dir, or give the disk a smaller share in --kv");
}

[[noreturn]] void refuse(const PlacementInput& input, const BatchShape& shape,
                         const Shortage& missing) {
  if (missing.tier == layout::name(Tier::kDisk) && missing.needed_bytes > input.free.disk)
    refuse_disk(input, missing);
  throw Error(Kind::kDoesNotFit,
              missing.tier + ": " + in_words(shape) + " needs " +
                  format_bytes(missing.needed_bytes) + " (" + std::to_string(missing.needed_bytes) +
                  " bytes), there are " + format_bytes(missing.there_bytes) + " (" +
                  std::to_string(missing.there_bytes) + " bytes); " + nearest(input, shape));
}

// A budget is a part of this machine's memory.
void check_budget(const PlacementInput& input, Tier tier, const std::string& flag) {
  const auto budget = input.wishes.budget_bytes[static_cast<size_t>(tier)];
  const int64_t free = std::max<int64_t>(input.free.memory - input.wishes.reserve_bytes, 0);
  if (!budget || *budget <= free) return;
  throw Error(Kind::kDoesNotFit,
              std::string(layout::name(tier)) + ": " + flag + " asks for " + format_bytes(*budget) +
                  " (" + std::to_string(*budget) + " bytes), this machine has only " +
                  format_bytes(free) + " (" + std::to_string(free) + " bytes) of memory free" +
                  (input.wishes.reserve_bytes > 0 ? " beside --reserve" : "") +
                  "; give less, or leave " + flag + " out to take what is needed");
}

void check_wishes(const PlacementInput& input) {
  const Wishes& wishes = input.wishes;
  const int64_t longest = input.workload.max_prompt_tokens;
  if (wishes.prefill_tokens && *wishes.prefill_tokens < longest)
    throw Error(Kind::kUsage, "--prefill-tokens " + std::to_string(*wishes.prefill_tokens) +
                                  " is less than the longest prompt, which has " +
                                  std::to_string(longest) + " tokens; give at least that many");
  if (wishes.batch_size.value_or(1) < 1 || wishes.num_batches.value_or(1) < 1)
    throw Error(Kind::kUsage, "--batch-size and --num-batches must be at least 1");
}

// Batch shapes worth trying: no more rows than requests.
std::vector<BatchShape> shapes(const PlacementInput& input, int64_t num_batches) {
  const int64_t most = std::max<int64_t>(input.workload.requests, 1);
  if (input.wishes.batch_size) return {{*input.wishes.batch_size, num_batches}};
  std::vector<BatchShape> made;
  for (const int64_t size : kBatchSizes)
    if (size * num_batches < 2 * most)
      made.push_back({std::min(size, ceil_div(most, num_batches)), num_batches});
  if (made.empty()) made.push_back({1, num_batches});
  return made;
}

// Follows growing batches while they are predicted to be faster.
void try_batches(const PlacementInput& input, int64_t num_batches, std::optional<Placement>& best) {
  double before = 0;
  for (const BatchShape& shape : shapes(input, num_batches)) {
    std::variant<Plan, Shortage> filled = fill_shape(input, shape);
    if (!std::holds_alternative<Plan>(filled)) return;
    Placement made = predict(input, std::get<Plan>(std::move(filled)));
    const double rate = made.prediction.tokens_per_s;
    // A larger batch must be worth its memory.
    if (!best || rate > 1.05 * best->prediction.tokens_per_s) best = std::move(made);
    if (rate < before) return;
    before = rate;
  }
}

}  // namespace

bool wants_two_tiers(const Wishes& wishes) {
  const auto on_host = [](const std::optional<layout::Shares>& shares) {
    return shares && shares->host > 0;
  };
  return wishes.budget_bytes[0] || wishes.budget_bytes[1] || on_host(wishes.weights) ||
         on_host(wishes.kv) || on_host(wishes.activations) ||
         wishes.attention == AttentionSite::kHost;
}

std::vector<RequestLength> typical_requests(const Workload& workload, int64_t count) {
  const bool generates = workload.work == Work::kGenerate;
  const auto of = [&](int64_t prompt) {
    const int64_t room = std::max<int64_t>(workload.max_total_tokens - prompt, 1);
    return RequestLength{.prompt_tokens = prompt,
                         .new_tokens = generates ? std::min(workload.max_new_tokens, room) : 0,
                         .head_rows = generates ? 1 : prompt};
  };
  const int64_t mean =
      std::clamp<int64_t>(workload.mean_prompt_tokens, 1, workload.max_prompt_tokens);
  std::vector<RequestLength> requests(static_cast<size_t>(count), of(mean));
  if (count > 1) requests.front() = of(workload.max_prompt_tokens);
  return requests;
}

Placement place(const PlacementInput& input) {
  check_wishes(input);
  check_budget(input, Tier::kDevice, "--device-memory");
  check_budget(input, Tier::kHost, "--host-memory");
  std::optional<Placement> best;
  if (input.wishes.num_batches) {
    try_batches(input, *input.wishes.num_batches, best);
  } else {
    for (const int64_t num_batches : kNumBatches) try_batches(input, num_batches, best);
  }
  if (best) return std::move(*best);
  const BatchShape asked{input.wishes.batch_size.value_or(1), input.wishes.num_batches.value_or(1)};
  std::variant<Plan, Shortage> filled = fill_shape(input, asked);
  refuse(input, asked, std::get<Shortage>(filled));
}

Plan smallest_plan(const PlacementInput& input) {
  check_wishes(input);
  return fill_least(input,
                    {input.wishes.batch_size.value_or(1), input.wishes.num_batches.value_or(1)});
}

}  // namespace transload::planner
