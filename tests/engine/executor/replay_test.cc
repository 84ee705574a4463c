// Two clocks, one schedule: the states that a run was fed with give the run's tasks again.
#include <gtest/gtest.h>

#include "tests/engine/executor/plans.h"

namespace transload::engine::testing {
namespace {

const JobSize kSize{.prompt_tokens = 70, .new_tokens = 5, .sequences = 4};

// Keeps what an executor takes, and hands it on to real lanes.
class RecordingLanes : public Executor {
 public:
  RecordingLanes(Performer& performer, std::vector<planner::Task>& taken)
      : lanes_(performer, {}), taken_(taken) {}
  void take(const planner::Task& task, std::span<const planner::Use> uses) override {
    taken_.push_back(task);
    lanes_.take(task, uses);
  }
  void flush() override { lanes_.flush(); }
  bool wait(const planner::Dependencies& needs, double seconds) override {
    return lanes_.wait(needs, seconds);
  }
  LaneTimes times() const override { return lanes_.times(); }

 private:
  Lanes lanes_;
  std::vector<planner::Task>& taken_;
};

void expect_same(const planner::Task& got, const planner::Task& want, size_t index) {
  SCOPED_TRACE("task " + std::to_string(index) + ", " + std::string(planner::name(want.kind)));
  ASSERT_EQ(got.lane, want.lane);
  ASSERT_EQ(got.kind, want.kind);
  ASSERT_EQ(got.id, want.id);
  ASSERT_EQ(got.bytes, want.bytes);
  ASSERT_EQ(got.flops, want.flops);
  ASSERT_EQ(got.needs, want.needs);
}

TEST(RecordedStates, GiveTheTasksOfTheRunAgain) {
  const SmallModel model;
  for (const NamedPlan& named : placements(*model, kSize)) {
    SCOPED_TRACE(named.name);
    std::vector<planner::Task> taken;
    std::vector<planner::BatchState> states;
    EngineOptions options = options_with_spill(model.folder());
    options.record_states = &states;
    options.make_executor = [&](Performer& performer) {
      return std::make_unique<RecordingLanes>(performer, taken);
    };
    std::vector<ListFeed::Prompt> prompts = prompts_of(*model, {70, 3, 64, 1, 20, 9, 33}, 5);
    prompts[1].new_tokens = 1;
    prompts[3].new_tokens = 2;
    ASSERT_EQ(run(*model, named.plan, options, prompts).tokens.size(), prompts.size());
    const std::vector<planner::Task> again =
        planner::replay(*model, named.plan, planner::footprint(*model, named.plan), states);
    ASSERT_EQ(again.size(), taken.size());
    for (size_t i = 0; i < taken.size(); ++i) {
      expect_same(again[i], taken[i], i);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace transload::engine::testing
