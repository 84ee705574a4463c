// The backend's attention: how query vectors are spread over the workers.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/workers.h"

namespace transload::kernels::cpu {

struct AttentionWorkers {
  const Ops& ops;
  Workers& workers;
  float* scratch = nullptr;    // of the first worker, at least attend_scratch_floats
  int64_t scratch_floats = 0;  // of each worker
};

// As Backend's operations of the same names.
void attend(const AttendArgs& args, const AttentionWorkers& on);
void attend_prompt(const AttendPromptArgs& args, const AttentionWorkers& on);

}  // namespace transload::kernels::cpu
