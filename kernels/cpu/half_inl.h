// Conversion of float16. Included once for each target.
#if defined(TRANSLOAD_KERNELS_CPU_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRANSLOAD_KERNELS_CPU_HALF_INL_H_
#undef TRANSLOAD_KERNELS_CPU_HALF_INL_H_
#else
#define TRANSLOAD_KERNELS_CPU_HALF_INL_H_
#endif

#include "kernels/cpu/targets.h"
// After targets.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `half` holds the 16 bits of a half in each lane. See quant::half_to_float.
template <class D>
HWY_INLINE hn::Vec<D> half_to_float(D d, hn::Vec<hn::Rebind<uint32_t, D>> half) {
  const hn::Rebind<uint32_t, D> bits;
  const hn::Rebind<int32_t, D> integers;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(bits, 0x8000U)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(bits, 0x7fffU)));
  const auto finite = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112F));
  const auto special = hn::Or(magnitude, hn::Set(bits, 0x7f800000U));
  const auto is_special = hn::Gt(hn::BitCast(integers, magnitude), hn::Set(integers, 0x0f7fffff));
  const auto value =
      hn::IfThenElse(hn::RebindMask(bits, is_special), special, hn::BitCast(bits, finite));
  return hn::BitCast(d, hn::Or(sign, value));
}

// A vector of numbers of the KV cache as float32. Highway's own conversion without F16C knows no
// infinity and no NaN.
template <class D>
HWY_INLINE hn::Vec<D> load_kv(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_kv(D d, const hwy::float16_t* p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), p));
#else
  const auto halves = hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(p));
  return half_to_float(d, hn::PromoteTo(hn::Rebind<uint32_t, D>(), halves));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TRANSLOAD_KERNELS_CPU_HALF_INL_H_
