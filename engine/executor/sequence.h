// One request while it is being computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampling/sampler.h"

namespace transload::engine {

struct Sequence {
  int64_t request = 0;          // the feed's own number
  std::vector<int32_t> tokens;  // the prompt, then what was generated; room for all is reserved
  int64_t prompt_tokens = 0;    // those computed by the prefill
  int64_t max_new_tokens = 0;   // 0 when scoring
  int64_t head_rows = 1;        // the last prompt rows that the head computes

  // generate
  SamplingOptions sampling;
  uint64_t stream = 0;              // of the random numbers
  std::vector<int32_t> end_tokens;  // banned before min_tokens
  Sampled sampled;                  // of the last sweep
  std::string error;                // non-empty: the row cannot go on (non-finite logits)

  // score: the token after each of the last head_rows rows, tokens[prompt_tokens - head_rows + 1
  // ...]
  std::vector<ScoredToken> scored;

  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
};

}  // namespace transload::engine
