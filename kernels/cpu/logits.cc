// Log-sum-exp, arg max and target of a row of logits, a tile of kVocabTile at a time.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/logits.cc"
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

constexpr float kLowest = -3.4028234663852886e38F;

// Vector i of a tile of `count` logits; what follows the last is the lowest float.
HWY_INLINE V tile_vector(const float* logits, int64_t s, int64_t count) {
  const D d;
  const bool whole = s + static_cast<int64_t>(hn::Lanes(d)) <= count;
  return whole ? hn::LoadU(d, logits + s) : load_tail(d, logits + s, count - s, kLowest);
}

float tile_maximum(const float* logits, int64_t count) {
  const D d;
  V largest = hn::Set(d, kLowest);
  for (int64_t s = 0; s < count; s += static_cast<int64_t>(hn::Lanes(d))) {
    largest = hn::Max(largest, tile_vector(logits, s, count));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

float tile_sum(const float* logits, int64_t count, float maximum) {
  const D d;
  V sum = hn::Zero(d);
  for (int64_t s = 0; s < count; s += static_cast<int64_t>(hn::Lanes(d))) {
    sum = hn::Add(sum, exponential(d, hn::Sub(tile_vector(logits, s, count), hn::Set(d, maximum))));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void accumulate_tile(const float* logits, int64_t count, int64_t first_token, LogitStats* stats) {
  const float maximum = tile_maximum(logits, count);
  const double sum = static_cast<double>(tile_sum(logits, count, maximum));
  if (stats->best < 0 || maximum > stats->maximum) {
    int64_t best = 0;
    while (best + 1 < count && logits[best] != maximum) ++best;
    const double kept =
        stats->best < 0
            ? 0
            : stats->sum * exp(static_cast<double>(stats->maximum) - static_cast<double>(maximum));
    stats->sum = kept + sum;
    stats->maximum = maximum;
    stats->best = static_cast<int32_t>(first_token + best);
  } else {
    stats->sum += sum * exp(static_cast<double>(maximum) - static_cast<double>(stats->maximum));
  }
  if (stats->target >= first_token && stats->target < first_token + count) {
    stats->target_logit = logits[stats->target - first_token];
  }
}

void accumulate_row(const float* logits, int64_t cols, int64_t first_token, LogitStats* stats) {
  for (int64_t c = 0; c < cols; c += kVocabTile) {
    const int64_t count = cols - c < kVocabTile ? cols - c : kVocabTile;
    accumulate_tile(logits + c, count, first_token + c, stats);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace transload::kernels::cpu {

void set_logit_ops(InstructionSet set, Ops* ops) {
  ops->accumulate_row = TRANSLOAD_CHOOSE(set, accumulate_row);
}

}  // namespace transload::kernels::cpu
#endif  // HWY_ONCE
