// Attention of a few query vectors over runs of kBlockSlots slots.
#include <cstdint>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h: once for each target.
#include "kernels/cpu/dot_tile_inl.h"
#include "kernels/cpu/exp_inl.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kLowest = -3.4028234663852886e38F;

// One run of slots as a tile sees it.
struct Run {
  const float* k;
  const float* v;
  int64_t ld;
  int64_t slots[kAttendTile];  // that each vector sees of this run, at most kBlockSlots
};

// What a vector has gathered over the runs so far: softmax numerators relative to `maximum`.
struct Gathered {
  float maximum;
  float sum;
};

float exp_one(float x) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(exponential(d, hn::Set(d, x)));
}

int64_t most(const int64_t* values, int64_t count) {
  int64_t result = values[0];
  for (int64_t i = 1; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

// scores[i, s] = q[i] . k[s] * scale for slots s that some vector sees
void score_run(const AttendTileArgs& args, const Run& run, float* scores) {
  HWY_ALIGN float sums[kTileRows * kTileCols];
  const int64_t slots = most(run.slots, args.count);
  for (int64_t s = 0; s < slots; s += kTileCols) {
    const float* k[kTileCols];
    for (int64_t b = 0; b < kTileCols; ++b) {
      k[b] = run.k + (s + b < slots ? s + b : slots - 1) * run.ld;
    }
    for (int64_t i = 0; i < args.count; i += kTileRows) {
      const int64_t m = args.count - i < kTileRows ? args.count - i : kTileRows;
      dot_rows(m, args.q + i, k, args.head_dim, sums);
      for (int64_t a = 0; a < m; ++a) {
        for (int64_t b = 0; b < kTileCols; ++b) {
          scores[(i + a) * kBlockSlots + s + b] = sums[a * kTileCols + b] * args.scale;
        }
      }
    }
  }
}

// Turns the first `slots` scores into exp(score - maximum) and what follows them into zeros.
Gathered soften_run(float* scores, int64_t slots) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t s = slots; s % lanes != 0; ++s) scores[s] = kLowest;
  auto largest = hn::Set(d, kLowest);
  for (int64_t s = 0; s < slots; s += lanes) largest = hn::Max(largest, hn::LoadU(d, scores + s));
  const auto maximum = hn::MaxOfLanes(d, largest);
  auto sum = hn::Zero(d);
  for (int64_t s = 0; s < slots; s += lanes) {
    const auto p = exponential(d, hn::Sub(hn::LoadU(d, scores + s), maximum));
    hn::StoreU(p, d, scores + s);
    sum = hn::Add(sum, p);
  }
  return {hn::GetLane(maximum), hn::GetLane(hn::SumOfLanes(d, sum))};
}

struct Weigh {
  const float* p;  // [kM, kBlockSlots]
  const float* v;
  int64_t ld_v;
  int64_t first;  // slots [first, last); with first 0 the sums start at zero
  int64_t last;
  float* out;
  int64_t ld_out;
};

// out[i, e..] += p[i, s] * v[s, e..] in slot order, for kM vectors and kN registers of dimensions
template <int kM, int kN, class D>
HWY_INLINE void weigh_tile(D d, const Weigh& of, int64_t e) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kM][kN];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kN; ++j) {
      sums[i][j] =
          of.first == 0 ? hn::Zero(d) : hn::LoadU(d, of.out + i * of.ld_out + e + j * lanes);
    }
  }
  for (int64_t s = of.first; s < of.last; ++s) {
    V p[kM];
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) p[i] = hn::Set(d, of.p[i * kBlockSlots + s]);
#pragma GCC unroll 4
    for (int j = 0; j < kN; ++j) {
      const V v = hn::LoadU(d, of.v + s * of.ld_v + e + j * lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) sums[i][j] = hn::MulAdd(p[i], v, sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kN; ++j) {
      hn::StoreU(sums[i][j], d, of.out + i * of.ld_out + e + j * lanes);
    }
  }
}

// As weigh_tile for all dimensions. A dimension's sum is the same in each of the loops.
template <int kM>
void weigh_rows(const Weigh& of, int64_t head_dim) {
  constexpr int kWide = 4;
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t e = 0;
  for (; e + kWide * lanes <= head_dim; e += kWide * lanes) weigh_tile<kM, kWide>(d, of, e);
  for (; e + lanes <= head_dim; e += lanes) weigh_tile<kM, 1>(d, of, e);
  for (; e < head_dim; ++e) weigh_tile<kM, 1>(one, of, e);
}

// part[i] = sum of p[i, s] * v[s] over the slots that vector i sees
void weigh_run(const AttendTileArgs& args, const Run& run, const float* p, float* part) {
  int64_t i = 0;
  for (; i + kTileRows <= args.count; i += kTileRows) {
    int64_t common = run.slots[i];
    for (int64_t a = 1; a < kTileRows; ++a) {
      common = run.slots[i + a] < common ? run.slots[i + a] : common;
    }
    weigh_rows<kTileRows>(
        {p + i * kBlockSlots, run.v, run.ld, 0, common, part + i * args.head_dim, args.head_dim},
        args.head_dim);
    for (int64_t a = i; a < i + kTileRows; ++a) {
      if (run.slots[a] == common) continue;
      weigh_rows<1>({p + a * kBlockSlots, run.v, run.ld, common, run.slots[a],
                     part + a * args.head_dim, args.head_dim},
                    args.head_dim);
    }
  }
  for (; i < args.count; ++i) {
    weigh_rows<1>({p + i * kBlockSlots, run.v, run.ld, 0, run.slots[i], part + i * args.head_dim,
                   args.head_dim},
                  args.head_dim);
  }
}

// merged = merged * before + part * now, and what it has gathered alike
void merge_run(const Gathered& own, const float* part, int64_t head_dim, Gathered* all,
               float* merged) {
  const float maximum = own.maximum > all->maximum ? own.maximum : all->maximum;
  const float before = exp_one(all->maximum - maximum);
  const float now = exp_one(own.maximum - maximum);
  const float kept = all->sum * before;
  const float added = own.sum * now;
  *all = {maximum, kept + added};
  for (int64_t e = 0; e < head_dim; ++e) {
    const float old = merged[e] * before;
    const float fresh = part[e] * now;
    merged[e] = old + fresh;
  }
}

Run run_of(const AttendTileArgs& args, int64_t index) {
  Run run = {};
  const KvRuns& kv = args.kv;
  const int64_t first = index * kBlockSlots;
  run.k = kv.blocks != nullptr ? kv.blocks[index] + kv.k_offset : kv.k + first * kv.ld;
  run.v = kv.blocks != nullptr ? kv.blocks[index] + kv.v_offset : kv.v + first * kv.ld;
  run.ld = kv.ld;
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t seen = args.slots[i] - first;
    run.slots[i] = seen < 0 ? 0 : seen > kBlockSlots ? kBlockSlots : seen;
  }
  return run;
}

void attend_tile(const AttendTileArgs& args) {
  float* scores = args.scratch;
  float* part = scores + kAttendTile * kBlockSlots;
  float* merged = part + kAttendTile * args.head_dim;
  Gathered all[kAttendTile];
  const int64_t runs = (most(args.slots, args.count) + kBlockSlots - 1) / kBlockSlots;
  for (int64_t index = 0; index < runs; ++index) {
    const Run run = run_of(args, index);
    Gathered own[kAttendTile];
    score_run(args, run, scores);
    for (int64_t i = 0; i < args.count; ++i) {
      if (run.slots[i] > 0) own[i] = soften_run(scores + i * kBlockSlots, run.slots[i]);
    }
    weigh_run(args, run, scores, index == 0 ? merged : part);
    for (int64_t i = 0; i < args.count; ++i) {
      if (run.slots[i] == 0) continue;
      if (index == 0) {
        all[i] = own[i];
      } else {
        merge_run(own[i], part + i * args.head_dim, args.head_dim, &all[i],
                  merged + i * args.head_dim);
      }
    }
  }
  for (int64_t i = 0; i < args.count; ++i) {
    const float inverse = 1.0F / all[i].sum;
    for (int64_t e = 0; e < args.head_dim; ++e) {
      args.out[i][e] = merged[i * args.head_dim + e] * inverse;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace transload::kernels::cpu {

void set_attend_ops(InstructionSet set, Ops* ops) {
  ops->attend_tile = TRANSLOAD_CHOOSE(set, attend_tile);
}

}  // namespace transload::kernels::cpu
#endif  // HWY_ONCE
