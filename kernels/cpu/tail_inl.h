// Vectors of which only the first `count` lanes lie in memory. Included once for each target.
#if defined(TRANSLOAD_KERNELS_CPU_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRANSLOAD_KERNELS_CPU_TAIL_INL_H_
#undef TRANSLOAD_KERNELS_CPU_TAIL_INL_H_
#else
#define TRANSLOAD_KERNELS_CPU_TAIL_INL_H_
#endif

#include "kernels/cpu/targets.h"
// After targets.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first `count` numbers at p, then `fill`. Reads no further.
template <class D>
HWY_INLINE hn::Vec<D> load_tail(D d, const float* p, int64_t count, float fill = 0) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(hn::Set(d, fill), d, lanes);
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return hn::Load(d, lanes);
}

// Writes the first `count` lanes of v to p and nothing further.
template <class D>
HWY_INLINE void store_tail(D d, hn::Vec<D> v, float* p, int64_t count) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TRANSLOAD_KERNELS_CPU_TAIL_INL_H_
