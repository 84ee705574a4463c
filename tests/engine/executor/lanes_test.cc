// The threads behind the lanes, with tasks that are only noted.
#include "engine/executor/lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

namespace transload::engine::testing {
namespace {

using planner::Dependencies;
using planner::Lane;
using planner::Task;

constexpr std::array<Lane, planner::kLanes> kAll = {Lane::kDiskRead,      Lane::kDiskWrite,
                                                    Lane::kHostToDevice,  Lane::kDeviceToHost,
                                                    Lane::kDeviceCompute, Lane::kHostCompute};

Task task_of(Lane lane, planner::TaskId id, const Dependencies& needs = {}) {
  Task task;
  task.lane = lane;
  task.id = id;
  task.needs = needs;
  return task;
}

Dependencies all_of(Lane lane, planner::TaskId id) {
  Dependencies needs;
  needs.add(lane, id);
  return needs;
}

// Checks that each task comes after what it needs, in its lane's order; fails where told to.
class Notes : public TaskRunner {
 public:
  void perform(const Task& task) override {
    begin(task);
    end(task);
  }
  void start(const Task& task) override { begin(task); }
  void finish(const Task& task) override { end(task); }

  std::optional<Lane> failing;
  planner::TaskId failing_id = 0;
  std::atomic<int64_t> performed{0};

 private:
  void begin(const Task& task) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < planner::kLanes; ++i) EXPECT_GE(done_[i], task.needs.last[i]);
    planner::TaskId& begun = begun_[static_cast<size_t>(task.lane)];
    EXPECT_EQ(task.id, ++begun);
    if (failing == task.lane && failing_id == task.id) throw std::runtime_error("planted");
  }
  void end(const Task& task) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(task.id, ++done_[static_cast<size_t>(task.lane)]);
    ++performed;
  }

  std::mutex mutex_;
  std::array<planner::TaskId, planner::kLanes> begun_{};
  std::array<planner::TaskId, planner::kLanes> done_{};
};

// Each task needs the one before it on the next lane.
void take_chain(Lanes& lanes, planner::TaskId first, planner::TaskId end) {
  for (planner::TaskId id = first; id < end; ++id)
    for (size_t i = 0; i < planner::kLanes; ++i) {
      Dependencies needs;
      if (i > 0) needs.add(kAll[i - 1], id);
      if (i == 0) needs.add(kAll.back(), id - 1);
      lanes.take(task_of(kAll[i], id, needs), {});
    }
}

TEST(Lanes, RunTasksInTheirLanesOrderAfterWhatTheyNeed) {
  Notes notes;
  Lanes lanes(notes, {});
  for (planner::TaskId first = 1; first < 3000; first += 500) {
    take_chain(lanes, first, first + 500);
    lanes.flush();
  }
  while (!lanes.wait(all_of(Lane::kHostCompute, 3000), 10)) {
  }
  EXPECT_EQ(notes.performed, 6 * 3000);
  for (const int64_t tasks : lanes.times().tasks) EXPECT_EQ(tasks, 3000);
}

TEST(Lanes, RunNothingBeforeTheFlush) {
  Notes notes;
  Lanes lanes(notes, {});
  lanes.take(task_of(Lane::kDeviceCompute, 1), {});
  EXPECT_FALSE(lanes.wait(all_of(Lane::kDeviceCompute, 1), 0.02));
  EXPECT_EQ(notes.performed, 0);
  lanes.flush();
  while (!lanes.wait(all_of(Lane::kDeviceCompute, 1), 10)) {
  }
  EXPECT_EQ(notes.performed, 1);
}

TEST(Lanes, AnExceptionOnAnyLaneEndsTheWaitAndAllThreads) {
  for (const Lane lane : kAll)
    for (const planner::TaskId id : {1, 40}) {
      SCOPED_TRACE(std::string(planner::name(lane)) + " task " + std::to_string(id));
      Notes notes;
      notes.failing = lane;
      notes.failing_id = id;
      Lanes lanes(notes, {});
      take_chain(lanes, 1, 100);
      lanes.flush();
      const auto wait = [&] {
        while (!lanes.wait(all_of(Lane::kHostCompute, 99), 10)) {
        }
      };
      EXPECT_THROW(wait(), std::runtime_error);
      EXPECT_THROW(wait(), std::runtime_error);  // and every later one
    }
}

TEST(Lanes, DropWhatHasNotBegunWhenTheyEnd) {
  Notes notes;
  {
    Lanes lanes(notes, {});
    // Nothing ever makes the first host_compute task possible.
    lanes.take(task_of(Lane::kHostCompute, 1, all_of(Lane::kDiskRead, 1)), {});
    lanes.take(task_of(Lane::kDeviceCompute, 1), {});
    lanes.flush();
    while (!lanes.wait(all_of(Lane::kDeviceCompute, 1), 10)) {
    }
  }
  EXPECT_EQ(notes.performed, 1);
}

}  // namespace
}  // namespace transload::engine::testing
