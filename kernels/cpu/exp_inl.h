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

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TRANSLOAD_KERNELS_CPU_EXP_INL_H_
