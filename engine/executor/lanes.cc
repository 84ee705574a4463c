#include "engine/executor/lanes.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "base/error.h"

namespace transload::engine {

using planner::Lane;
using planner::Task;

namespace {

constexpr size_t kOpenDiskTasks = 32;  // begun and not finished, a lane

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void Lanes::Queue::push(const Task& task) {
  if (end_ - begin_ == tasks_.size()) {
    std::vector<Task> larger(2 * tasks_.size());
    for (size_t i = begin_; i != end_; ++i) larger[i - begin_] = tasks_[i % tasks_.size()];
    end_ -= begin_;
    begin_ = 0;
    tasks_.swap(larger);
  }
  tasks_[end_++ % tasks_.size()] = task;
}

Lanes::Lanes(TaskRunner& runner, TaskObserver observer)
    : runner_(runner), observer_(std::move(observer)) {
  taken_.reserve(4096);
  for (size_t i = 0; i < planner::kLanes; ++i) {
    const auto lane = static_cast<Lane>(i);
    const bool disk = lane == Lane::kDiskRead || lane == Lane::kDiskWrite;
    try {
      threads_.emplace_back([this, lane, disk] {
        prepare(lane);
        disk ? run_disk(lane) : run(lane);
      });
    } catch (const std::system_error& error) {
      stop();
      throw Error(Kind::kDoesNotFit, "the thread of the " + std::string(planner::name(lane)) +
                                         " lane: " + error.code().message() +
                                         "; raise ulimit -u or ulimit -v");
    }
  }
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return prepared_ == planner::kLanes; });
}

Lanes::~Lanes() { stop(); }

void Lanes::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (LaneState& lane : lanes_) lane.changed.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Lanes::take(const Task& task, std::span<const planner::Use> /*uses*/) {
  taken_.push_back(task);
}

void Lanes::flush() {
  const std::lock_guard lock(mutex_);
  for (const Task& task : taken_) state(task.lane).queue.push(task);
  taken_.clear();
  for (LaneState& lane : lanes_) lane.changed.notify_all();
}

bool Lanes::ready(const Task& task) const {
  for (size_t i = 0; i < planner::kLanes; ++i)
    if (lanes_[i].done < task.needs.last[i]) return false;
  return true;
}

bool Lanes::wait(const planner::Dependencies& needs, double seconds) {
  std::unique_lock lock(mutex_);
  Task all;
  all.needs = needs;
  const bool done = progress_.wait_for(lock, std::chrono::duration<double>(seconds),
                                       [&] { return error_ || ready(all); });
  if (error_) std::rethrow_exception(error_);
  return done;
}

LaneTimes Lanes::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

void Lanes::finished(const Task& task, Clock::time_point start, Clock::time_point counted_from) {
  const Clock::time_point end = Clock::now();
  const std::lock_guard lock(mutex_);
  const auto i = static_cast<size_t>(task.lane);
  times_.busy_s[i] += seconds(end - counted_from);
  times_.bytes[i] += task.bytes;
  ++times_.tasks[i];
  lanes_[i].done = task.id;
  if (observer_) observer_(task, seconds(start - started_), seconds(end - started_));
  for (LaneState& lane : lanes_)
    if (!lane.queue.empty() && ready(lane.queue.front())) lane.changed.notify_one();
  progress_.notify_all();
}

void Lanes::fail() {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::current_exception();
  stop_ = true;
  for (LaneState& lane : lanes_) lane.changed.notify_all();
  progress_.notify_all();
}

void Lanes::prepare(Lane lane) {
  try {
    runner_.prepare(lane);
  } catch (...) {
    fail();
  }
  const std::lock_guard lock(mutex_);
  ++prepared_;
  progress_.notify_all();
}

void Lanes::run(Lane lane) {
  LaneState& mine = state(lane);
  try {
    while (true) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        mine.changed.wait(
            lock, [&] { return stop_ || (!mine.queue.empty() && ready(mine.queue.front())); });
        if (stop_) return;
        task = mine.queue.front();
        mine.queue.pop();
      }
      const Clock::time_point start = Clock::now();
      runner_.perform(task);
      finished(task, start, start);
    }
  } catch (...) {
    fail();
  }
}

// Begins what is ready while earlier tasks are in flight, and ends them in order.
void Lanes::run_disk(Lane lane) {
  LaneState& mine = state(lane);
  std::array<Open, kOpenDiskTasks> open;
  size_t begun = 0;
  size_t ended = 0;
  Clock::time_point counted{};
  try {
    while (true) {
      bool start_one = false;
      {
        std::unique_lock lock(mutex_);
        const auto can_start = [&] {
          return !mine.queue.empty() && begun - ended < kOpenDiskTasks && ready(mine.queue.front());
        };
        if (begun == ended) mine.changed.wait(lock, [&] { return stop_ || can_start(); });
        if (stop_ && begun == ended) return;
        if (!stop_ && can_start()) {
          open[begun % kOpenDiskTasks] = {mine.queue.front(), Clock::now()};
          mine.queue.pop();
          start_one = true;
        }
      }
      if (start_one) {
        runner_.start(open[begun++ % kOpenDiskTasks].task);
        continue;
      }
      const Open& oldest = open[ended++ % kOpenDiskTasks];
      runner_.finish(oldest.task);
      finished(oldest.task, oldest.start, std::max(oldest.start, counted));
      counted = Clock::now();
    }
  } catch (...) {
    fail();
  }
}

}  // namespace transload::engine
