// An executor for tests: one thread, ready tasks in an order drawn by seed, and released memory
// poisoned.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "engine/executor/engine.h"

namespace transload::engine::testing {

struct ShuffleOptions {
  uint64_t seed = 0;
  bool in_order = false;                      // each task in the order of emission, disk tasks too
  int64_t* poisoned_bytes = nullptr;          // adds up what was poisoned
  int kv_fill = 0xFF;                         // byte that fills the KV arenas before the run
  std::optional<planner::Lane> ignored = {};  // a planted fault: nothing waits for this lane
};

// Performs tasks while the driver waits: each time one of the lanes whose first task is ready, or
// the oldest begun task of a disk lane. Of every volatile buffer (rings, staging, hidden rows,
// queries, the visits' q, k and v) the bytes that a task has read are filled with 0xFF (NaN) as
// soon as no emitted task that has not run uses them.
class ShuffledExecutor : public Executor {
 public:
  ShuffledExecutor(const layout::Model& model, const planner::Plan& plan, Performer& performer,
                   const ShuffleOptions& options);

  void take(const planner::Task& task, std::span<const planner::Use> uses) override;
  void flush() override;
  bool wait(const planner::Dependencies& needs, double seconds) override;
  LaneTimes times() const override { return times_; }

 private:
  struct Taken {
    planner::Task task;
    std::vector<planner::Use> uses;
    int64_t number = 0;  // in order of emission
  };
  struct LaneQueue {
    std::deque<Taken> waiting;
    std::deque<Taken> begun;  // disk lanes
    size_t flushed = 0;       // of `waiting`
    planner::TaskId done = 0;
    uint32_t weight = 1;  // how often it is drawn
  };
  struct Pending {  // a use of a task that has not run
    int64_t number = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  struct Step {
    size_t lane = 0;
    bool ends = false;  // ends a begun disk task
  };

  bool finished(const planner::Dependencies& needs) const;
  bool ready(const planner::Task& task) const;
  std::vector<Step> steps() const;
  Step draw(const std::vector<Step>& steps);
  void step();
  void ended(LaneQueue& lane, const Taken& taken);
  void release(const planner::Use& use);
  std::span<std::byte> bytes_of(planner::Buffer buffer, int64_t begin, int64_t end);
  void fill_all();

  const planner::Plan& plan_;
  int64_t q_width_;
  int64_t kv_width_;
  planner::Footprint needs_;
  Performer& performer_;
  ShuffleOptions options_;
  std::mt19937_64 random_;
  std::array<LaneQueue, planner::kLanes> lanes_;
  std::map<planner::Buffer, std::vector<Pending>> pending_;
  int64_t taken_ = 0;
  LaneTimes times_;
};

// Engine options that make such an executor. The two outlive the engine.
EngineOptions shuffled(const layout::Model& model, const planner::Plan& plan,
                       const std::string& spill_directory, const ShuffleOptions& options);

}  // namespace transload::engine::testing
