// After the first token the executor, its lanes and their workers take no memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/engine/executor/allocations.h"
#include "tests/engine/executor/plans.h"

namespace transload::engine::testing {
namespace {

// The longest sequence crosses into a second KV block long after the first token.
const JobSize kSize{.prompt_tokens = 70, .new_tokens = 30, .sequences = 4, .kv_bits = 16};

// Real lanes; counts what the driver allocates from a wait to the flush after it (the schedule and
// the hand-over) and inside the waits.
class DriverCount : public Executor {
 public:
  DriverCount(Performer& performer, int64_t& allocations)
      : lanes_(performer, {}), allocations_(allocations) {}
  void take(const planner::Task& task, std::span<const planner::Use> uses) override {
    lanes_.take(task, uses);
  }
  void flush() override {
    lanes_.flush();
    allocations_ += own_allocations() - since_;
  }
  bool wait(const planner::Dependencies& needs, double seconds) override {
    const int64_t before = own_allocations();
    const bool done = lanes_.wait(needs, seconds);
    since_ = own_allocations();
    allocations_ += since_ - before;
    return done;
  }
  LaneTimes times() const override { return lanes_.times(); }

 private:
  Lanes lanes_;
  int64_t& allocations_;
  int64_t since_ = own_allocations();
};

// Starts counting when the first token is there.
class CountingFeed : public ListFeed {
 public:
  CountingFeed(const std::vector<Prompt>& prompts, int64_t& driver)
      : ListFeed(prompts), driver_(driver) {}
  bool advance(Sequence& sequence) override {
    if (!counting_) {
      counting_ = true;
      driver_ = 0;
      count_allocations(true);
    }
    return ListFeed::advance(sequence);
  }

 private:
  int64_t& driver_;
  bool counting_ = false;
};

struct Counted {
  int64_t driver = 0;
  int64_t lanes = 0;  // and workers
};

Counted count_run(const layout::Model& model, const planner::Plan& plan,
                  const std::string& folder) {
  Counted counted;
  EngineOptions options = options_with_spill(folder);
  options.make_executor = [&](Performer& performer) {
    return std::make_unique<DriverCount>(performer, counted.driver);
  };
  std::vector<ListFeed::Prompt> prompts =
      prompts_of(model, {40, 3, 64, 1, 70, 20, 9, 33, 2}, kSize.new_tokens);
  prompts[1].new_tokens = 2;
  CountingFeed feed(prompts, counted.driver);
  exempt_this_thread(true);
  Engine engine(model, plan, options);
  engine.run(feed);
  counted.lanes = counted_allocations();
  count_allocations(false);
  exempt_this_thread(false);
  EXPECT_EQ(feed.generated.size(), prompts.size());
  return counted;
}

class Allocations : public ::testing::TestWithParam<int> {};

TEST_P(Allocations, NeitherScheduleNorLanesNorWorkersMakeAnyAfterTheFirstToken) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer has replaced malloc";
  const SmallModel model;
  for (NamedPlan& named : placements(*model, kSize)) {
    SCOPED_TRACE(named.name);
    named.plan.threads = GetParam();
    const Counted counted = count_run(*model, named.plan, model.folder());
    EXPECT_EQ(counted.driver, 0);
    EXPECT_EQ(counted.lanes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Allocations, ::testing::Values(1, 2));

// Through pointers that the compiler cannot follow: it may leave out what is freed at once.
void allocate_something() {
  void* (*volatile take)(size_t) = &std::malloc;
  void (*volatile give)(void*) = &std::free;
  give(take(100));
}

TEST(AllocationCount, SeesThoseOfAnotherThreadAndItsOwn) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer has replaced malloc";
  const int64_t own = own_allocations();
  allocate_something();
  EXPECT_GE(own_allocations() - own, 1);
  exempt_this_thread(true);
  int64_t counted = 0;
  std::thread([&] {
    count_allocations(true);
    allocate_something();
    counted = counted_allocations();
    count_allocations(false);
  }).join();
  exempt_this_thread(false);
  EXPECT_GE(counted, 1);
}

}  // namespace
}  // namespace transload::engine::testing
