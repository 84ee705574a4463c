// Specification of attention of one query vector: plain loops in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace transload::reference {

struct Attended {
  std::vector<double> out;  // [head_dim]
  double log_sum_exp = 0;   // of the scores
};

// softmax(q . k[s] * scale) v over s < slots; k(s) and v(s) give rows of head_dim numbers.
inline Attended attend(const float* q, const std::function<const float*(int64_t)>& k,
                       const std::function<const float*(int64_t)>& v, int64_t slots,
                       int64_t head_dim, double scale) {
  std::vector<double> scores(static_cast<size_t>(slots));
  for (int64_t s = 0; s < slots; ++s) {
    for (int64_t e = 0; e < head_dim; ++e) {
      scores[static_cast<size_t>(s)] +=
          static_cast<double>(q[e]) * static_cast<double>(k(s)[e]) * scale;
    }
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(static_cast<size_t>(head_dim));
  for (int64_t s = 0; s < slots; ++s) {
    const double p = std::exp(scores[static_cast<size_t>(s)] - maximum);
    sum += p;
    for (int64_t e = 0; e < head_dim; ++e)
      out[static_cast<size_t>(e)] += p * static_cast<double>(v(s)[e]);
  }
  for (double& value : out) value /= sum;
  return {out, maximum + std::log(sum)};
}

}  // namespace transload::reference
