// The schedule's other clock: the same tasks, timed instead of performed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/machine.h"
#include "planner/schedule.h"

namespace transload::planner {

// Called with each task, and when it starts and ends.
using TaskTimed = std::function<void(const Task& task, double start_s, double end_s)>;

// A virtual clock a lane. A lane does its tasks in order, each as soon as the lane is free and what
// the task needs is finished. Both disk lanes share one rate where the plan emulates it. Threads:
// one.
class VirtualClock : public TaskSink {
 public:
  VirtualClock(const Plan& plan, const Machine& machine, TaskTimed timed = {});

  // Queues a task.
  void emit(const Task& task, std::span<const Use> uses) override;
  // Does all queued tasks, the earliest first.
  void run();

  double now() const { return now_s_; }          // end of the last task
  double sampled() const { return sampled_s_; }  // end of the last sample task
  const std::array<double, kLanes>& busy() const { return busy_s_; }
  const std::array<int64_t, kLanes>& bytes() const { return bytes_; }

 private:
  struct LaneClock {
    std::deque<Task> queue;
    std::deque<double> ends_s;  // of tasks first .. first + size - 1
    TaskId first = 1;
    double free_s = 0;

    double end_of(TaskId id) const;
    bool done(TaskId id) const { return id < first + static_cast<TaskId>(ends_s.size()); }
  };

  std::optional<double> start_of(const LaneClock& lane) const;
  void perform(LaneClock& lane, double start_s);

  Machine machine_;
  bool shared_disk_;
  TaskTimed timed_;
  std::array<LaneClock, kLanes> lanes_;
  std::array<double, kLanes> busy_s_{};
  std::array<int64_t, kLanes> bytes_{};
  double disk_free_s_ = 0;
  double now_s_ = 0;
  double sampled_s_ = 0;
};

struct RequestLength {
  int64_t prompt_tokens = 1;
  int64_t new_tokens = 1;  // 0 when scoring
  int64_t head_rows = 1;
};

struct Prediction {
  double seconds = 0;         // of the whole job
  double first_sweep_s = 0;   // with the loads before it
  double decode_sweep_s = 0;  // mean of the sweeps without prompts, or of all after the first
  double tokens_per_s = 0;    // new tokens (scoring: scored tokens)
  int64_t tokens = 0;
  int64_t sweeps = 0;                   // simulated
  bool extrapolated = false;            // the job goes on after the simulated sweeps
  std::array<double, kLanes> busy_s{};  // of the simulated sweeps
  std::array<int64_t, kLanes> bytes{};
  double simulated_s = 0;

  Lane bottleneck() const;  // the busiest lane
};

// What is simulated of a job; the rest is extrapolated: requests under way go on at the decode
// sweep's pace, later ones take as long as those before them.
struct SimulationLimits {
  int64_t max_sweeps = 1 << 20;
  int64_t decode_sweeps = 1 << 20;  // stop after so many sweeps without a prompt
  int64_t requests = 0;             // of the job, which are like those given; 0: just those given
};

// Runs the job through the schedule. `needs` is footprint(model, plan).
Prediction simulate(const layout::Model& model, const Plan& plan, const Footprint& needs,
                    const Machine& machine, std::span<const RequestLength> requests,
                    const SimulationLimits& limits = {}, const TaskTimed& timed = {});

// The tasks that a run with these states had: those of the start, then of each sweep.
std::vector<Task> replay(const layout::Model& model, const Plan& plan, const Footprint& needs,
                         std::span<const BatchState> states);

}  // namespace transload::planner
