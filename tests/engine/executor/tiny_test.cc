// The engine against an independent implementation: tiny models with random weights.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/executor/support.h"

namespace transload::engine::testing {
namespace {

class TinyModels : public ::testing::TestWithParam<std::string> {};

double log_sum_exp(const std::vector<float>& logits) {
  double largest = logits[0];
  for (const float x : logits) largest = std::max(largest, static_cast<double>(x));
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

ListFeed reference_feed(const std::vector<TinySequence>& reference) {
  std::vector<ListFeed::Prompt> prompts;
  for (const TinySequence& sequence : reference) {
    ListFeed::Prompt prompt{sequence.input, static_cast<int64_t>(sequence.greedy.size()), {}};
    prompt.sampling.logprobs = static_cast<int64_t>(sequence.last_logits.size());
    prompts.push_back(prompt);
  }
  return ListFeed(prompts);
}

void expect_reference(const std::vector<TinySequence>& reference, const ListFeed& feed) {
  for (size_t i = 0; i < reference.size(); ++i) {
    const auto request = static_cast<int64_t>(i);
    EXPECT_EQ(feed.generated.at(request), reference[i].greedy) << "sequence " << i;
    const double whole = log_sum_exp(reference[i].last_logits);
    for (const TokenLogprob& entry : feed.sampled.at(request).front().top) {
      const double want = reference[i].last_logits[static_cast<size_t>(entry.token)] - whole;
      ASSERT_NEAR(entry.logprob, want, 1e-4) << "sequence " << i << " token " << entry.token;
    }
  }
}

TEST_P(TinyModels, GiveTheReferenceTokensAndLogProbabilities) {
  const layout::Model model = tiny_model(GetParam());
  const std::vector<TinySequence> reference = tiny_reference(GetParam());
  ListFeed feed = reference_feed(reference);
  const planner::Plan plan = plan_for(model, {}, 45, 16);
  EXPECT_TRUE(plan.single_tier);
  Engine engine(model, plan, options_with_spill(::testing::TempDir()));
  engine.run(feed);
  expect_reference(reference, feed);
}

struct Placing {
  const char* name;
  layout::Shares weights;
  layout::Shares kv;
  layout::Shares activations;
  planner::AttentionSite attention;
  bool two_tiers;
};

std::vector<Placing> placings() {
  using planner::AttentionSite;
  return {
      {"disk weights, one tier", {0, 0, 1}, {1, 0, 0}, {1, 0, 0}, AttentionSite::kDevice, false},
      {"disk KV, one tier", {.5, 0, .5}, {0, 0, 1}, {1, 0, 0}, AttentionSite::kDevice, false},
      {"host weights", {0, 1, 0}, {1, 0, 0}, {1, 0, 0}, AttentionSite::kDevice, true},
      {"a third each", {.3, .4, .3}, {.3, .4, .3}, {.5, .5, 0}, AttentionSite::kDevice, true},
      {"all off the device", {0, 0, 1}, {0, 0, 1}, {0, 1, 0}, AttentionSite::kDevice, true},
      {"host attention", {.5, .5, 0}, {0, 1, 0}, {1, 0, 0}, AttentionSite::kHost, true},
      {"host attention, disk KV", {0, .5, .5}, {0, .3, .7}, {0, 1, 0}, AttentionSite::kHost, true},
  };
}

ListFeed run_placing(const layout::Model& model, const std::vector<TinySequence>& reference,
                     const Placing& placing, kernels::Compute compute, int64_t kv_bits) {
  planner::Wishes wishes;
  wishes.weights = placing.weights;
  wishes.kv = placing.kv;
  wishes.activations = placing.activations;
  if (placing.two_tiers) wishes.attention = placing.attention;
  wishes.batch_size = 1;
  wishes.num_batches = 2;
  wishes.kv_bits = kv_bits;
  ListFeed feed = reference_feed(reference);
  EngineOptions options = options_with_spill(::testing::TempDir());
  options.performer.compute = compute;
  const planner::Plan plan = plan_for(model, wishes, 45, 16);
  Engine engine(model, plan, options);
  engine.run(feed);
  return feed;
}

TEST_P(TinyModels, GiveTheSameWhereverThingsLie) {
  const layout::Model model = tiny_model(GetParam());
  const std::vector<TinySequence> reference = tiny_reference(GetParam());
  for (const Placing& placing : placings()) {
    SCOPED_TRACE(placing.name);
    expect_reference(reference,
                     run_placing(model, reference, placing, kernels::Compute::kFloat32, 32));
  }
}

TEST_P(TinyModels, GiveTheSameBitsWhereverThingsLieInFast) {
  const layout::Model model = tiny_model(GetParam());
  const std::vector<TinySequence> reference = tiny_reference(GetParam());
  ListFeed whole = reference_feed(reference);
  EngineOptions options = options_with_spill(::testing::TempDir());
  options.performer.compute = kernels::Compute::kFast;
  planner::Wishes wishes;
  wishes.kv_bits = 16;
  const planner::Plan plan = plan_for(model, wishes, 45, 16);
  Engine engine(model, plan, options);
  engine.run(whole);
  for (const Placing& placing : placings()) {
    SCOPED_TRACE(placing.name);
    const ListFeed feed = run_placing(model, reference, placing, kernels::Compute::kFast, 16);
    EXPECT_EQ(feed.generated, whole.generated);
    for (const auto& [request, steps] : whole.sampled)
      for (size_t step = 0; step < steps.size(); ++step)
        for (size_t i = 0; i < steps[step].top.size(); ++i)
          ASSERT_EQ(feed.sampled.at(request)[step].top[i].logprob, steps[step].top[i].logprob)
              << "request " << request << " step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, TinyModels,
                         ::testing::Values("opt-preln", "opt-350m-style", "llama-mha",
                                           "llama-gqa-tied", "gpt-neox-parallel",
                                           "gpt-neox-sequential"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace transload::engine::testing
