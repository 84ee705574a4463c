// Drives a schedule as the executor does, with made-up ends of sequences.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/schedule.h"

namespace transload::tests {

struct Request {
  int64_t prompt_tokens = 1;
  int64_t max_new_tokens = 1;
  int64_t ends_after = 1;  // new tokens, at most max_new_tokens
  int64_t head_rows = 1;
};

class Driver {
 public:
  Driver(const planner::Plan& plan, planner::Schedule& schedule, std::vector<Request> requests);

  bool is_done() const;
  // Runs the next sweep; the states before it are kept.
  const planner::Sweep& step(planner::TaskSink& sink);
  // Runs all sweeps; `check` sees each one, and the state from which it was made.
  void run(
      planner::TaskSink& sink,
      const std::function<void(const planner::Sweep&, const planner::BatchState&)>& check = {});

  // By row slot: the request in it, or -1.
  const std::vector<int64_t>& running() const { return running_; }
  const std::vector<Request>& requests() const { return requests_; }
  int64_t admitted() const { return static_cast<int64_t>(next_); }
  const std::vector<planner::BatchState>& states() const { return states_; }

 private:
  const planner::Plan& plan_;
  planner::Schedule& schedule_;
  std::vector<Request> requests_;
  std::vector<planner::BatchState> states_;
  std::vector<int64_t> running_;
  std::vector<int64_t> made_;  // new tokens, by row slot
  size_t next_ = 0;
};

}  // namespace transload::tests
