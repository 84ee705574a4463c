// The exponential of every operation. Included once for each target.
#if defined(TRANSLOAD_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRANSLOAD_KERNELS_CPU_EXP_INL_H_
#undef TRANSLOAD_KERNELS_CPU_EXP_INL_H_
#else
#define TRANSLOAD_KERNELS_CPU_EXP_INL_H_
#endif

#include "kernels/cpu/targets.h"
// After targets.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for x <= 88, within one unit in the last place; NaN for NaN, of which Highway's makes zero.
template <class D>
HWY_INLINE hn::Vec<D> exponential(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

// e^x for x <= 0, within two units in the last place; zero below the smallest normal number, NaN
// for NaN. Half the instructions of the one above. Polynomial of Cephes' expf.
template <class D>
HWY_INLINE hn::Vec<D> exponential_of_negative(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> bits;
  // With so large a number added, the lowest bits of the sum are x / log(2) as an integer.
  const auto shift = hn::Set(d, 0x1.8p23F);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p0F), shift);
  const auto whole = hn::Sub(shifted, shift);
  auto r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375F), x);
  r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4F), r);
  auto p = hn::Set(d, 1.9875691500e-4F);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0F));
  const auto power =
      hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, shifted)), hn::Set(bits, 0x3f800000U));
  const auto y = hn::Mul(p, hn::BitCast(d, power));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.3F)), hn::Zero(d), y);
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TRANSLOAD_KERNELS_CPU_EXP_INL_H_
