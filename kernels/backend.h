// The operations that a decoder needs, once for all backends.
//
// All tensors are float32 and row-major unless an argument says otherwise; `ld` is the distance of
// two rows in floats. An operation's result for a row depends on that row and the shapes alone:
// never on the number of rows, on how the weights are cut into slices, or on threads. Sums run in
// an order fixed by the shape. Operations allocate nothing; scratch comes from the backend, which
// takes it once at construction. A NaN stays one: no operation turns it into a number.
//
// Threads: one thread calls a Backend object at a time; it spreads the work over its own workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "layout/decoder_spec.h"
#include "layout/kv_table.h"
#include "quant/format.h"

namespace transload::kernels {

// Slots of a KV block, and of the runs over which attention sums before it merges.
inline constexpr int64_t kBlockSlots = 64;

// Rows [first_row, first_row + rows) of a weight matrix [*, cols] in its storage format.
struct WeightSlice {
  const std::byte* data = nullptr;  // may be unaligned
  quant::Format format{};
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

// y[i, slice.first_row + r] = sum_c x[i, c] * W[r, c] (+ bias[slice.first_row + r])
//   x [m, cols] ld_x;  bias [all rows of the matrix] or null;  y [m, >= all rows] ld_y
struct MatmulArgs {
  const float* x = nullptr;
  int64_t ld_x = 0;
  int64_t m = 0;
  std::span<const WeightSlice> slices;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ld_y = 0;
};

// kRms: y = x / sqrt(mean(x^2) + eps) * weight.  kLayer: y = (x - mean) / sqrt(var + eps) * weight
// + bias. weight, bias [dim], bias may be null. y may be x.
struct NormArgs {
  layout::NormKind kind{};
  const float* x = nullptr;
  int64_t ld_x = 0;
  int64_t rows = 0;
  int64_t dim = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0;
  float* y = nullptr;
  int64_t ld_y = 0;
};

// Rotates the first rotary_dim dimensions of each of `heads` heads in place.
//   x [rows, heads * head_dim] ld;  positions [rows];  angle = position * inverse_frequencies[i]
// in float32, cos and sin times magnitude (transformers' apply_rotary_pos_emb).
struct RotaryArgs {
  float* x = nullptr;
  int64_t ld = 0;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
  layout::RotaryStyle style{};
  const float* inverse_frequencies = nullptr;
  float magnitude = 1;
  const int32_t* positions = nullptr;
};

// gate[i, j] = act(gate[i, j]) * up[i, j]; with up null, gate = act(gate).
struct ActivationArgs {
  layout::Activation kind{};
  float* gate = nullptr;
  const float* up = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;  // of both
};

// A KV block holds kBlockSlots slots of one (sequence, layer), in float32 or float16: for each kv
// head K [head_dim][slot], then V [slot][head_dim]. Keys lie across, so that the scores of many
// slots are summed side by side.
struct KvShape {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t bits = 32;  // of a number, see layout::is_kv_bits

  int64_t vector_bytes() const { return layout::kv_bytes(head_dim, bits); }
  int64_t v_offset() const { return kBlockSlots * vector_bytes(); }  // in a head's part, bytes
  int64_t head_bytes() const { return 2 * v_offset(); }              // of a kv head's part
  int64_t block_bytes() const { return kv_heads * head_bytes(); }
};

// Rows of K and V as they were computed, to become numbers of the KV cache.
struct NarrowKvArgs {
  float* rows = nullptr;
  int64_t ld = 0;      // in float32
  int64_t count = 0;   // of rows
  int64_t values = 0;  // of a row
  int64_t bits = 32;
};

// One query row over the blocks of its sequence, in slot order. slots >= 1; the block i is
// blocks[i]; the last one is filled up to slots.
struct AttendRow {
  const float* q = nullptr;                  // [heads * head_dim]
  float* out = nullptr;                      // [heads * head_dim], may be q
  const std::byte* const* blocks = nullptr;  // [ceil(slots / kBlockSlots)]
  int64_t slots = 0;
  float* log_sum_exp = nullptr;  // [heads] of the scores; may be null
};

// softmax(q k^T * scale) v for each row and head; query head h uses kv head h / (heads/kv_heads).
// Every block's partial (maximum, sum, weighted values) is computed alone and merged in slot order.
// Parts of a sequence that were attended apart merge as the sums of exp(log_sum_exp) * out.
struct AttendArgs {
  std::span<const AttendRow> rows;
  int64_t heads = 0;
  KvShape kv;
  float scale = 0;
};

// Causal attention of one prompt over itself: row i sees rows 0..i. Same partials and merge order
// as `attend`: runs of kBlockSlots rows from row 0.
//   q, out [n, heads * head_dim] (out may be q)
//   k, v [n, kv_heads * head_dim] of kv.bits, rows ld_kv bytes apart
struct AttendPromptArgs {
  const float* q = nullptr;
  float* out = nullptr;
  int64_t ld_q = 0;
  int64_t ld_out = 0;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  int64_t ld_kv = 0;
  int64_t rows = 0;
  int64_t heads = 0;
  KvShape kv;
  float scale = 0;
  float* log_sum_exp = nullptr;  // [rows, heads] of the scores; may be null
};

// Writes one token's K and V, [kv_heads * head_dim] numbers of the cache each, into slot `slot` of
// a block.
struct KvSlotWrite {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::byte* block = nullptr;
  int64_t slot = 0;
};
// One of them, on the calling thread: for lanes that move KV without a backend.
void write_slot(const KvSlotWrite& write, const KvShape& shape);

// Running log-sum-exp, arg max and target logit of a row over the vocabulary, taken tile by tile
// of kVocabTile logits from token 0; tiles are merged in order.
inline constexpr int64_t kVocabTile = 64;
struct LogitStats {
  double sum = 0;          // of exp(logit - maximum)
  float maximum = 0;       // of all logits so far
  float target_logit = 0;  // of `target`, once seen
  int32_t target = -1;
  int32_t best = -1;  // token of the largest logit, the smallest token on ties
};

// How matmul multiplies rows of x by weights of a format.
struct Product {
  // What both are rounded to: "float32", "bfloat16", "8-bit codes" (the weights' as they are).
  std::string_view numbers;
  std::string_view instructions;  // "AVX-512-VNNI"
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string description() const = 0;  // "cpu, fast, avx512"
  virtual Product product(quant::Format format) const = 0;

  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void norm(const NormArgs& args) = 0;
  virtual void rotary(const RotaryArgs& args) = 0;
  virtual void activate(const ActivationArgs& args) = 0;
  virtual void attend(const AttendArgs& args) = 0;
  virtual void attend_prompt(const AttendPromptArgs& args) = 0;
  // Rounds each row in place, the numbers packed at its start: float16 to nearest even. What
  // overflows becomes NaN: an infinite key could pass for one that nobody attends to.
  virtual void narrow_kv(const NarrowKvArgs& args) = 0;
  virtual void write_slots(std::span<const KvSlotWrite> writes, const KvShape& shape) = 0;
  // y[i, :] += x[i, :]
  virtual void add(const float* x, int64_t ld_x, float* y, int64_t ld_y, int64_t rows,
                   int64_t cols) = 0;
  // y[i, :] = decode(rows[i]); each points to row_bytes(format, cols) bytes.
  virtual void decode_rows(quant::Format format, std::span<const std::byte* const> rows,
                           int64_t cols, float* y, int64_t ld_y) = 0;
  // Adds logits [rows, cols] of tokens first_token... to stats [rows].
  // Requires: first_token is a multiple of kVocabTile; cols too, unless it ends the vocabulary.
  virtual void accumulate_logits(const float* logits, int64_t ld, int64_t rows, int64_t cols,
                                 int64_t first_token, LogitStats* stats) = 0;
  // work(i) for i in [0, count), on the workers; for sampling.
  virtual void for_each(int64_t count, void (*work)(void* context, int64_t index),
                        void* context) = 0;
};

// What matmul computes with. kFloat32: weights are decoded, products and sums are float32.
// kFast: codes of weights are multiplied as they are stored, with rows of x rounded to 8-bit codes
// in groups of 32 (scale = largest / 127); F16, BF16 and x are rounded to bfloat16 where the
// processor has AVX-512-BF16 or AMX. F32, 16 bits elsewhere, and all without AVX2 are computed as
// in kFloat32. An infinity in x may become a NaN. All else is the same in both.
enum class Compute : uint8_t { kFloat32, kFast };
std::string_view name(Compute compute);  // "float32", "fast"

struct CpuOptions {
  int threads = 1;
  int64_t max_cols = 0;      // longest row that matmul will meet: sizes the scratch
  int64_t max_head_dim = 0;  // of attention; 0: max_cols
  // "" = best at hand; "baseline", "sse4", "avx2", "avx_vnni", "avx512", "amx" force one
  std::string instructions;
  Compute compute = Compute::kFloat32;
};
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

// Bytes of scratch that make_cpu_backend takes; at most layout::kernel_scratch_bytes.
int64_t cpu_scratch_bytes(const CpuOptions& options);

}  // namespace transload::kernels
