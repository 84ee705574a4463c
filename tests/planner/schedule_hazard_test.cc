// The schedule's central invariant, on random models, plans and jobs: no two tasks touch the same
// bytes at the same time where one of them writes, and what is read is what was meant.
#include <gmock/gmock.h>

#include <deque>

#include "planner/footprint.h"
#include "tests/planner/random_case.h"
#include "tests/planner/recorder.h"

namespace transload::planner {
namespace {

using tests::Case;
using tests::Driver;
using tests::Recorder;

constexpr uint64_t kCases = 300;

std::string text(uint64_t seed, const Case& made) {
  return "case " + std::to_string(seed) + ": " + to_json(made.plan).dump();
}

void run(const Case& made, Recorder& recorder) {
  const Footprint needs = footprint(made.model, made.plan);
  check_fits(made.model, made.plan, needs);
  Schedule schedule(made.model, made.plan, needs);
  Driver driver(made.plan, schedule, made.requests);
  driver.run(recorder);
}

TEST(ScheduleHazards, ConflictingUsesAreAlwaysOrdered) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(text(seed, made));
    Recorder recorder;
    ASSERT_NO_THROW(run(made, recorder));
    ASSERT_EQ(recorder.hazards(), 0);
    if (testing::Test::HasFailure()) return;
  }
}

// What a reader of a buffer must find in it.
bool meant(const Task& reader, const Task& writer, Buffer buffer) {
  const bool same_visit =
      reader.sweep == writer.sweep && reader.layer == writer.layer && reader.batch == writer.batch;
  switch (buffer) {
    case Buffer::kWeightRing:
      return writer.sweep == reader.sweep &&
             (reader.kind == TaskKind::kLogits ? writer.index == reader.index
                                               : writer.layer == reader.layer);
    case Buffer::kStaging:
      return writer.sweep == reader.sweep && writer.layer == reader.layer &&
             writer.index == reader.index;
    case Buffer::kKvRingDevice:
    case Buffer::kKvRingHost:
      return same_visit && writer.index == reader.index;
    case Buffer::kKvDevice:
    case Buffer::kKvHost:
    case Buffer::kKvDisk:
      return writer.layer == reader.layer && writer.batch == reader.batch;
    case Buffer::kVisit:
      return same_visit;
    case Buffer::kQueryHost:
      return same_visit && writer.index == reader.index;
    case Buffer::kGatherDevice:
    case Buffer::kGatherHost:
      return same_visit && writer.source == reader.source;
    case Buffer::kHidden:
    case Buffer::kHiddenHost:
    case Buffer::kHiddenWork:
      return writer.sweep == reader.sweep && writer.batch == reader.batch &&
             writer.layer >= reader.layer - 1;
    default:
      return true;
  }
}

TEST(ScheduleHazards, ReadersFindWhatWasMeantForThem) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(text(seed, made));
    Recorder recorder;
    ASSERT_NO_THROW(run(made, recorder));
    for (size_t i = 0; i < recorder.tasks().size(); ++i) {
      const Task& task = recorder.tasks()[i];
      for (const Recorder::Use& use : recorder.uses()[i]) {
        if (use.use.writes) continue;
        ASSERT_TRUE(use.filled) << tests::describe(task) << " reads buffer "
                                << static_cast<int>(use.use.buffer) << " before it is written";
        for (const Task& writer : use.writers)
          ASSERT_TRUE(meant(task, writer, use.use.buffer))
              << tests::describe(task) << " reads what " << tests::describe(writer)
              << " wrote, buffer " << static_cast<int>(use.use.buffer);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Every lane runs its tasks in order, each as soon as its needs are finished; lanes take turns.
TEST(ScheduleHazards, LanesInAnyTurnFinishEveryTask) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(text(seed, made));
    Recorder recorder;
    ASSERT_NO_THROW(run(made, recorder));
    std::array<std::deque<Task>, kLanes> queues;
    for (const Task& task : recorder.tasks())
      queues[static_cast<size_t>(task.lane)].push_back(task);
    std::array<TaskId, kLanes> done{};
    std::mt19937_64 turns(seed);
    size_t finished = 0;
    const auto ready = [&](const Task& task) {
      for (size_t lane = 0; lane < kLanes; ++lane)
        if (task.needs.last[lane] > done[lane]) return false;
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      const size_t first = turns() % kLanes;
      for (size_t i = 0; i < kLanes; ++i) {
        auto& queue = queues[(first + i) % kLanes];
        if (queue.empty() || !ready(queue.front())) continue;
        done[(first + i) % kLanes] = queue.front().id;
        queue.pop_front();
        ++finished;
        moved = true;
      }
    }
    ASSERT_EQ(finished, recorder.tasks().size());
  }
}

TEST(ScheduleHazards, EveryTaskButWeightLoadsFollowsTheTokensOfTheSweepBefore) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(text(seed, made));
    Recorder recorder;
    ASSERT_NO_THROW(run(made, recorder));
    Dependencies sampled;
    for (const Task& task : recorder.tasks()) {
      const bool loads = task.kind <= TaskKind::kCopyPiece;
      if (!loads) {
        ASSERT_TRUE(recorder.ordered(sampled, task)) << tests::describe(task);
      }
      if (task.kind == TaskKind::kSample) sampled.add(task.lane, task.id);
    }
  }
}

TEST(ScheduleHazards, TheSameStatesGiveTheSameTasks) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Case made = tests::random_case(seed);
    Recorder first;
    Recorder second;
    run(made, first);
    run(made, second);
    ASSERT_EQ(first.tasks().size(), second.tasks().size());
    for (size_t i = 0; i < first.tasks().size(); ++i) {
      const Task& a = first.tasks()[i];
      const Task& b = second.tasks()[i];
      ASSERT_EQ(tests::describe(a), tests::describe(b)) << text(seed, made);
      ASSERT_TRUE(a.bytes == b.bytes && a.flops == b.flops && a.source == b.source &&
                  a.target == b.target && a.needs == b.needs)
          << tests::describe(a);
    }
  }
}

}  // namespace
}  // namespace transload::planner
