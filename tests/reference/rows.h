// Specifications of norms, activations and rotary positions: plain loops in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "layout/decoder_spec.h"

namespace transload::reference {

struct Moments {
  double mean = 0;  // 0 for kRms
  double variance = 0;
};

inline Moments moments(layout::NormKind kind, const std::vector<float>& x) {
  const auto dim = static_cast<double>(x.size());
  Moments of;
  if (kind == layout::NormKind::kLayer) {
    for (const float v : x) of.mean += static_cast<double>(v) / dim;
  }
  for (const float v : x) {
    const double apart = static_cast<double>(v) - of.mean;
    of.variance += apart * apart / dim;
  }
  return of;
}

//   x, weight, bias (or empty) [dim]  ->  [dim]
inline std::vector<double> norm(layout::NormKind kind, const std::vector<float>& x,
                                const std::vector<float>& weight, const std::vector<float>& bias,
                                double eps) {
  const Moments of = moments(kind, x);
  std::vector<double> y(x.size());
  for (size_t c = 0; c < x.size(); ++c) {
    const double unit = (static_cast<double>(x[c]) - of.mean) / std::sqrt(of.variance + eps);
    y[c] = unit * static_cast<double>(weight[c]);
    if (!bias.empty()) y[c] += static_cast<double>(bias[c]);
  }
  return y;
}

inline double activation(layout::Activation kind, double x) {
  switch (kind) {
    case layout::Activation::kSilu:
      return x / (1 + std::exp(-x));
    case layout::Activation::kGelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case layout::Activation::kGeluTanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case layout::Activation::kRelu:
      return x > 0 ? x : 0;
  }
  return NAN;
}

// Rotates one head [head_dim]; the angle is rounded to float32, as in the model's own code.
inline std::vector<double> rotate(const std::vector<float>& x, int64_t rotary_dim,
                                  layout::RotaryStyle style, const std::vector<float>& frequencies,
                                  int32_t position, double magnitude) {
  std::vector<double> y(x.begin(), x.end());
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    const float angle = static_cast<float>(position) * frequencies[static_cast<size_t>(i)];
    const double cosine = std::cos(static_cast<double>(angle)) * magnitude;
    const double sine = std::sin(static_cast<double>(angle)) * magnitude;
    const bool halves = style == layout::RotaryStyle::kHalves;
    const auto a = static_cast<size_t>(halves ? i : 2 * i);
    const auto b = static_cast<size_t>(halves ? i + rotary_dim / 2 : 2 * i + 1);
    y[a] = static_cast<double>(x[a]) * cosine - static_cast<double>(x[b]) * sine;
    y[b] = static_cast<double>(x[b]) * cosine + static_cast<double>(x[a]) * sine;
  }
  return y;
}

}  // namespace transload::reference
