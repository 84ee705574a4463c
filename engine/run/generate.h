// `transload generate`: a job from its first line to its last.
#pragma once

#include "engine/run/job_steps.h"

namespace transload::engine {

struct GenerateOptions {
  RunOptions run;
  SamplingOptions defaults;  // of fields that a line leaves out
  std::string chat_now;      // what a chat template takes for now; empty: when the job began
};

// Reads, plans, runs and writes; the summary goes to standard error, or with --json (or for a dry
// run) to standard output. kPartial: some lines became error records. Errors: those of its parts,
// before any work where the job, the model, the flags or the budgets are at fault.
Outcome generate(const GenerateOptions& options);

}  // namespace transload::engine
