#include "tests/engine/executor/support.h"

#include <algorithm>
#include <fstream>

#include "base/units.h"

namespace transload::engine::testing {

layout::Model tiny_model(const std::string& name) {
  return load_model(open_checkpoint(std::string(TRANSLOAD_TEST_DATA) + "/tiny/" + name));
}

std::vector<TinySequence> tiny_reference(const std::string& name) {
  std::ifstream file(std::string(TRANSLOAD_TEST_DATA) + "/tiny/" + name + "/reference.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  std::vector<TinySequence> sequences;
  for (const nlohmann::json& item : json.at("sequences"))
    sequences.push_back({item.at("input_ids"), item.at("greedy_ids"), item.at("last_logits")});
  return sequences;
}

planner::Plan plan_for(const layout::Model& model, const planner::Wishes& wishes,
                       int64_t max_prompt_tokens, int64_t new_tokens) {
  const planner::Machine machine{.disk_read_bytes_per_s = 1e9,
                                 .disk_write_bytes_per_s = 1e9,
                                 .link_bytes_per_s = 1e10,
                                 .compute_flops_per_s = 1e11,
                                 .compute_bytes_per_s = 1e10,
                                 .task_s = 1e-5};
  planner::Workload work;
  work.requests = 64;
  work.max_prompt_tokens = max_prompt_tokens;
  work.mean_prompt_tokens = max_prompt_tokens;
  work.max_new_tokens = new_tokens;
  work.max_total_tokens = max_prompt_tokens + new_tokens;
  return planner::place({model, work, wishes, {4 * kGiB, 4 * kGiB}, machine}).plan;
}

std::optional<Sequence> ListFeed::next() {
  if (next_ == prompts_.size()) return std::nullopt;
  const Prompt& prompt = prompts_[next_];
  Sequence sequence;
  sequence.request = static_cast<int64_t>(next_++);
  sequence.tokens = prompt.tokens;
  sequence.tokens.reserve(prompt.tokens.size() + static_cast<size_t>(prompt.new_tokens));
  sequence.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  sequence.max_new_tokens = prompt.new_tokens;
  sequence.sampling = prompt.sampling;
  sequence.sampled.top.reserve(static_cast<size_t>(std::max<int64_t>(prompt.sampling.logprobs, 0)));
  sequence.stream = static_cast<uint64_t>(sequence.request);
  return sequence;
}

bool ListFeed::advance(Sequence& sequence) {
  if (!sequence.error.empty()) {
    errors[sequence.request] = sequence.error;
    return false;
  }
  generated[sequence.request].push_back(sequence.tokens.back());
  sampled[sequence.request].push_back(sequence.sampled);
  return sequence.generated() < sequence.max_new_tokens;
}

EngineOptions options_with_spill(const std::string& directory) {
  EngineOptions options;
  options.performer.tiers.disk_directory = directory;
  return options;
}

}  // namespace transload::engine::testing
