// `transload score`: log-probabilities of given texts.
#pragma once

#include "engine/run/job_steps.h"

namespace transload::engine {

struct ScoreOptions {
  RunOptions run;
  int64_t window = 0;  // of whole texts; 0: the model's context
  int64_t stride = 0;  // 0: the window
  bool token_logprobs = false;
};

// As generate(); the summary has the mean NLL and the perplexity over all scored tokens.
Outcome score(const ScoreOptions& options);

}  // namespace transload::engine
