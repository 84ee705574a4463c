// Attention of query vectors over runs of kBlockSlots slots, a run at a time.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h: once for each target.
#include "kernels/cpu/exp_inl.h"
#include "kernels/cpu/product_inl.h"

HWY_BEFORE_NAMESPACE();
namespace transload::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kLowest = -3.4028234663852886e38F;
constexpr int64_t kMostLanes = 16;
// So many vectors convert float16 each time that they read it, rather than once through memory.
constexpr int64_t kFewVectors = 2 * kTileVectors;

// What a vector has gathered over the runs so far: softmax numerators relative to `maximum`.
struct Gathered {
  float maximum;
  float sum;
};

// All vectors' state, in the scratch.
struct State {
  explicit State(const AttendVectorsArgs& args)
      : k(args.scratch),
        v(k + kBlockSlots * args.head_dim),
        scores(v + kBlockSlots * args.head_dim),
        part(scores + kAttendTile * kBlockSlots),
        merged(part + kAttendTile * args.head_dim) {}

  float* k;       // of a run in float32, [head_dim][slot]
  float* v;       // [slot][head_dim]
  float* scores;  // of a tile, [vector][slot]
  float* part;    // of a tile and a run, [vector][head_dim]
  float* merged;  // [vector][head_dim]
  Gathered all[kAttendVectors];
};

// One run of slots as the vectors see it: K [head_dim][slot], V rows ld_v numbers apart. With
// kFromBlocks it lies in a KV block, and the next one is fetched meanwhile.
template <class T, bool kFromBlocks>
struct Run {
  int64_t index;
  const T* k;
  const T* v;
  int64_t ld_v;
  const T* next_k;
  const T* next_v;
};

int64_t in_run(int64_t slots, int64_t run) {
  const int64_t seen = slots - run * kBlockSlots;
  return seen > kBlockSlots ? kBlockSlots : seen;
}

int64_t most(const int64_t* values, int64_t count) {
  int64_t result = values[0];
  for (int64_t i = 1; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

// Turns the first `slots` products into exp(score - maximum) and what follows them into zeros.
Gathered soften(float* scores, int64_t slots, float scale) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto times = hn::Set(d, scale);
  auto largest = hn::Set(d, kLowest);
  for (int64_t s = 0; s < slots; s += lanes) {
    auto score = hn::Mul(hn::LoadU(d, scores + s), times);
    if (s + lanes > slots) {
      const auto seen = hn::FirstN(d, static_cast<size_t>(slots - s));
      score = hn::IfThenElse(seen, score, hn::Set(d, kLowest));
    }
    hn::StoreU(score, d, scores + s);
    largest = hn::Max(largest, score);
  }
  const auto maximum = hn::MaxOfLanes(d, largest);
  auto sum = hn::Zero(d);
  for (int64_t s = 0; s < slots; s += lanes) {
    const auto p = exponential_of_negative(d, hn::Sub(hn::LoadU(d, scores + s), maximum));
    hn::StoreU(p, d, scores + s);
    sum = hn::Add(sum, p);
  }
  return {hn::GetLane(maximum), hn::GetLane(hn::SumOfLanes(d, sum))};
}

// merged = merged * before + part * now for kM vectors, and what they have gathered alike.
template <int kM>
void merge(const Gathered* own, const float* part, int64_t head_dim, Gathered* all, float* merged) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  static_assert(2 * kM <= kMostLanes);
  float rescale[kMostLanes] = {};  // before, then now
  for (int i = 0; i < kM; ++i) {
    const float maximum = own[i].maximum > all[i].maximum ? own[i].maximum : all[i].maximum;
    rescale[i] = all[i].maximum - maximum;
    rescale[kM + i] = own[i].maximum - maximum;
    all[i].maximum = maximum;
  }
  for (int64_t i = 0; i < 2 * kM; i += lanes) {
    hn::StoreU(exponential_of_negative(d, hn::LoadU(d, rescale + i)), d, rescale + i);
  }
  for (int i = 0; i < kM; ++i) {
    const float before = rescale[i];
    const float now = rescale[kM + i];
    const float kept = all[i].sum * before;
    const float added = own[i].sum * now;
    all[i].sum = kept + added;
    float* to = merged + i * head_dim;
    const float* from = part + i * head_dim;
    for (int64_t e = 0; e < head_dim; ++e) {
      const float old = to[e] * before;
      const float fresh = from[e] * now;
      to[e] = old + fresh;
    }
  }
}

// One run for vectors [first, first + kM).
template <int kM, class T, bool kFromBlocks>
void attend_tile(const AttendVectorsArgs& args, const Run<T, kFromBlocks>& run, int64_t first,
                 State& state) {
  const int64_t head_dim = args.head_dim;
  const hn::ScalableTag<float> d;
  const int64_t tile = tile_vectors<kM>() * static_cast<int64_t>(hn::Lanes(d));
  int64_t slots[kM];
  int64_t least = kBlockSlots;
  int64_t largest = 0;
  for (int i = 0; i < kM; ++i) {
    slots[i] = in_run(args.slots[first + i], run.index);
    least = slots[i] < least ? slots[i] : least;
    largest = slots[i] > largest ? slots[i] : largest;
  }
  float* scores = state.scores;
  product<kM, kFromBlocks>(
      Product<T>{args.q + first, run.k, kBlockSlots, 0, head_dim, scores, kBlockSlots, run.next_k},
      (largest + tile - 1) / tile * tile);
  Gathered own[kM];
  const float* weights[kM];
  for (int i = 0; i < kM; ++i) {
    weights[i] = scores + i * kBlockSlots;
    own[i] = soften(scores + i * kBlockSlots, slots[i], args.scale);
  }
  float* merged = state.merged + first * head_dim;
  float* part = run.index == 0 ? merged : state.part;
  product<kM, kFromBlocks>(
      Product<T>{weights, run.v, run.ld_v, 0, least, part, head_dim, run.next_v}, head_dim);
  for (int i = 0; i < kM; ++i) {
    if (slots[i] == least) continue;
    product<1, false>(Product<T>{weights + i, run.v, run.ld_v, least, slots[i], part + i * head_dim,
                                 head_dim, run.v},
                      head_dim);
  }
  if (run.index == 0) {
    for (int i = 0; i < kM; ++i) state.all[first + i] = own[i];
  } else {
    merge<kM>(own, part, head_dim, state.all + first, merged);
  }
}

// The run for `count` vectors from `first` on, at most kM.
template <int kM, class T, bool kFromBlocks>
void attend_few(const AttendVectorsArgs& args, const Run<T, kFromBlocks>& run, int64_t first,
                int64_t count, State& state) {
  if (count == kM) return attend_tile<kM>(args, run, first, state);
  if constexpr (kM > 1) attend_few<kM - 1>(args, run, first, count, state);
}

template <class T, bool kFromBlocks>
void attend_run(const AttendVectorsArgs& args, const Run<T, kFromBlocks>& run, State& state) {
  for (int64_t i = 0; i < args.count; i += kTileVectors) {
    const int64_t left = args.count - i;
    attend_few<kTileVectors>(args, run, i, left < kTileVectors ? left : kTileVectors, state);
  }
}

template <class T>
void widen(const T* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_kv(d, from + i), d, to + i);
  for (; i < count; ++i) hn::StoreU(load_kv(one, from + i), one, to + i);
}

#if HWY_TARGET != HWY_SCALAR
// to[e, s] = from[s, e] in float32, s and e < 4, for rows that are ld numbers apart
template <class T>
HWY_INLINE void transpose_tile(const T* from, int64_t ld, float* to) {
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> pairs;
  const auto low = [&](auto a, auto b) {
    return hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  const auto high = [&](auto a, auto b) {
    return hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  const auto r0 = load_kv(d, from);
  const auto r1 = load_kv(d, from + ld);
  const auto r2 = load_kv(d, from + 2 * ld);
  const auto r3 = load_kv(d, from + 3 * ld);
  const auto a = hn::InterleaveLower(d, r0, r1);
  const auto b = hn::InterleaveLower(d, r2, r3);
  const auto c = hn::InterleaveUpper(d, r0, r1);
  const auto f = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(low(a, b), d, to);
  hn::StoreU(high(a, b), d, to + kBlockSlots);
  hn::StoreU(low(c, f), d, to + 2 * kBlockSlots);
  hn::StoreU(high(c, f), d, to + 3 * kBlockSlots);
}
#endif

// to[e, s] = from[s, e] in float32, for `rows` rows that are ld numbers apart
template <class T>
void transpose(const T* from, int64_t ld, int64_t rows, int64_t head_dim, float* to) {
  const hn::CappedTag<float, 1> one;
  const auto copy = [&](int64_t s, int64_t e) {
    hn::StoreU(load_kv(one, from + s * ld + e), one, to + e * kBlockSlots + s);
  };
  int64_t s = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; s + 4 <= rows; s += 4) {
    const T* row = from + s * ld;
    int64_t e = 0;
    for (; e + 4 <= head_dim; e += 4) transpose_tile(row + e, ld, to + e * kBlockSlots + s);
    for (; e < head_dim; ++e) {
      for (int64_t r = 0; r < 4; ++r) copy(s + r, e);
    }
  }
#endif
  for (; s < rows; ++s) {
    for (int64_t e = 0; e < head_dim; ++e) copy(s, e);
  }
}

// A run of a prompt's rows, or one of KV blocks that many vectors see: in float32 once for all.
template <class T>
Run<float, false> prepared(const AttendVectorsArgs& args, int64_t index, int64_t slots,
                           State& state) {
  const KvRuns& kv = args.kv;
  if (kv.blocks != nullptr) {
    const std::byte* block = kv.blocks[index];
    widen(reinterpret_cast<const T*>(block + kv.k_offset), kBlockSlots * args.head_dim, state.k);
    widen(reinterpret_cast<const T*>(block + kv.v_offset), slots * args.head_dim, state.v);
    return {index, state.k, state.v, args.head_dim, state.k, state.v};
  }
  const int64_t first = index * kBlockSlots * kv.ld;
  const auto ld = kv.ld / static_cast<int64_t>(sizeof(T));
  const T* v = reinterpret_cast<const T*>(kv.v + first);
  transpose(reinterpret_cast<const T*>(kv.k + first), ld, slots, args.head_dim, state.k);
  if constexpr (std::is_same_v<T, float>) {
    return {index, state.k, v, ld, state.k, v};
  } else {
    for (int64_t s = 0; s < slots; ++s) {
      widen(v + s * ld, args.head_dim, state.v + s * args.head_dim);
    }
    return {index, state.k, state.v, args.head_dim, state.k, state.v};
  }
}

template <class T>
Run<T, true> in_block(const AttendVectorsArgs& args, int64_t index, int64_t runs) {
  const KvRuns& kv = args.kv;
  const std::byte* k = kv.blocks[index] + kv.k_offset;
  const std::byte* next = index + 1 < runs      ? kv.blocks[index + 1] + kv.k_offset
                          : kv.after != nullptr ? kv.after
                                                : k;
  const int64_t to_v = kv.v_offset - kv.k_offset;
  return {index,         reinterpret_cast<const T*>(k),    reinterpret_cast<const T*>(k + to_v),
          args.head_dim, reinterpret_cast<const T*>(next), reinterpret_cast<const T*>(next + to_v)};
}

template <class T>
void attend_all(const AttendVectorsArgs& args) {
  State state(args);
  const KvRuns& kv = args.kv;
  const bool few = std::is_same_v<T, float> || args.count <= kFewVectors;
  const int64_t longest = most(args.slots, args.count);
  const int64_t runs = (longest + kBlockSlots - 1) / kBlockSlots;
  for (int64_t index = 0; index < runs; ++index) {
    if (kv.blocks != nullptr && few) {
      attend_run(args, in_block<T>(args, index, runs), state);
    } else {
      attend_run(args, prepared<T>(args, index, in_run(longest, index), state), state);
    }
  }
  for (int64_t i = 0; i < args.count; ++i) {
    const Gathered& all = state.all[i];
    if (args.log_sum_exp[i] != nullptr) *args.log_sum_exp[i] = all.maximum + std::log(all.sum);
    const float inverse = 1.0F / all.sum;
    for (int64_t e = 0; e < args.head_dim; ++e) {
      args.out[i][e] = state.merged[i * args.head_dim + e] * inverse;
    }
  }
}

void attend_vectors(const AttendVectorsArgs& args) {
  if (args.kv.bits == 32) return attend_all<float>(args);
  attend_all<hwy::float16_t>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace transload::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace transload::kernels::cpu {

void set_attend_ops(InstructionSet set, Ops* ops) {
  ops->attend_vectors = TRANSLOAD_CHOOSE(set, attend_vectors);
}

}  // namespace transload::kernels::cpu
#endif  // HWY_ONCE
