#include "kernels/cpu/attention.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace transload::kernels::cpu {
namespace {

float* offset(float* base, int64_t by) { return base == nullptr ? nullptr : base + by; }

// Query vectors that are attended together.
struct Vectors {
  const float* q[kAttendVectors];
  float* out[kAttendVectors];
  float* log_sum_exp[kAttendVectors];
  int64_t slots[kAttendVectors];
  int64_t count = 0;

  void add(const float* query, float* result, float* log_sum, int64_t seen) {
    q[count] = query;
    out[count] = result;
    log_sum_exp[count] = log_sum;
    slots[count++] = seen;
  }
  AttendVectorsArgs args(const KvRuns& kv, int64_t head_dim, float scale, float* scratch) const {
    return {q, out, log_sum_exp, slots, count, kv, head_dim, scale, scratch};
  }
};

// Rows of a prompt that are attended together: a power of two, so that all of them see each run
// that one of them sees.
int64_t rows_together(int64_t group) {
  int64_t rows = 1;
  while (2 * rows <= kBlockSlots && 2 * rows * group <= kAttendVectors) rows *= 2;
  return rows;
}

}  // namespace

void attend(const AttendArgs& args, const AttentionWorkers& on) {
  const KvShape& shape = args.kv;
  const int64_t group = args.heads / shape.kv_heads;
  for (const AttendRow& row : args.rows) check(row.slots >= 1, "a query sees at least one slot");
  const auto tasks = static_cast<int64_t>(args.rows.size()) * shape.kv_heads;
  on.workers.for_each(tasks, 1, [&](int64_t index, int worker) {
    const AttendRow& row = args.rows[static_cast<size_t>(index / shape.kv_heads)];
    const int64_t kv_head = index % shape.kv_heads;
    KvRuns kv;
    kv.blocks = row.blocks;
    kv.k_offset = kv_head * shape.head_bytes();
    kv.v_offset = kv.k_offset + shape.v_offset();
    kv.bits = shape.bits;
    if (index + 1 < tasks) {
      const AttendRow& next = args.rows[static_cast<size_t>((index + 1) / shape.kv_heads)];
      kv.after = next.blocks[0] + (index + 1) % shape.kv_heads * shape.head_bytes();
    }
    for (int64_t g = 0; g < group; g += kAttendVectors) {
      Vectors vectors;
      for (int64_t i = g; i < std::min(group, g + kAttendVectors); ++i) {
        const int64_t head = kv_head * group + i;
        const int64_t at = head * shape.head_dim;
        vectors.add(row.q + at, row.out + at, offset(row.log_sum_exp, head), row.slots);
      }
      on.ops.attend_vectors(
          vectors.args(kv, shape.head_dim, args.scale, on.scratch + worker * on.scratch_floats));
    }
  });
}

void attend_prompt(const AttendPromptArgs& args, const AttentionWorkers& on) {
  const KvShape& shape = args.kv;
  const int64_t group = args.heads / shape.kv_heads;
  const int64_t together = rows_together(group);
  const int64_t blocks = ceil_div(args.rows, together);
  on.workers.for_each(blocks * shape.kv_heads, 1, [&](int64_t index, int worker) {
    const int64_t kv_head = index % shape.kv_heads;
    // Late rows see the most: they go first, so that the last tasks are short.
    const int64_t first = (blocks - 1 - index / shape.kv_heads) * together;
    const int64_t end = std::min(args.rows, first + together);
    KvRuns kv;
    kv.k = args.k + kv_head * shape.vector_bytes();
    kv.v = args.v + kv_head * shape.vector_bytes();
    kv.ld = args.ld_kv;
    kv.bits = shape.bits;
    for (int64_t g = 0; g < group; g += kAttendVectors) {
      Vectors vectors;
      for (int64_t row = first; row < end; ++row) {
        for (int64_t i = g; i < std::min(group, g + kAttendVectors); ++i) {
          const int64_t head = kv_head * group + i;
          const int64_t at = head * shape.head_dim;
          vectors.add(args.q + row * args.ld_q + at, args.out + row * args.ld_out + at,
                      offset(args.log_sum_exp, row * args.heads + head), row + 1);
        }
      }
      on.ops.attend_vectors(
          vectors.args(kv, shape.head_dim, args.scale, on.scratch + worker * on.scratch_floats));
    }
  });
}

}  // namespace transload::kernels::cpu
