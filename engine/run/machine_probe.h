// Measures this machine for the simulator: the four rates of planner::Machine.
#pragma once

#include "kernels/backend.h"
#include "layout/weights.h"
#include "planner/machine.h"
#include "planner/placement.h"

namespace transload::engine {

// Takes about a fifth of a second: a copy of memory, a direct read of the model's file, a product
// of many rows and one of a single row with weights in the model's most common format.
// Threads, instructions and arithmetic are those of `cpu`.
planner::Machine probe_machine(const layout::Model& model, const kernels::CpuOptions& cpu);

// Memory that a new process may take (MemAvailable, and what the control group leaves), and the
// space free below `directory` or its nearest parent that exists.
planner::FreeBytes probe_free(const std::string& directory);

}  // namespace transload::engine
