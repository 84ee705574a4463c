// A small model and the placements under which tests run it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "engine/executor/engine.h"
#include "tests/engine/executor/support.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine::testing {

// A LLaMA of two layers with random weights: 4 heads on 2 KV heads, 1024 positions, 300 tokens.
class SmallModel {
 public:
  SmallModel();
  const layout::Model& operator*() const { return model_; }
  const layout::Model* operator->() const { return &model_; }
  // A folder for spill files and the like, gone with the model.
  std::string folder() const { return scratch_.path("work"); }

 private:
  tests::ScratchFolder scratch_;
  layout::Model model_;
};

struct NamedPlan {
  std::string name;
  planner::Plan plan;
};

struct JobSize {
  int64_t prompt_tokens = 70;  // longest
  int64_t new_tokens = 6;
  int64_t sequences = 4;  // that the KV cache holds
  int64_t kv_bits = 32;
};

// All on the device, batches of one.
planner::Plan plain_plan(const layout::Model& model, const JobSize& size);

// The smallest rings for: weights and KV on disk in a single tier; two tiers, everything mixed;
// attention on the host; two visit buffers; activations on the host.
std::vector<NamedPlan> placements(const layout::Model& model, const JobSize& size);

// Prompts of these lengths, different tokens each, with three log-probabilities a token.
std::vector<ListFeed::Prompt> prompts_of(const layout::Model& model,
                                         const std::vector<int64_t>& lengths, int64_t new_tokens);

// What a run gave, to the bit: tokens, log-probabilities and errors by request.
struct Answers {
  std::map<int64_t, std::vector<int32_t>> tokens;
  std::map<int64_t, std::vector<uint32_t>> bits;  // of the log-probabilities
  std::map<int64_t, std::string> errors;

  bool operator==(const Answers&) const = default;
};
void PrintTo(const Answers& answers, std::ostream* to);
Answers run(const layout::Model& model, const planner::Plan& plan, const EngineOptions& options,
            const std::vector<ListFeed::Prompt>& prompts);

}  // namespace transload::engine::testing
