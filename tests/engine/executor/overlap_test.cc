// Overlapped transfers: whatever order the lanes take, within the tasks' dependencies, and with
// every released buffer poisoned, a run gives what it gives one task at a time.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/engine/executor/plans.h"
#include "tests/engine/executor/shuffled_executor.h"

namespace transload::engine::testing {
namespace {

constexpr uint64_t kSeedsAPlan = 40;  // 200 over five placements
const JobSize kSize{.prompt_tokens = 70, .new_tokens = 4, .sequences = 4};

std::vector<ListFeed::Prompt> job(const layout::Model& model) {
  return prompts_of(model, {70, 3, 63, 1, 20}, kSize.new_tokens);
}

class OverlappedLanes : public ::testing::TestWithParam<size_t> {
 protected:
  NamedPlan named() const { return placements(*model_, kSize)[GetParam()]; }

  SmallModel model_;
};

TEST_P(OverlappedLanes, GiveTheSameInEveryOrderWithReleasedBuffersPoisoned) {
  const NamedPlan named = this->named();
  SCOPED_TRACE(named.name);
  const std::vector<ListFeed::Prompt> prompts = job(*model_);
  const Answers serial =
      run(*model_, named.plan, shuffled(*model_, named.plan, model_.folder(), {.in_order = true}),
          prompts);
  ASSERT_EQ(serial.tokens.size(), prompts.size());
  EXPECT_TRUE(serial.errors.empty());
  EXPECT_EQ(serial,
            run(*model_, plain_plan(*model_, kSize), options_with_spill(model_.folder()), prompts));
  for (uint64_t i = 0; i < kSeedsAPlan; ++i) {
    const uint64_t seed = GetParam() * kSeedsAPlan + i;
    int64_t poisoned = 0;
    const ShuffleOptions options{.seed = seed, .poisoned_bytes = &poisoned};
    ASSERT_EQ(
        run(*model_, named.plan, shuffled(*model_, named.plan, model_.folder(), options), prompts),
        serial)
        << "seed " << seed;
    ASSERT_GT(poisoned, 100'000);
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, OverlappedLanes, ::testing::Range<size_t>(0, 5));

// Whether one of some seeds shows that tasks do not wait for a lane: other answers, or an error.
bool is_noticed(const SmallModel& model, const planner::Plan& plan, planner::Lane ignored,
                const Answers& right) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ShuffleOptions options{.seed = seed, .ignored = ignored};
    try {
      if (run(*model, plan, shuffled(*model, plan, model.folder(), options), job(*model)) != right)
        return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

TEST(PlantedFault, AMissingDependencyOnAnyLaneIsNoticed) {
  const SmallModel model;
  const std::vector<NamedPlan> plans = placements(*model, kSize);
  const planner::Plan& mixed = plans[3].plan;
  const planner::Plan& on_host = plans[2].plan;
  const Answers right =
      run(*model, mixed, shuffled(*model, mixed, model.folder(), {.in_order = true}), job(*model));
  using planner::Lane;
  for (const Lane lane : {Lane::kDiskRead, Lane::kDiskWrite, Lane::kHostToDevice,
                          Lane::kDeviceToHost, Lane::kDeviceCompute})
    EXPECT_TRUE(is_noticed(model, mixed, lane, right)) << planner::name(lane);
  EXPECT_TRUE(is_noticed(model, on_host, Lane::kHostCompute, right));
}

}  // namespace
}  // namespace transload::engine::testing
