// Running small models through the engine in tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/executor/engine.h"
#include "planner/placement.h"

namespace transload::engine::testing {

// The reference checkpoint tests/data/tiny/NAME.
layout::Model tiny_model(const std::string& name);

struct TinySequence {  // of reference.json
  std::vector<int32_t> input;
  std::vector<int32_t> greedy;
  std::vector<float> last_logits;
};
std::vector<TinySequence> tiny_reference(const std::string& name);

// A placement for a tiny job: one device tier unless `wishes` says more.
planner::Plan plan_for(const layout::Model& model, const planner::Wishes& wishes,
                       int64_t max_prompt_tokens, int64_t new_tokens);

// Feeds prompts in order and keeps what comes back, by number of the prompt.
class ListFeed : public Feed {
 public:
  struct Prompt {
    std::vector<int32_t> tokens;
    int64_t new_tokens = 1;
    SamplingOptions sampling = {};
  };
  explicit ListFeed(std::vector<Prompt> prompts) : prompts_(std::move(prompts)) {}

  std::optional<Sequence> next() override;
  bool advance(Sequence& sequence) override;
  bool stop_requested() override { return false; }
  void tick(int64_t, int64_t, int64_t) override {}

  std::map<int64_t, std::vector<int32_t>> generated;
  std::map<int64_t, std::vector<Sampled>> sampled;
  std::map<int64_t, std::string> errors;

 private:
  std::vector<Prompt> prompts_;
  size_t next_ = 0;
};

EngineOptions options_with_spill(const std::string& directory);

}  // namespace transload::engine::testing
