// Operations on one row: norms, activations, sums.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h: once for each target.
#include "kernels/cpu/exp_inl.h"
#include "kernels/cpu/tail_inl.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// sum_c (x[c] - mean)^2, or sum_c x[c] where kPower is 1, in lanes, then folded.
template <int kPower>
float sum_row(const float* x, int64_t dim, float mean) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V centre = hn::Set(d, mean);
  V sum = hn::Zero(d);
  for (int64_t c = 0; c < dim; c += lanes) {
    // What fills a tail adds nothing: it is the mean itself, or zero.
    const V v = c + lanes <= dim ? hn::LoadU(d, x + c)
                                 : load_tail(d, x + c, dim - c, kPower == 1 ? 0 : mean);
    if constexpr (kPower == 1) {
      sum = hn::Add(sum, v);
    } else {
      const V apart = hn::Sub(v, centre);
      sum = hn::MulAdd(apart, apart, sum);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// y = (x - mean) * inverse * weight (+ bias)
HWY_INLINE V normalise(const NormArgs& args, V x, float mean, float inverse, int64_t c) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t left = args.dim - c;
  const bool whole = left >= lanes;
  const V weight = whole ? hn::LoadU(d, args.weight + c) : load_tail(d, args.weight + c, left);
  const V unit = hn::Mul(hn::Sub(x, hn::Set(d, mean)), hn::Set(d, inverse));
  const V scaled = hn::Mul(unit, weight);
  if (args.bias == nullptr) return scaled;
  return hn::Add(scaled, whole ? hn::LoadU(d, args.bias + c) : load_tail(d, args.bias + c, left));
}

void norm_row(const NormArgs& args, int64_t row) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* x = args.x + row * args.ld_x;
  float* y = args.y + row * args.ld_y;
  const auto dim = static_cast<float>(args.dim);
  const bool centred = args.kind == layout::NormKind::kLayer;
  const float mean = centred ? sum_row<1>(x, args.dim, 0) / dim : 0.0F;
  const float variance = sum_row<2>(x, args.dim, mean) / dim;
  const float inverse = 1.0F / sqrtf(variance + args.eps);
  int64_t c = 0;
  for (; c + lanes <= args.dim; c += lanes) {
    hn::StoreU(normalise(args, hn::LoadU(d, x + c), mean, inverse, c), d, y + c);
  }
  if (c < args.dim) {
    const V v = load_tail(d, x + c, args.dim - c);
    store_tail(d, normalise(args, v, mean, inverse, c), y + c, args.dim - c);
  }
}

// x / (1 + exp(-z)); zero where exp(-z) nears the largest float, beyond which it is not defined.
HWY_INLINE V times_sigmoid(D d, V x, V z) {
  const V lowest = hn::Set(d, -88.0F);
  const V denominator = hn::Add(hn::Set(d, 1.0F), exponential(d, hn::Neg(hn::Max(z, lowest))));
  return hn::IfThenZeroElse(hn::Le(z, lowest), hn::Div(x, denominator));
}

// x * P(N(0, 1) < x). The complementary error function of |x| / sqrt(2) is
// t exp(-z^2 + polynomial(t)), t = 1 / (1 + z / 2), within 1.2e-7 of itself for all z >= 0.
// Source: Numerical Recipes, erfcc.
HWY_INLINE V gelu(D d, V x) {
  constexpr float kPolynomial[] = {0.17087277F, -0.82215223F, 1.48851587F, -1.13520398F,
                                   0.27886807F, -0.18628806F, 0.09678418F, 0.37409196F,
                                   1.00002368F, -1.26551223F};
  const V one = hn::Set(d, 1.0F);
  const V z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752F));
  const V t = hn::Div(one, hn::MulAdd(z, hn::Set(d, 0.5F), one));
  V exponent = hn::Set(d, kPolynomial[0]);
  for (int i = 1; i < 10; ++i) exponent = hn::MulAdd(exponent, t, hn::Set(d, kPolynomial[i]));
  const V erfc = hn::Mul(t, exponential(d, hn::NegMulAdd(z, z, exponent)));
  const V tail = hn::Mul(erfc, hn::Set(d, 0.5F));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)));
}

// x / 2 (1 + tanh(u)) = x / (1 + exp(-2 u)),  u = sqrt(2 / pi) (x + 0.044715 x^3)
HWY_INLINE V gelu_tanh(D d, V x) {
  const V cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715F), hn::Set(d, 1.0F));
  return times_sigmoid(d, x, hn::Mul(hn::Set(d, 1.5957691216057308F), hn::Mul(x, cubic)));
}

HWY_INLINE V activated(D d, layout::Activation kind, V x) {
  switch (kind) {
    case layout::Activation::kSilu:
      return times_sigmoid(d, x, x);
    case layout::Activation::kGelu:
      return gelu(d, x);
    case layout::Activation::kGeluTanh:
      return gelu_tanh(d, x);
    case layout::Activation::kRelu:
      return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), x);
  }
  return x;
}

void activate_row(const ActivationArgs& args, int64_t row) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* gate = args.gate + row * args.ld;
  const float* up = args.up == nullptr ? nullptr : args.up + row * args.ld;
  for (int64_t c = 0; c < args.cols; c += lanes) {
    const int64_t left = args.cols - c;
    const bool whole = left >= lanes;
    const V x = whole ? hn::LoadU(d, gate + c) : load_tail(d, gate + c, left);
    V y = activated(d, args.kind, x);
    if (up != nullptr) y = hn::Mul(y, whole ? hn::LoadU(d, up + c) : load_tail(d, up + c, left));
    if (whole) {
      hn::StoreU(y, d, gate + c);
    } else {
      store_tail(d, y, gate + c, left);
    }
  }
}

void add_row(const float* x, float* y, int64_t cols) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + c), hn::LoadU(d, x + c)), d, y + c);
  }
  for (; c < cols; ++c) y[c] += x[c];
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace transload::kernels::cpu {

void set_row_ops(InstructionSet set, Ops* ops) {
  ops->norm_row = TRANSLOAD_CHOOSE(set, norm_row);
  ops->activate_row = TRANSLOAD_CHOOSE(set, activate_row);
  ops->add_row = TRANSLOAD_CHOOSE(set, add_row);
}

}  // namespace transload::kernels::cpu
#endif  // HWY_ONCE
