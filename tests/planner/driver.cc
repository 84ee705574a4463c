#include "tests/planner/driver.h"

#include <algorithm>

namespace transload::tests {

Driver::Driver(const planner::Plan& plan, planner::Schedule& schedule,
               std::vector<Request> requests)
    : plan_(plan),
      schedule_(schedule),
      requests_(std::move(requests)),
      running_(static_cast<size_t>(plan.row_slots()), -1),
      made_(static_cast<size_t>(plan.row_slots())) {}

bool Driver::is_done() const {
  return next_ == requests_.size() &&
         std::all_of(running_.begin(), running_.end(), [](int64_t r) { return r < 0; });
}

const planner::Sweep& Driver::step(planner::TaskSink& sink) {
  planner::BatchState state;
  for (const int64_t request : running_) state.active.push_back(request >= 0);
  const size_t last = std::min(requests_.size(), next_ + static_cast<size_t>(plan_.row_slots()));
  for (size_t i = next_; i < last; ++i)
    state.waiting.push_back({.prompt_tokens = requests_[i].prompt_tokens,
                             .max_new_tokens = requests_[i].max_new_tokens,
                             .head_rows = requests_[i].head_rows});
  state.more_waiting = last < requests_.size();
  states_.push_back(state);
  const planner::Sweep& sweep = schedule_.next(state, sink);
  for (const planner::Admission& admission : sweep.admissions) {
    const auto slot = static_cast<size_t>(admission.row_slot);
    running_[slot] = static_cast<int64_t>(next_) + admission.waiting;
    made_[slot] = 0;
  }
  next_ += sweep.admissions.size();
  for (const planner::BatchSweep& batch : sweep.batches)
    for (const planner::SweepRow& row : batch.rows) {
      const auto slot = static_cast<size_t>(row.row_slot);
      const Request& request = requests_[static_cast<size_t>(running_[slot])];
      const bool scored = !plan_.keeps_kv();
      if (scored || ++made_[slot] == request.ends_after) running_[slot] = -1;
    }
  return sweep;
}

void Driver::run(
    planner::TaskSink& sink,
    const std::function<void(const planner::Sweep&, const planner::BatchState&)>& check) {
  schedule_.start(sink);
  while (!is_done()) {
    const planner::Sweep& sweep = step(sink);
    if (check) check(sweep, states_.back());
  }
}

}  // namespace transload::tests
