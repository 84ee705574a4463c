// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace transload::engine {

// Fields under their OpenAI names. Requires (checked by the job reader): temperature >= 0,
// 0 < top_p <= 1, top_k >= 0 (0: all), 0 <= min_p <= 1, repetition_penalty > 0.
struct SamplingOptions {
  double temperature = 0;
  double top_p = 1;
  int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  uint64_t seed = 0;
  int64_t max_tokens = 256;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  int64_t logprobs = -1;  // -1: none; N: the token's and the N best
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// What one row's sampling gives. `top` is filled up to logprobs entries, best first.
struct Sampled {
  int32_t token = -1;
  float logprob = 0;
  std::vector<TokenLogprob> top;  // reserved by the caller: no allocation in sample()
};

// Scratch of one worker: sized once for a vocabulary.
class SamplingScratch {
 public:
  explicit SamplingScratch(int64_t vocab);
  std::vector<float> values;
  std::vector<int32_t> order;
};

// Draws the token of `step` (0 = first new token) of the request with this seed.
//   logits [vocab], raw; prompt and generated: the request's tokens so far (for the penalties);
//   banned: tokens that may not be drawn now (end tokens before min_tokens)
// log-softmax (of the raw logits) first, then repetition, presence and frequency penalties,
// temperature, top_k, top_p, min_p. temperature 0: arg max after the penalties, the smallest token
// on ties. Random numbers are counter-based, a function of (seed, step) alone (Philox 4x32-10).
// Errors: kInternal "non-finite logits" when a logit is NaN or +infinity.
void sample(std::span<const float> logits, const SamplingOptions& options,
            std::span<const int32_t> prompt, std::span<const int32_t> generated, int64_t step,
            std::span<const int32_t> banned, SamplingScratch& scratch, Sampled& result);

// Uniform in [0, 1) for (seed, stream, step).
double counter_uniform(uint64_t seed, uint64_t stream, uint64_t step);

}  // namespace transload::engine
