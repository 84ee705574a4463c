#include "planner/simulator.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"

namespace transload::planner {
namespace {

constexpr size_t kKeptEnds = 8192;  // of a lane: more than two sweeps look back

// Plays the engine: which sequences go on, and who waits.
class JobState {
 public:
  JobState(const Plan& plan, std::span<const RequestLength> requests)
      : requests_(requests),
        keeps_kv_(plan.keeps_kv()),
        left_(static_cast<size_t>(plan.row_slots())) {
    state_.active.resize(left_.size());
    state_.waiting.reserve(left_.size());
  }

  bool is_done() const {
    return next_ == requests_.size() &&
           std::none_of(left_.begin(), left_.end(), [](int64_t left) { return left > 0; });
  }
  const BatchState& state() {
    for (size_t slot = 0; slot < left_.size(); ++slot) state_.active[slot] = left_[slot] > 0;
    state_.waiting.clear();
    for (size_t i = next_; i < requests_.size() && i < next_ + left_.size(); ++i)
      state_.waiting.push_back({.prompt_tokens = requests_[i].prompt_tokens,
                                .max_new_tokens = requests_[i].new_tokens,
                                .head_rows = requests_[i].head_rows});
    state_.more_waiting = next_ + state_.waiting.size() < requests_.size();
    return state_;
  }
  void follow(const Sweep& sweep) {
    for (const Admission& admission : sweep.admissions) {
      const RequestLength& request = requests_[next_ + static_cast<size_t>(admission.waiting)];
      left_[static_cast<size_t>(admission.row_slot)] = keeps_kv_ ? request.new_tokens : 1;
      admitted_tokens_ += keeps_kv_ ? request.new_tokens : request.head_rows;
    }
    next_ += sweep.admissions.size();
    for (const BatchSweep& batch : sweep.batches)
      for (const SweepRow& row : batch.rows) --left_[static_cast<size_t>(row.row_slot)];
    made_tokens_ += sweep.head_rows;
  }
  int64_t admitted() const { return static_cast<int64_t>(next_); }
  int64_t made_tokens() const { return made_tokens_; }
  // Decode sweeps until all admitted requests are done, if all rows ended at once.
  double sweeps_to_come() const {
    const auto running = std::count_if(left_.begin(), left_.end(), [](int64_t l) { return l > 0; });
    if (running == 0) return 0;
    return static_cast<double>(admitted_tokens_ - made_tokens_) / static_cast<double>(running);
  }

 private:
  std::span<const RequestLength> requests_;
  bool keeps_kv_;
  BatchState state_;
  std::vector<int64_t> left_;  // new tokens to come, by row slot
  size_t next_ = 0;
  int64_t admitted_tokens_ = 0;  // new tokens of the requests so far
  int64_t made_tokens_ = 0;
};

int64_t token_count(const Plan& plan, std::span<const RequestLength> requests) {
  int64_t tokens = 0;
  for (const RequestLength& request : requests)
    tokens += plan.keeps_kv() ? request.new_tokens : request.head_rows;
  return tokens;
}

void extrapolate(const Plan& plan, std::span<const RequestLength> requests,
                 const SimulationLimits& limits, const JobState& job, Prediction& out) {
  const auto listed = static_cast<int64_t>(requests.size());
  const int64_t count = limits.requests > 0 ? limits.requests : listed;
  const int64_t tokens = token_count(plan, requests);
  out.tokens = listed == 0 ? 0 : tokens / listed * count + tokens % listed * count / listed;
  const double pace_s = out.decode_sweep_s > 0 ? out.decode_sweep_s : out.first_sweep_s;
  const double admitted_s = out.simulated_s + job.sweeps_to_come() * pace_s;
  const auto admitted = static_cast<double>(std::max<int64_t>(job.admitted(), 1));
  out.extrapolated = job.made_tokens() < out.tokens;
  out.seconds = admitted_s * std::max(1.0, static_cast<double>(count) / admitted);
  if (out.seconds > 0) out.tokens_per_s = static_cast<double>(out.tokens) / out.seconds;
}

class Keeper : public TaskSink {
 public:
  void emit(const Task& task, std::span<const Use>) override { tasks.push_back(task); }
  std::vector<Task> tasks;
};

}  // namespace

VirtualClock::VirtualClock(const Plan& plan, const Machine& machine, TaskTimed timed)
    : machine_(limited(machine, plan)),
      shared_disk_(plan.disk_bytes_per_s > 0),
      timed_(std::move(timed)) {}

// Ends of a lane never fall, so a task that is no longer kept ended before the first that is.
double VirtualClock::LaneClock::end_of(TaskId id) const {
  if (id <= 0 || ends_s.empty()) return 0;
  return ends_s[static_cast<size_t>(std::max<TaskId>(id - first, 0))];
}

void VirtualClock::emit(const Task& task, std::span<const Use>) {
  lanes_[static_cast<size_t>(task.lane)].queue.push_back(task);
}

std::optional<double> VirtualClock::start_of(const LaneClock& lane) const {
  if (lane.queue.empty()) return std::nullopt;
  double start_s = lane.free_s;
  const Dependencies& needs = lane.queue.front().needs;
  for (size_t l = 0; l < kLanes; ++l) {
    if (!lanes_[l].done(needs.last[l])) return std::nullopt;
    start_s = std::max(start_s, lanes_[l].end_of(needs.last[l]));
  }
  return start_s;
}

void VirtualClock::perform(LaneClock& lane, double start_s) {
  const Task& task = lane.queue.front();
  const auto l = static_cast<size_t>(task.lane);
  const bool disk = task.lane == Lane::kDiskRead || task.lane == Lane::kDiskWrite;
  const double begin_s = disk && shared_disk_ ? std::max(start_s, disk_free_s_) : start_s;
  const double end_s = begin_s + seconds(machine_, task);
  if (disk) disk_free_s_ = end_s;
  busy_s_[l] += end_s - begin_s;
  bytes_[l] += task.bytes;
  now_s_ = std::max(now_s_, end_s);
  if (task.kind == TaskKind::kSample) sampled_s_ = end_s;
  if (timed_) timed_(task, begin_s, end_s);
  lane.free_s = end_s;
  lane.ends_s.push_back(end_s);
  if (lane.ends_s.size() > kKeptEnds) {
    lane.ends_s.pop_front();
    ++lane.first;
  }
  lane.queue.pop_front();
}

void VirtualClock::run() {
  while (true) {
    LaneClock* next = nullptr;
    double next_s = std::numeric_limits<double>::infinity();
    bool waiting = false;
    for (LaneClock& lane : lanes_) {
      waiting = waiting || !lane.queue.empty();
      const std::optional<double> start_s = start_of(lane);
      if (!start_s || *start_s >= next_s) continue;
      next = &lane;
      next_s = *start_s;
    }
    check(next != nullptr || !waiting, "tasks wait for each other");
    if (next == nullptr) return;
    perform(*next, next_s);
  }
}

Lane Prediction::bottleneck() const {
  const auto busiest = std::max_element(busy_s.begin(), busy_s.end());
  return static_cast<Lane>(busiest - busy_s.begin());
}

// NOLINTNEXTLINE(readability-function-size): the planner's four, the job, its limits
Prediction simulate(const layout::Model& model, const Plan& plan, const Footprint& needs,
                    const Machine& machine, std::span<const RequestLength> requests,
                    const SimulationLimits& limits, const TaskTimed& timed) {
  Schedule schedule(model, plan, needs);
  VirtualClock clock(plan, machine, timed);
  JobState job(plan, requests);
  Prediction out;
  schedule.start(clock);
  double decode_s = 0;
  int64_t decode_sweeps = 0;
  while (!job.is_done() && out.sweeps < limits.max_sweeps && decode_sweeps < limits.decode_sweeps) {
    const double before_s = clock.sampled();
    const Sweep& sweep = schedule.next(job.state(), clock);
    clock.run();
    job.follow(sweep);
    if (++out.sweeps == 1) {
      out.first_sweep_s = clock.sampled();
    } else if (sweep.admissions.empty()) {
      decode_s += clock.sampled() - before_s;
      ++decode_sweeps;
    }
  }
  out.simulated_s = clock.sampled();
  out.busy_s = clock.busy();
  out.bytes = clock.bytes();
  if (decode_sweeps > 0) {
    out.decode_sweep_s = decode_s / static_cast<double>(decode_sweeps);
  } else if (out.sweeps > 1) {
    out.decode_sweep_s =
        (out.simulated_s - out.first_sweep_s) / static_cast<double>(out.sweeps - 1);
  }
  extrapolate(plan, requests, limits, job, out);
  return out;
}

std::vector<Task> replay(const layout::Model& model, const Plan& plan, const Footprint& needs,
                         std::span<const BatchState> states) {
  Schedule schedule(model, plan, needs);
  Keeper keeper;
  schedule.start(keeper);
  for (const BatchState& state : states) schedule.next(state, keeper);
  return std::move(keeper.tasks);
}

}  // namespace transload::planner
