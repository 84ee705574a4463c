#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/error.h"

namespace transload::engine {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

size_t index(int32_t token) { return static_cast<size_t>(token); }

// The largest logit. Errors: kInternal when one is NaN or +infinity, or all are -infinity.
double largest_logit(std::span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < std::numeric_limits<float>::infinity())) {
      throw Error(Kind::kInternal, "non-finite logits: token " + std::to_string(i) + " has " +
                                       std::to_string(logits[i]) +
                                       "; check the checkpoint for damaged weights");
    }
    largest = std::max(largest, logits[i]);
  }
  if (std::isinf(largest)) {
    throw Error(Kind::kInternal,
                "non-finite logits: all are -infinity; check the checkpoint for damaged weights");
  }
  return largest;
}

// log(sum of exp(logit)), summed in token order.
double log_sum(std::span<const float> logits, double largest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

// Finite also where the difference is beyond float.
float to_logprob(float logit, double log_total) {
  const double least = std::numeric_limits<float>::lowest();
  return static_cast<float>(std::max(least, static_cast<double>(logit) - log_total));
}

// The n best logits by insertion into a sorted list; tokens come in ascending order, so a strict
// comparison keeps the smaller token first.
void fill_top(std::span<const float> logits, int64_t n, std::vector<TokenLogprob>& top) {
  top.clear();
  if (n <= 0) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool full = static_cast<int64_t>(top.size()) == n;
    if (std::isinf(logits[i]) || (full && !(logits[i] > top.back().logprob))) continue;
    if (full) top.pop_back();
    const auto place = std::upper_bound(
        top.begin(), top.end(), logits[i],
        [](float logit, const TokenLogprob& entry) { return logit > entry.logprob; });
    top.insert(place, {static_cast<int32_t>(i), logits[i]});
  }
}

void fill_logprobs(std::span<const float> logits, double largest, int64_t n, Sampled& result) {
  const double log_total = log_sum(logits, largest);
  result.logprob = to_logprob(logits[index(result.token)], log_total);
  fill_top(logits, n, result.top);
  for (TokenLogprob& entry : result.top) entry.logprob = to_logprob(entry.logprob, log_total);
}

void penalise_repetition(std::span<const int32_t> tokens, double penalty,
                         SamplingScratch& scratch) {
  for (const int32_t token : tokens) {
    if (scratch.counts[index(token)]++ > 0) continue;
    double& value = scratch.values[index(token)];
    value = value > 0 ? value / penalty : value * penalty;
  }
}

void clear_counts(std::span<const int32_t> tokens, SamplingScratch& scratch) {
  for (const int32_t token : tokens) scratch.counts[index(token)] = 0;
}

// Logits after penalties and bans, in scratch.values.
void penalise(const SampleRow& row, const SamplingOptions& options, SamplingScratch& scratch) {
  std::copy(row.logits.begin(), row.logits.end(), scratch.values.begin());
  if (options.repetition_penalty != 1) {
    penalise_repetition(row.prompt, options.repetition_penalty, scratch);
    penalise_repetition(row.generated, options.repetition_penalty, scratch);
    clear_counts(row.prompt, scratch);
    clear_counts(row.generated, scratch);
  }
  if (options.presence_penalty != 0 || options.frequency_penalty != 0) {
    for (const int32_t token : row.generated) ++scratch.counts[index(token)];
    for (const int32_t token : row.generated) {
      int32_t& count = scratch.counts[index(token)];
      if (count == 0) continue;
      scratch.values[index(token)] -= options.presence_penalty + options.frequency_penalty * count;
      count = 0;
    }
  }
  for (const int32_t token : row.banned) scratch.values[index(token)] = kNever;
}

int32_t arg_max(const std::vector<double>& values) {
  const auto best = std::max_element(values.begin(), values.end());
  if (*best == kNever) {
    throw Error(Kind::kInternal,
                "non-finite logits: no token is left after the banned ones; allow one more token "
                "or lower min_tokens");
  }
  return static_cast<int32_t>(best - values.begin());
}

// Keeps of scratch.order[0, kept) the fewest best tokens whose weights reach top_p of `total`.
// Sorts only as far as needed. Returns how many; these are the first ones then.
template <class Better>
size_t cut_top_p(double top_p, double total, SamplingScratch& scratch, Better better) {
  const auto begin = scratch.order.begin();
  const size_t all = scratch.order.size();
  double sum = 0;
  for (size_t sorted = 0, next = 64; sorted < all; next *= 8) {
    const size_t end = std::min(all, next);
    const auto first = begin + static_cast<std::ptrdiff_t>(sorted);
    const auto last = begin + static_cast<std::ptrdiff_t>(end);
    if (end < all) std::nth_element(first, last, scratch.order.end(), better);
    std::sort(first, last, better);
    for (; sorted < end; ++sorted) {
      sum += scratch.weights[index(scratch.order[sorted])];
      if (sum >= top_p * total) return sorted + 1;
    }
  }
  return all;
}

double total_weight(const SamplingScratch& scratch) {
  double total = 0;
  for (const int32_t token : scratch.order) total += scratch.weights[index(token)];
  return total;
}

// Leaves in scratch.order the tokens in the draw, ascending, and fills scratch.weights for them.
void choose_candidates(const SamplingOptions& options, int32_t best, SamplingScratch& scratch) {
  const auto better = [&](int32_t a, int32_t b) {
    const double x = scratch.values[index(a)], y = scratch.values[index(b)];
    return x > y || (x == y && a < b);
  };
  std::vector<int32_t>& order = scratch.order;
  order.resize(scratch.values.size());  // within its capacity
  std::iota(order.begin(), order.end(), 0);
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + options.top_k, order.end(), better);
    order.resize(static_cast<size_t>(options.top_k));
    std::sort(order.begin(), order.end());
  }
  const double largest = scratch.values[index(best)];
  for (const int32_t token : order) {
    scratch.weights[index(token)] =
        std::exp((scratch.values[index(token)] - largest) / options.temperature);
  }
  if (options.top_p < 1) {
    order.resize(cut_top_p(options.top_p, total_weight(scratch), scratch, better));
    std::sort(order.begin(), order.end());
  }
  // The best token's weight is exp(0) = 1.
  std::erase_if(order, [&](int32_t token) {
    const double weight = scratch.weights[index(token)];
    return weight < options.min_p || weight == 0;
  });
}

int32_t draw(double uniform, const SamplingScratch& scratch) {
  const double target = uniform * total_weight(scratch);
  double sum = 0;
  for (const int32_t token : scratch.order) {
    sum += scratch.weights[index(token)];
    if (target < sum) return token;
  }
  return scratch.order.back();  // target was rounded up to the total
}

}  // namespace

SamplingScratch::SamplingScratch(int64_t vocab)
    : values(static_cast<size_t>(vocab)),
      weights(static_cast<size_t>(vocab)),
      order(static_cast<size_t>(vocab)),
      counts(static_cast<size_t>(vocab)) {}

void sample(const SampleRow& row, const SamplingOptions& options, SamplingScratch& scratch,
            Sampled& result) {
  check(row.logits.size() == scratch.values.size(), "scratch made for another vocabulary");
  const double largest = largest_logit(row.logits);
  penalise(row, options, scratch);
  result.token = arg_max(scratch.values);
  if (options.temperature > 0) {
    choose_candidates(options, result.token, scratch);
    result.token =
        draw(counter_uniform(options.seed, row.stream, static_cast<uint64_t>(row.step)), scratch);
  }
  result.logprob = 0;
  result.top.clear();
  if (options.logprobs >= 0) fill_logprobs(row.logits, largest, options.logprobs, result);
}

ScoredToken score_token(std::span<const float> logits, int32_t token) {
  check(token >= 0 && index(token) < logits.size(), "token outside the vocabulary");
  const double largest = largest_logit(logits);
  const auto best = std::max_element(logits.begin(), logits.end());
  return {to_logprob(logits[index(token)], log_sum(logits, largest)),
          best - logits.begin() == token};
}

}  // namespace transload::engine
