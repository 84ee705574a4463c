// Fills the tiers for one batch shape.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "planner/placement.h"

namespace transload::planner {

struct BatchShape {
  int64_t batch_size = 1;
  int64_t num_batches = 1;
};

// How much is spent on buffers, from comfortable to the least there is.
inline constexpr int kThriftLevels = 5;

struct Shortage {
  std::string tier;  // "device", "host", "disk", "memory"
  int64_t needed_bytes = 0;
  int64_t there_bytes = 0;
};

// A filled plan with its budgets, or what is missing for it.
std::variant<Plan, Shortage> fill(const PlacementInput& input, const BatchShape& shape, int thrift);

// The plan with the least on device and host, its budgets what it needs.
Plan fill_least(const PlacementInput& input, const BatchShape& shape);

}  // namespace transload::planner
