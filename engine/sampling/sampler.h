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

  bool operator==(const SamplingOptions&) const = default;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// What one row's sampling gives. logprob and top are those of the raw logits and filled when
// options.logprobs >= 0 only; top has up to logprobs entries, best first, ties by smallest token.
struct Sampled {
  int32_t token = -1;
  float logprob = 0;
  std::vector<TokenLogprob> top;  // reserved by the caller: no allocation in sample()
};

// Scratch of one worker: sized once for a vocabulary (24 bytes a token).
class SamplingScratch {
 public:
  explicit SamplingScratch(int64_t vocab);
  std::vector<double> values;   // logits after penalties
  std::vector<double> weights;  // exp((value - largest) / temperature)
  std::vector<int32_t> order;   // tokens still in the draw
  std::vector<int32_t> counts;  // all 0 between calls
};

// One row to sample.
struct SampleRow {
  std::span<const float> logits = {};    // [vocab], raw
  std::span<const int32_t> prompt = {};  // the request's tokens so far, for the penalties
  std::span<const int32_t> generated = {};
  std::span<const int32_t> banned = {};  // may not be drawn now (end tokens before min_tokens)
  uint64_t stream = 0;                   // of the request: the hash of its id
  int64_t step = 0;                      // 0 = first new token
};

// Draws the next token of a row. In this order:
//   log-softmax of the raw logits (for logprobs), summed in double in token order
//   repetition penalty over prompt and generated: logit > 0 ? logit / p : logit * p
//   presence and frequency penalty over generated: logit -= presence + frequency * count
//   banned tokens removed
//   temperature; 0: arg max, the smallest token on ties, and nothing below applies
//   top_k: the k best, ties by smallest token
//   top_p: of those the fewest best ones whose probabilities sum to at least top_p
//   min_p: of those the ones with at least min_p times the best one's probability
// and then one draw over what is left, in token order, by counter_uniform(seed, stream, step): the
// same request gives the same tokens in any batch, order or resume.
// Source: CTRL (arXiv:1909.05858) for the repetition penalty; the OpenAI API for the other two.
// Allocates nothing once scratch is made and result.top reserved.
// Errors: kInternal "non-finite logits" when a logit is NaN or +infinity, or when no token is left
// (all -infinity or banned). Requires: scratch made for logits.size() tokens.
void sample(const SampleRow& row, const SamplingOptions& options, SamplingScratch& scratch,
            Sampled& result);

// The logprobs part alone, for given tokens (scoring): log-softmax of `logits` at `token`, and
// whether `token` is the arg max (the smallest on ties). Errors: as sample().
struct ScoredToken {
  float logprob = 0;
  bool is_greedy = false;
};
ScoredToken score_token(std::span<const float> logits, int32_t token);

// Uniform in [0, 1) for (seed, stream, step): the top 53 bits of the first two words of Philox
// 4x32-10 with key = seed and counter = (stream, step), low words first.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
double counter_uniform(uint64_t seed, uint64_t stream, uint64_t step);

}  // namespace transload::engine
