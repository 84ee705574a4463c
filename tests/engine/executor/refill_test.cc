// Rows that end are replaced by waiting prompts, and nothing is padded.
#include <gtest/gtest.h>

#include "tests/engine/executor/plans.h"
#include "tests/engine/executor/shuffled_executor.h"

namespace transload::engine::testing {
namespace {

// Notes in which sweep each sequence's first and last row was computed.
class SweepFeed : public ListFeed {
 public:
  using ListFeed::ListFeed;
  bool advance(Sequence& sequence) override {
    first.emplace(sequence.request, sweep_);
    last[sequence.request] = sweep_;
    return ListFeed::advance(sequence);
  }
  void tick(int64_t sweep, int64_t, int64_t) override { sweep_ = sweep; }

  std::map<int64_t, int64_t> first;
  std::map<int64_t, int64_t> last;

 private:
  int64_t sweep_ = 0;
};

TEST(Refill, AWaitingPromptStartsInTheSweepAfterARowEnds) {
  const SmallModel model;
  const JobSize size{.prompt_tokens = 12, .new_tokens = 9, .sequences = 4};
  for (const NamedPlan& named : placements(*model, size)) {
    SCOPED_TRACE(named.name);
    std::vector<ListFeed::Prompt> prompts =
        prompts_of(*model, {5, 12, 1, 7, 3, 3, 12, 2, 9, 4, 6, 8}, 1);
    const std::vector<int64_t> lengths = {9, 2, 5, 3, 1, 4, 7, 2, 2, 6, 3, 8};
    for (size_t i = 0; i < prompts.size(); ++i) prompts[i].new_tokens = lengths[i];
    SweepFeed feed(prompts);
    Engine engine(*model, named.plan, options_with_spill(model.folder()));
    engine.run(feed);
    std::map<int64_t, int64_t> ended;    // by sweep
    std::map<int64_t, int64_t> started;  // by sweep
    for (const auto& [request, sweep] : feed.last) ++ended[sweep];
    for (const auto& [request, sweep] : feed.first) ++started[sweep];
    auto waiting = static_cast<int64_t>(prompts.size()) - named.plan.row_slots();
    EXPECT_EQ(started[1], named.plan.row_slots());
    for (const auto& [sweep, rows] : ended) {
      EXPECT_EQ(started[sweep + 1], std::min(rows, waiting)) << "after sweep " << sweep;
      waiting -= std::min(rows, waiting);
    }
    EXPECT_EQ(waiting, 0);
    // No request overtakes one before it.
    for (size_t i = 1; i < prompts.size(); ++i)
      EXPECT_LE(feed.first[static_cast<int64_t>(i) - 1], feed.first[static_cast<int64_t>(i)]);
  }
}

TEST(Refill, OneLongAnswerAmongNinetyNineShortOnesComputesNoRowInVain) {
  const SmallModel model;
  const JobSize size{.prompt_tokens = 4, .new_tokens = 500, .sequences = 4};
  const NamedPlan named = placements(*model, size)[1];
  std::vector<ListFeed::Prompt> prompts = prompts_of(*model, std::vector<int64_t>(100, 4), 5);
  prompts[10].new_tokens = 500;
  ListFeed feed(prompts);
  Engine engine(*model, named.plan, options_with_spill(model.folder()));
  const RunStats stats = engine.run(feed);
  constexpr int64_t kNeeded = 99 * 5 + 500;
  EXPECT_EQ(stats.new_tokens, kNeeded);
  EXPECT_EQ(stats.row_steps, kNeeded);
  // Four rows at once: the eleventh prompt starts after two answers of five tokens, and all others
  // are done before it is.
  EXPECT_EQ(stats.sweeps, 2 * 5 + 500);
  EXPECT_EQ(feed.generated.at(10).size(), 500U);
}

TEST(KvCache, WhatUnusedSlotsHoldChangesNothing) {
  const SmallModel model;
  const std::vector<ListFeed::Prompt> prompts = prompts_of(*model, {70, 1, 64, 33, 7, 65}, 5);
  for (const int64_t kv_bits : {32, 16}) {
    const JobSize size{.prompt_tokens = 70, .new_tokens = 5, .sequences = 4, .kv_bits = kv_bits};
    const Answers plain =
        run(*model, plain_plan(*model, size), options_with_spill(model.folder()), prompts);
    for (const NamedPlan& named : placements(*model, size)) {
      SCOPED_TRACE(named.name + std::to_string(kv_bits));
      // 0x46 in every byte is 12689.6 or 6.27, 0xFF is NaN.
      for (const int fill : {0x46, 0xFF})
        EXPECT_EQ(run(*model, named.plan,
                      shuffled(*model, named.plan, model.folder(), {.kv_fill = fill}), prompts),
                  plain)
            << "filled with " << fill;
    }
  }
}

// The same prompt is prefilled whole, and prefilled up to a token and decoded from there.
TEST(KvCache, ATokensAnswerDoesNotDependOnTheBorderOfPrefillAndDecode) {
  const SmallModel model;
  for (const int64_t kv_bits : {32, 16}) {
    const JobSize size{.prompt_tokens = 140, .new_tokens = 12, .sequences = 1, .kv_bits = kv_bits};
    const planner::Plan plan = plain_plan(*model, size);
    const EngineOptions options = options_with_spill(model.folder());
    std::vector<ListFeed::Prompt> prompts = prompts_of(*model, {125}, 12);
    const Answers decoded = run(*model, plan, options, prompts);
    const std::vector<int32_t>& tokens = decoded.tokens.at(0);
    for (size_t moved = 1; moved < tokens.size(); ++moved) {
      prompts[0].tokens.push_back(tokens[moved - 1]);
      prompts[0].new_tokens = static_cast<int64_t>(tokens.size() - moved);
      const Answers prefilled = run(*model, plan, options, prompts);
      const auto cut = static_cast<int64_t>(moved);
      EXPECT_EQ(prefilled.tokens.at(0), (std::vector<int32_t>{tokens.begin() + cut, tokens.end()}));
      const std::vector<uint32_t>& all = decoded.bits.at(0);
      const auto a_token = static_cast<int64_t>(all.size() / tokens.size());
      EXPECT_EQ(prefilled.bits.at(0),
                (std::vector<uint32_t>{all.begin() + cut * a_token, all.end()}))
          << kv_bits << " bits, " << moved << " tokens later";
    }
  }
}

TEST(KvCache, ARowsAnswerDoesNotDependOnItsCompany) {
  const SmallModel model;
  const JobSize size{.prompt_tokens = 200, .new_tokens = 6, .sequences = 4};
  const std::vector<ListFeed::Prompt> prompts = prompts_of(*model, {1, 200, 64, 65}, 6);
  const NamedPlan named = placements(*model, size)[3];
  const Answers together = run(*model, named.plan, options_with_spill(model.folder()), prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Answers alone = run(*model, named.plan, options_with_spill(model.folder()), {prompts[i]});
    const auto request = static_cast<int64_t>(i);
    EXPECT_EQ(alone.tokens.at(0), together.tokens.at(request)) << "prompt " << i;
    EXPECT_EQ(alone.bits.at(0), together.bits.at(request)) << "prompt " << i;
  }
}

}  // namespace
}  // namespace transload::engine::testing
