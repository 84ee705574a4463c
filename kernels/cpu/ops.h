// The inner loops of the CPU backend, compiled once for each instruction set. All are pure: they
// read and write the memory of their arguments alone and never allocate or throw.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/instructions.h"

namespace transload::kernels::cpu {

inline constexpr int64_t kPanelRows = 16;      // rows of W that are decoded and multiplied at once
inline constexpr int64_t kRowAlign = 16;       // a decoded row is padded to a multiple, with zeros
inline constexpr int64_t kAttendTile = 8;      // query vectors of a register tile, at most
inline constexpr int64_t kAttendVectors = 96;  // query vectors that share a pass over K and V

// y[i, r] = sum_c x[i, c] * panel[r, c] (+ bias[r])
//   x [m, cols] ld_x;  panel [kPanelRows, cols] ld_panel, decoded;  bias [rows] or null
//   y [m, rows] ld_y
// A sum runs in lanes over cols and is folded in one tree, whatever m and rows are.
struct PanelArgs {
  const float* x = nullptr;
  int64_t ld_x = 0;
  int64_t m = 0;
  const float* panel = nullptr;
  int64_t ld_panel = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ld_y = 0;
};

// Where K and V of one kv head lie, as numbers of the KV cache: in KV blocks, whose run b of
// kBlockSlots slots has K [head_dim][slot] at blocks[b] + k_offset and V [slot][head_dim] at
// blocks[b] + v_offset; or (blocks null) as a prompt's rows at k and v, `ld` bytes apart.
struct KvRuns {
  const std::byte* const* blocks = nullptr;
  int64_t k_offset = 0;
  int64_t v_offset = 0;
  const std::byte* after = nullptr;  // K of the block that will be read next; null: not known
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  int64_t ld = 0;
  int64_t bits = 32;
};

// Attention of up to kAttendVectors query vectors over the same kv head; vector i sees slots[i]
// slots, and at least one of each run that another vector sees.
//   q, out: [count] pointers to [head_dim], out[i] may be q[i];  scratch [attend_scratch_floats]
//   log_sum_exp: [count] pointers to where that of a vector's scores goes; one may be null
struct AttendVectorsArgs {
  const float* const* q = nullptr;
  float* const* out = nullptr;
  float* const* log_sum_exp = nullptr;
  const int64_t* slots = nullptr;
  int64_t count = 0;
  KvRuns kv;
  int64_t head_dim = 0;
  float scale = 0;
  float* scratch = nullptr;
};

// A run's K and V in float32, its scores and weighted values for a tile, and what each vector has
// merged so far.
constexpr int64_t attend_scratch_floats(int64_t head_dim) {
  return 2 * kBlockSlots * head_dim + kAttendTile * (kBlockSlots + head_dim) +
         kAttendVectors * head_dim;
}

struct Ops {
  // Decodes `values` numbers of a row. Bits are those of quant::decode.
  void (*decode_row)(quant::Format format, const std::byte* bytes, int64_t values,
                     float* out) = nullptr;
  void (*multiply_panel)(const PanelArgs& args) = nullptr;
  void (*norm_row)(const NormArgs& args, int64_t row) = nullptr;
  void (*activate_row)(const ActivationArgs& args, int64_t row) = nullptr;
  void (*add_row)(const float* x, float* y, int64_t cols) = nullptr;  // y += x
  void (*attend_vectors)(const AttendVectorsArgs& args) = nullptr;
  void (*narrow_row)(float* row, int64_t values) = nullptr;  // to float16, see Backend::narrow_kv
  void (*accumulate_row)(const float* logits, int64_t cols, int64_t first_token,
                         LogitStats* stats) = nullptr;
};

// One a source file: fills in the members that the file implements.
void set_decode_ops(InstructionSet set, Ops* ops);
void set_multiply_ops(InstructionSet set, Ops* ops);
void set_row_ops(InstructionSet set, Ops* ops);
void set_attend_ops(InstructionSet set, Ops* ops);
void set_narrow_ops(InstructionSet set, Ops* ops);
void set_logit_ops(InstructionSet set, Ops* ops);

// Rotates row `row` in place; plain loops, the same on every instruction set.
void rotate_row(const RotaryArgs& args, int64_t row);

}  // namespace transload::kernels::cpu
