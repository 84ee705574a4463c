// Random models, plans and jobs, small, from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/planner/driver.h"
#include "tests/planner/models.h"

namespace transload::tests {

struct Case {
  layout::Model model;
  planner::Plan plan;
  std::vector<Request> requests;
};

Case random_case(uint64_t seed);

}  // namespace transload::tests
