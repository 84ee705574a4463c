// Rounding of K and V to float16.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/targets.h"
#include "quant/format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/narrow_row.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h: once for each target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kOverflow = 65520;  // the first that rounds to infinity

uint16_t narrow(float value) {
  const bool overflows = std::fabs(value) >= kOverflow;
  return quant::float_to_half(overflows ? std::numeric_limits<float>::quiet_NaN() : value);
}

void narrow_row(float* row, int64_t values) {
  auto* out = reinterpret_cast<std::byte*>(row);
  int64_t c = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> halves;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; c + lanes <= values; c += lanes) {
    const auto x = hn::LoadU(d, row + c);
    const auto overflows = hn::Ge(hn::Abs(x), hn::Set(d, kOverflow));
    const auto kept = hn::IfThenElse(overflows, hn::NaN(d), x);
    hn::StoreU(hn::DemoteTo(halves, kept), halves, reinterpret_cast<hwy::float16_t*>(out + 2 * c));
  }
#endif
  for (; c < values; ++c) {
    float value = 0;
    memcpy(&value, row + c, sizeof value);
    const uint16_t half = narrow(value);
    memcpy(out + 2 * c, &half, sizeof half);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace transload::kernels::cpu {

void set_narrow_ops(InstructionSet set, Ops* ops) {
  ops->narrow_row = TRANSLOAD_CHOOSE(set, narrow_row);
}

}  // namespace transload::kernels::cpu
#endif  // HWY_ONCE
