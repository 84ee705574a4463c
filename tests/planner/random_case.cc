#include "tests/planner/random_case.h"

#include <algorithm>

namespace transload::tests {
namespace {

using planner::Plan;

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(engine_() % static_cast<uint64_t>(most - least + 1));
  }
  bool coin() { return between(0, 1) == 1; }
  bool one_in(int64_t n) { return between(1, n) == 1; }

  layout::Shares shares(bool single_tier, bool disk) {
    switch (between(0, 5)) {
      case 0:
        return {1, 0, 0};
      case 1:
        return single_tier ? layout::Shares{0.5, 0, 0.5} : layout::Shares{0, 1, 0};
      case 2:
        return disk ? layout::Shares{0, 0, 1} : layout::Shares{0, 1, 0};
      default:
        break;
    }
    const double device = static_cast<double>(between(0, 8)) / 8;
    if (!disk) return {device, 1 - device, 0};
    if (single_tier) return {device, 0, 1 - device};
    const double host = (1 - device) * static_cast<double>(between(0, 4)) / 4;
    return {device, host, 1 - device - host};
  }

 private:
  std::mt19937_64 engine_;
};

layout::Model random_model(Dice& dice) {
  static constexpr std::array<quant::Format, 3> kFormats = {
      quant::Format::kQ4_1, quant::Format::kF16, quant::Format::kF32};
  return make_model({.layers = dice.between(1, 4),
                     .hidden = 64 * dice.between(1, 2),
                     .heads = 4,
                     .kv_heads = dice.coin() ? 2 : 4,
                     .head_dim = 16,
                     .ffn = 32 * dice.between(1, 9),
                     .vocab = dice.between(65, 700),
                     .format = kFormats[static_cast<size_t>(dice.between(0, 2))],
                     .tied = dice.coin(),
                     .opt = dice.one_in(3),
                     .files = static_cast<int32_t>(dice.between(1, 2))});
}

}  // namespace

Case random_case(uint64_t seed) {
  Dice dice(seed);
  Case made{.model = random_model(dice), .plan = {}, .requests = {}};
  Plan plan;
  plan.model = made.model.name;
  plan.work = dice.one_in(6) ? planner::Work::kScore : planner::Work::kGenerate;
  plan.single_tier = dice.coin();
  plan.weights = dice.shares(plan.single_tier, true);
  plan.kv = dice.shares(plan.single_tier, true);
  if (!plan.single_tier) plan.activations = dice.shares(false, false);
  if (!plan.single_tier && plan.kv.device == 0 && dice.coin())
    plan.attention = planner::AttentionSite::kHost;
  plan.batch_size = dice.between(1, 4);
  plan.num_batches = dice.between(1, 3);
  plan.visit_buffers = dice.between(1, 2);
  plan.chunk_tokens = dice.between(1, 64);
  plan.piece_bytes = dice.between(1, 64) * 1024;
  const int64_t longest = dice.between(1, 150);
  const int64_t new_tokens = plan.work == planner::Work::kGenerate ? dice.between(1, 90) : 0;
  plan.prefill_tokens = longest + dice.between(0, 200);
  plan.max_tokens = longest + new_tokens;
  const bool tight = dice.coin();
  made.plan = fitted(made.model, plan, dice.between(1, plan.row_slots()),
                     {.weight_ring_bytes = tight ? 0 : dice.between(0, 200'000),
                      .staging_bytes = tight ? 0 : dice.between(0, 100'000),
                      .kv_ring_blocks = tight ? 0 : dice.between(0, 12)});
  const int64_t count = dice.between(1, 2 * plan.row_slots() + 2);
  for (int64_t i = 0; i < count; ++i) {
    Request request;
    request.prompt_tokens = dice.between(1, longest);
    request.max_new_tokens = std::min(new_tokens, dice.between(1, 90));
    request.ends_after =
        dice.coin() ? request.max_new_tokens : dice.between(1, std::max<int64_t>(1, new_tokens));
    request.ends_after = std::max<int64_t>(1, std::min(request.ends_after, request.max_new_tokens));
    if (new_tokens == 0) request.head_rows = dice.between(1, request.prompt_tokens);
    made.requests.push_back(request);
  }
  return made;
}

}  // namespace transload::tests
