// Any plan gives what the plain one gives.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>

#include "tests/engine/executor/plans.h"
#include "tests/planner/models.h"

namespace transload::engine::testing {
namespace {

constexpr JobSize kSize{.prompt_tokens = 130, .new_tokens = 8, .sequences = 1};

JobSize size_of(int64_t kv_bits) {
  JobSize size = kSize;
  size.kv_bits = kv_bits;
  return size;
}

// Eighths of a whole.
layout::Shares random_shares(bool host, bool disk) {
  const int64_t device = *rc::gen::inRange(0, 9);
  int64_t on_host = host ? *rc::gen::inRange<int64_t>(0, 9 - device) : 0;
  if (!disk) on_host = 8 - device;
  return {static_cast<double>(device) / 8, static_cast<double>(on_host) / 8,
          static_cast<double>(8 - device - on_host) / 8};
}

planner::Plan random_plan(const layout::Model& model) {
  planner::Plan plan = plain_plan(model, size_of(*rc::gen::element(32, 16)));
  plan.single_tier = *rc::gen::arbitrary<bool>();
  plan.weights = random_shares(!plan.single_tier, true);
  plan.kv = random_shares(!plan.single_tier, true);
  if (!plan.single_tier) {
    plan.activations = random_shares(true, false);
    if (*rc::gen::arbitrary<bool>()) {
      plan.attention = planner::AttentionSite::kHost;
      plan.kv = {0, plan.kv.device + plan.kv.host, plan.kv.disk};
    }
  }
  plan.batch_size = *rc::gen::inRange(1, 5);
  plan.num_batches = *rc::gen::inRange(1, 4);
  plan.visit_buffers = *rc::gen::inRange(1, 3);
  plan.chunk_tokens = *rc::gen::inRange(1, 65);
  plan.piece_bytes = 1024 * *rc::gen::inRange(1, 33);
  plan.prefill_tokens = kSize.prompt_tokens + *rc::gen::inRange(0, 200);
  plan.threads = *rc::gen::inRange(1, 3);
  // From the least to more than everything.
  const int64_t slack = *rc::gen::element(0, 0, 1, 8, 64);
  return tests::fitted(
      model, plan, *rc::gen::inRange<int64_t>(1, plan.row_slots() + 1),
      {.weight_ring_bytes = slack * 4096, .staging_bytes = slack * 4096, .kv_ring_blocks = slack});
}

std::vector<ListFeed::Prompt> random_prompts(const layout::Model& model) {
  const auto lengths = *rc::gen::nonEmpty(
      rc::gen::resize(12, rc::gen::container<std::vector<int64_t>>(rc::gen::oneOf(
                              rc::gen::inRange<int64_t>(1, 10), rc::gen::inRange<int64_t>(60, 70),
                              rc::gen::inRange<int64_t>(1, kSize.prompt_tokens + 1)))));
  std::vector<ListFeed::Prompt> prompts = prompts_of(model, lengths, 1);
  for (ListFeed::Prompt& prompt : prompts) {
    prompt.new_tokens = *rc::gen::inRange<int64_t>(1, kSize.new_tokens + 1);
    prompt.sampling.temperature = *rc::gen::element(0.0, 0.8);
    prompt.sampling.seed = *rc::gen::inRange<uint64_t>(0, 3);
  }
  return prompts;
}

TEST(AnyPlan, GivesTheAnswersOfThePlainOne) {
  setenv("RC_PARAMS", "seed=20 max_success=100", 0);
  const SmallModel model;
  const bool holds = rc::check([&] {
    const planner::Plan plan = random_plan(*model);
    const planner::Plan plain = plain_plan(*model, size_of(plan.kv_bits));
    const std::vector<ListFeed::Prompt> prompts = random_prompts(*model);
    const EngineOptions options = options_with_spill(model.folder());
    RC_LOG() << planner::to_json(plan).dump() << "\n";
    const Answers got = run(*model, plan, options, prompts);
    RC_ASSERT(got.tokens.size() == prompts.size());
    RC_ASSERT(got == run(*model, plain, options, prompts));
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace transload::engine::testing
