#include "tests/engine/executor/plans.h"

#include <bit>

#include "engine/families/synthetic.h"
#include "tests/planner/models.h"

namespace transload::engine::testing {

using planner::AttentionSite;

namespace {

layout::Model small_model(const std::string& folder) {
  SyntheticModel model;
  model.family = "llama";
  model.hidden = 32;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 48;
  model.vocab = 300;
  model.max_positions = 1024;
  model.seed = 7;
  write_synthetic(model, folder);
  return load_model(open_checkpoint(folder));
}

planner::Plan base_plan(const layout::Model& model, const JobSize& size) {
  planner::Plan plan;
  plan.model = model.name;
  plan.batch_size = 2;
  plan.num_batches = 2;
  plan.prefill_tokens = size.prompt_tokens + 20;
  plan.chunk_tokens = 16;
  plan.max_tokens = size.prompt_tokens + size.new_tokens;
  plan.kv_bits = size.kv_bits;
  plan.piece_bytes = 4096;
  return plan;
}

}  // namespace

SmallModel::SmallModel() : model_(small_model(scratch_.path("model"))) {}

planner::Plan plain_plan(const layout::Model& model, const JobSize& size) {
  planner::Plan plan = base_plan(model, size);
  plan.batch_size = 1;
  plan.num_batches = 1;
  return tests::fitted(model, plan, 1, {});
}

std::vector<NamedPlan> placements(const layout::Model& model, const JobSize& size) {
  std::vector<NamedPlan> made;
  const auto add = [&](const char* name, const auto& change) {
    planner::Plan plan = base_plan(model, size);
    change(plan);
    made.push_back({name, tests::fitted(model, plan, size.sequences, {})});
  };
  const auto mixed = [](planner::Plan& plan) {
    plan.single_tier = false;
    plan.weights = {.25, .35, .4};
    plan.kv = {.3, .3, .4};
    plan.activations = {.5, .5, 0};
  };
  add("single tier, disk", [](planner::Plan& plan) {
    plan.weights = {0, 0, 1};
    plan.kv = {0, 0, 1};
  });
  add("two tiers, mixed", mixed);
  add("attention on the host", [](planner::Plan& plan) {
    plan.single_tier = false;
    plan.weights = {0, .5, .5};
    plan.kv = {0, .5, .5};
    plan.attention = AttentionSite::kHost;
    plan.visit_buffers = 2;
  });
  add("two visit buffers", [&](planner::Plan& plan) {
    mixed(plan);
    plan.visit_buffers = 2;
  });
  add("activations on the host", [](planner::Plan& plan) {
    plan.single_tier = false;
    plan.weights = {0, 0, 1};
    plan.kv = {0, .5, .5};
    plan.activations = {0, 1, 0};
    plan.visit_buffers = 2;
  });
  return made;
}

std::vector<ListFeed::Prompt> prompts_of(const layout::Model& model,
                                         const std::vector<int64_t>& lengths, int64_t new_tokens) {
  std::vector<ListFeed::Prompt> prompts;
  for (const int64_t length : lengths) {
    ListFeed::Prompt prompt;
    prompt.new_tokens = new_tokens;
    prompt.sampling.logprobs = 3;
    for (int64_t i = 0; i < length; ++i)
      prompt.tokens.push_back(static_cast<int32_t>(
          (static_cast<int64_t>(prompts.size()) * 31 + i * i * 17 + 5) % model.spec.vocab));
    prompts.push_back(prompt);
  }
  return prompts;
}

void PrintTo(const Answers& answers, std::ostream* to) {
  for (const auto& [request, tokens] : answers.tokens) {
    *to << "\n  " << request << ":";
    for (const int32_t token : tokens) *to << " " << token;
    for (const uint32_t bits : answers.bits.at(request)) *to << " " << std::bit_cast<float>(bits);
  }
  for (const auto& [request, error] : answers.errors) *to << "\n  " << request << ": " << error;
}

Answers run(const layout::Model& model, const planner::Plan& plan, const EngineOptions& options,
            const std::vector<ListFeed::Prompt>& prompts) {
  ListFeed feed(prompts);
  Engine engine(model, plan, options);
  engine.run(feed);
  Answers answers{feed.generated, {}, feed.errors};
  for (const auto& [request, all] : feed.sampled)
    for (const Sampled& sampled : all) {
      answers.bits[request].push_back(std::bit_cast<uint32_t>(sampled.logprob));
      for (const TokenLogprob& top : sampled.top)
        answers.bits[request].push_back(std::bit_cast<uint32_t>(top.logprob));
    }
  return answers;
}

}  // namespace transload::engine::testing
