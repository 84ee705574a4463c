#include "kernels/cpu/workers.h"

#include <tbb/info.h>

namespace transload::kernels::cpu {

Workers::Workers(int threads) : threads_(threads), arena_(threads) {
  if (threads > tbb::info::default_concurrency()) {
    limit_.emplace(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads));
  }
}

}  // namespace transload::kernels::cpu

#if defined(__SANITIZE_THREAD__)
// TBB's headers are instrumented and its library is not: what they share looks unordered. Only
// accesses by TBB's own lines (and the counters it keeps) are left out, not those of its tasks.
extern "C" const char* __tsan_default_suppressions() {
  return "race_top:oneapi/tbb\nrace_top:bits/atomic_base.h\ncalled_from_lib:libtbb.so\n";
}
#endif
