// What a machine does in a second. The engine measures it when it starts and hands it in.
#pragma once

#include "planner/plan.h"
#include "planner/task.h"

namespace transload::planner {

struct Machine {
  double disk_read_bytes_per_s = 0;
  double disk_write_bytes_per_s = 0;
  double link_bytes_per_s = 0;  // host <-> device, each direction
  double compute_flops_per_s = 0;
  double compute_bytes_per_s = 0;  // weights (expanded from their format) and KV read by compute
  double task_s = 0;               // to start a task on a lane
};

// The machine under the emulated rates of a plan.
Machine limited(const Machine& machine, const Plan& plan);

// Seconds in which a lane does a task, alone.
//
//   moving lanes   task_s + bytes / rate of the lane
//   compute lanes  task_s + bytes / compute_bytes_per_s + flops / compute_flops_per_s
//
// Requires: the lane's rates are above 0.
double seconds(const Machine& machine, const Task& task);

}  // namespace transload::planner
