// Lanes: threads that run a schedule's tasks, each lane in order, each task after what it needs.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "planner/task.h"

namespace transload::engine {

// Does the work of a task. Called from lane threads, a lane's calls from one thread at a time.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  // Called once by each lane's thread before its first task: takes what a thread needs to compute.
  virtual void prepare(planner::Lane /*lane*/) {}
  // Copies and computes; done on return. Not for the disk lanes.
  virtual void perform(const planner::Task& task) = 0;
  // Disk lanes: begins a task; finish ends the oldest begun one of the lane and returns it.
  virtual void start(const planner::Task& task) = 0;
  virtual void finish(const planner::Task& task) = 0;
};

struct LaneTimes {
  std::array<double, planner::kLanes> busy_s{};
  std::array<int64_t, planner::kLanes> bytes{};
  std::array<int64_t, planner::kLanes> tasks{};
};

// Told of each task when it has ended (seconds since the executor's start). From lane threads, one
// at a time.
using TaskObserver = std::function<void(const planner::Task&, double start_s, double end_s)>;

// Runs tasks handed over in an order in which each needs only earlier ones.
class Executor {
 public:
  virtual ~Executor() = default;
  // Notes a task; `uses` lives for the call. Nothing runs before flush.
  virtual void take(const planner::Task& task, std::span<const planner::Use> uses) = 0;
  virtual void flush() = 0;
  // Waits until everything named is finished, at most `seconds`; says whether it is. Rethrows the
  // first exception of a lane.
  virtual bool wait(const planner::Dependencies& needs, double seconds) = 0;
  virtual LaneTimes times() const = 0;
};

// A thread a lane. Threads: take, flush and wait belong to one thread.
class Lanes : public Executor {
 public:
  // Returns when all threads are prepared. Errors: those of TaskRunner::prepare come from wait.
  Lanes(TaskRunner& runner, TaskObserver observer);
  // Drops tasks that have not begun, and waits for those that have.
  ~Lanes() override;

  void take(const planner::Task& task, std::span<const planner::Use> uses) override;
  void flush() override;
  bool wait(const planner::Dependencies& needs, double seconds) override;
  LaneTimes times() const override;

 private:
  using Clock = std::chrono::steady_clock;

  // Tasks of one lane, first in, first out; grows to the largest sweep and stays.
  class Queue {
   public:
    void push(const planner::Task& task);
    const planner::Task& front() const { return tasks_[begin_ % tasks_.size()]; }
    void pop() { ++begin_; }
    bool empty() const { return begin_ == end_; }

   private:
    std::vector<planner::Task> tasks_ = std::vector<planner::Task>(1024);
    size_t begin_ = 0;
    size_t end_ = 0;
  };
  struct LaneState {
    Queue queue;
    planner::TaskId done = 0;
    std::condition_variable changed;
  };
  struct Open {  // a begun disk task
    planner::Task task;
    Clock::time_point start;
  };

  void stop();  // ends the threads
  void prepare(planner::Lane lane);
  void run(planner::Lane lane);
  void run_disk(planner::Lane lane);
  bool ready(const planner::Task& task) const;  // holds mutex_
  void finished(const planner::Task& task, Clock::time_point start, Clock::time_point counted_from);
  void fail();
  LaneState& state(planner::Lane lane) { return lanes_[static_cast<size_t>(lane)]; }

  TaskRunner& runner_;
  TaskObserver observer_;
  Clock::time_point started_ = Clock::now();
  std::vector<planner::Task> taken_;
  mutable std::mutex mutex_;  // guards all below
  std::array<LaneState, planner::kLanes> lanes_;
  std::condition_variable progress_;
  LaneTimes times_;
  size_t prepared_ = 0;  // threads
  std::exception_ptr error_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace transload::engine
