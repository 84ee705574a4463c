#include "planner/machine.h"

#include <algorithm>

#include "base/check.h"

namespace transload::planner {

Machine limited(const Machine& machine, const Plan& plan) {
  Machine slower = machine;
  const auto limit = [](double& rate, double most) {
    if (most > 0) rate = std::min(rate, most);
  };
  limit(slower.link_bytes_per_s, plan.link_bytes_per_s);
  limit(slower.disk_read_bytes_per_s, plan.disk_bytes_per_s);
  limit(slower.disk_write_bytes_per_s, plan.disk_bytes_per_s);
  return slower;
}

double seconds(const Machine& machine, const Task& task) {
  const auto bytes = static_cast<double>(task.bytes);
  const auto moved = [&](double rate) {
    check(rate > 0, "machine without a rate for a lane");
    return machine.task_s + bytes / rate;
  };
  switch (task.lane) {
    case Lane::kDiskRead:
      return moved(machine.disk_read_bytes_per_s);
    case Lane::kDiskWrite:
      return moved(machine.disk_write_bytes_per_s);
    case Lane::kHostToDevice:
    case Lane::kDeviceToHost:
      return moved(machine.link_bytes_per_s);
    case Lane::kDeviceCompute:
    case Lane::kHostCompute:
      break;
  }
  check(machine.compute_flops_per_s > 0, "machine without a compute rate");
  return moved(machine.compute_bytes_per_s) +
         static_cast<double>(task.flops) / machine.compute_flops_per_s;
}

}  // namespace transload::planner
