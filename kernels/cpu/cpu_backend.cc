#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/instructions.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/storage_ops.h"
#include "kernels/cpu/workers.h"

namespace transload::kernels {
namespace {

using cpu::kPanelRows;

constexpr int64_t kTaskFloats = 16 * 1024;    // a task on rows touches at least so many numbers
constexpr int64_t kTaskProducts = 64 * 1024;  // a task of matmul multiplies at least so many
constexpr int64_t kRowBlock = 64;  // rows of x for which decoding a panel once more is cheap
constexpr int64_t kXRows = 256;    // rows of x that are prepared for products from storage at once
constexpr int64_t kCacheLine = 64;

int64_t grain_of(int64_t floats_a_row) {
  return std::max<int64_t>(1, kTaskFloats / std::max<int64_t>(1, floats_a_row));
}

int64_t max_head_dim(const CpuOptions& options) {
  return options.max_head_dim > 0 ? options.max_head_dim : options.max_cols;
}

// A worker's scratch: a panel of rows, decoded or from storage, or a block of attention.
int64_t worker_floats(const CpuOptions& options) {
  const int64_t cols = round_up(options.max_cols, cpu::kRowAlign);
  const int64_t floats =
      std::max(kPanelRows * cols,
               round_up(cpu::attend_scratch_floats(max_head_dim(options)), cpu::kRowAlign));
  if (options.compute == Compute::kFloat32) return floats;
  const auto width = static_cast<int64_t>(sizeof(float));
  return std::max(floats, cpu::storage_scratch_bytes(options.max_cols) / width);
}

// Rows of x in the form that is multiplied with storage; shared by the workers.
int64_t x_bytes(const CpuOptions& options) {
  return options.compute == Compute::kFloat32 ? 0 : kXRows * cpu::x_row_bytes(options.max_cols);
}

struct Free {
  void operator()(float* floats) const { std::free(floats); }
};
using Scratch = std::unique_ptr<float[], Free>;

Scratch allocate_scratch(int64_t bytes) {
  auto* floats = static_cast<float*>(std::aligned_alloc(kCacheLine, static_cast<size_t>(bytes)));
  if (floats == nullptr) {
    throw Error(Kind::kDoesNotFit, "kernels: cannot allocate " + format_bytes(bytes) +
                                       " of scratch: use fewer threads");
  }
  return Scratch(floats);
}

void check_options(const CpuOptions& options) {
  check(options.max_cols > 0, "max_cols must be positive");
  if (options.threads < 1 || options.threads > 4096) {
    throw Error(Kind::kUsage,
                "threads: " + std::to_string(options.threads) + " is not possible: use 1 to 4096");
  }
}

cpu::Ops ops_for(cpu::InstructionSet set) {
  cpu::Ops ops;
  cpu::set_decode_ops(set, &ops);
  cpu::set_multiply_ops(set, &ops);
  cpu::set_row_ops(set, &ops);
  cpu::set_attend_ops(set, &ops);
  cpu::set_narrow_ops(set, &ops);
  cpu::set_logit_ops(set, &ops);
  return ops;
}

// The backend on the cores of this machine. See Backend for threads.
class CpuBackend : public Backend {
 public:
  CpuBackend(const CpuOptions& options, cpu::InstructionSet set)
      : set_(set),
        ops_(ops_for(set)),
        max_cols_(options.max_cols),
        max_head_dim_(max_head_dim(options)),
        compute_(options.compute),
        worker_floats_(worker_floats(options)),
        scratch_(allocate_scratch(cpu_scratch_bytes(options))),
        workers_(options.threads) {
    for (size_t i = 0; i < storage_ops_.size() && compute_ == Compute::kFast; ++i) {
      storage_ops_[i] = cpu::storage_ops(static_cast<quant::Format>(i), set);
    }
  }

  std::string description() const override {
    return "cpu, " + std::string(compute_ == Compute::kFast ? "fast, " : "") +
           std::string(name(set_));
  }

  Product product(quant::Format format) const override {
    const cpu::StorageOps& ops = storage_ops_[static_cast<size_t>(format)];
    return ops.multiply_panel != nullptr ? ops.product : Product{"float32", name(set_)};
  }

  void matmul(const MatmulArgs& args) override;
  void norm(const NormArgs& args) override {
    workers_.for_each(args.rows, grain_of(args.dim),
                      [&](int64_t row, int) { ops_.norm_row(args, row); });
  }
  void rotary(const RotaryArgs& args) override {
    check(args.rotary_dim % 2 == 0 && args.rotary_dim <= args.head_dim,
          "rotary_dim is even and no more than head_dim");
    workers_.for_each(args.rows, grain_of(4 * args.heads * args.rotary_dim),
                      [&](int64_t row, int) { cpu::rotate_row(args, row); });
  }
  void activate(const ActivationArgs& args) override {
    workers_.for_each(args.rows, grain_of(args.cols),
                      [&](int64_t row, int) { ops_.activate_row(args, row); });
  }
  void attend(const AttendArgs& args) override;
  void attend_prompt(const AttendPromptArgs& args) override;
  void narrow_kv(const NarrowKvArgs& args) override;
  void write_slots(std::span<const KvSlotWrite> writes, const KvShape& shape) override;
  // NOLINTNEXTLINE(readability-function-size): two matrices, as Backend has them
  void add(const float* x, int64_t ld_x, float* y, int64_t ld_y, int64_t rows,
           int64_t cols) override {
    workers_.for_each(rows, grain_of(cols), [&](int64_t row, int) {
      ops_.add_row(x + row * ld_x, y + row * ld_y, cols);
    });
  }
  void decode_rows(quant::Format format, std::span<const std::byte* const> rows, int64_t cols,
                   float* y, int64_t ld_y) override {
    check(quant::row_bytes(format, cols) >= 0, "whole blocks");
    workers_.for_each(static_cast<int64_t>(rows.size()), grain_of(cols), [&](int64_t row, int) {
      ops_.decode_row(format, rows[static_cast<size_t>(row)], cols, y + row * ld_y);
    });
  }
  // NOLINTNEXTLINE(readability-function-size): a matrix and what is kept of it
  void accumulate_logits(const float* logits, int64_t ld, int64_t rows, int64_t cols,
                         int64_t first_token, LogitStats* stats) override {
    check(first_token % kVocabTile == 0, "logits start at a whole tile of the vocabulary");
    workers_.for_each(rows, grain_of(4 * cols), [&](int64_t row, int) {
      ops_.accumulate_row(logits + row * ld, cols, first_token, stats + row);
    });
  }
  void for_each(int64_t count, void (*work)(void*, int64_t), void* context) override {
    workers_.for_each(count, 1, [&](int64_t index, int) { work(context, index); });
  }

 private:
  float* scratch(int worker) { return scratch_.get() + worker * worker_floats_; }
  std::byte* prepared_rows() { return reinterpret_cast<std::byte*>(scratch(workers_.threads())); }
  template <class Multiply>
  void each_panel(const MatmulArgs& args, int64_t panel_rows, const Multiply& multiply);
  void multiply_from_storage(const MatmulArgs& args, const cpu::StorageOps& ops);
  void multiply(const MatmulArgs& args, const WeightSlice& slice, int64_t first_row,
                int64_t first_x, int64_t m, float* panel) const;
  void check_heads(int64_t heads, const KvShape& kv) const {
    check(kv.kv_heads > 0 && heads % kv.kv_heads == 0, "query heads share kv heads evenly");
    check(kv.head_dim > 0 && kv.head_dim <= max_head_dim_, "head_dim is above max_head_dim");
    check(layout::is_kv_bits(kv.bits), "numbers of the KV cache have 32 or 16 bits");
  }

  cpu::InstructionSet set_;
  cpu::Ops ops_;
  std::array<cpu::StorageOps, quant::kFormats> storage_ops_;
  int64_t max_cols_;
  int64_t max_head_dim_;
  Compute compute_;
  int64_t worker_floats_;
  Scratch scratch_;
  cpu::Workers workers_;
};

// Whether rows of W are read from where they lie: floats, in whole groups of four rows as the tile
// takes them, for so few rows of x that aligning a copy costs more than it saves.
bool reads_in_place(const WeightSlice& slice, int64_t rows, int64_t m) {
  return slice.format == quant::Format::kF32 && rows % 4 == 0 && m <= kPanelRows &&
         reinterpret_cast<uintptr_t>(slice.data) % alignof(float) == 0;
}

// Multiplies rows [first_x, first_x + m) of x with the panel of W that starts at first_row of the
// slice.
// NOLINTNEXTLINE(readability-function-size): a part of the job, the worker's panel
void CpuBackend::multiply(const MatmulArgs& args, const WeightSlice& slice, int64_t first_row,
                          int64_t first_x, int64_t m, float* panel) const {
  const int64_t rows = std::min(kPanelRows, slice.rows - first_row);
  const bool in_place = reads_in_place(slice, rows, m);
  const int64_t ld = in_place ? slice.cols : round_up(slice.cols, cpu::kRowAlign);
  const int64_t bytes = quant::row_bytes(slice.format, slice.cols);
  for (int64_t r = 0; r < kPanelRows && !in_place; ++r) {
    // The tile reads whole groups of rows; those past the last repeat it.
    const int64_t row = first_row + std::min(r, rows - 1);
    if (r >= rows && r % 4 == 0) break;
    ops_.decode_row(slice.format, slice.data + row * bytes, slice.cols, panel + r * ld);
  }
  cpu::PanelArgs of;
  of.x = args.x + first_x * args.ld_x;
  of.ld_x = args.ld_x;
  of.m = m;
  of.panel = in_place ? reinterpret_cast<const float*>(slice.data + first_row * bytes) : panel;
  of.ld_panel = ld;
  of.rows = rows;
  of.cols = slice.cols;
  of.bias = args.bias == nullptr ? nullptr : args.bias + slice.first_row + first_row;
  of.y = args.y + first_x * args.ld_y + slice.first_row + first_row;
  of.ld_y = args.ld_y;
  ops_.multiply_panel(of);
}

// multiply(slice, first_row, first_x, m, worker) for every panel of panel_rows rows of the slices.
template <class Multiply>
void CpuBackend::each_panel(const MatmulArgs& args, int64_t panel_rows, const Multiply& multiply) {
  int64_t panels = 0;
  int64_t cols = 1;
  for (const WeightSlice& slice : args.slices) {
    panels += ceil_div(slice.rows, panel_rows);
    cols = std::max(cols, slice.cols);
  }
  if (args.m <= 0 || panels == 0) return;
  // Few panels: rows of x are cut too, at the price of decoding a panel once for each cut.
  const int64_t wanted = ceil_div(4 * workers_.threads(), panels);
  const int64_t cuts = std::clamp<int64_t>(args.m / kRowBlock, 1, wanted);
  const int64_t cut = ceil_div(args.m, cuts);
  const int64_t grain = std::max<int64_t>(1, kTaskProducts / (panel_rows * cols * cut));
  workers_.for_each(panels * cuts, grain, [&](int64_t index, int worker) {
    const int64_t first_x = index % cuts * cut;
    int64_t panel = index / cuts;
    size_t s = 0;
    for (; panel >= ceil_div(args.slices[s].rows, panel_rows); ++s) {
      panel -= ceil_div(args.slices[s].rows, panel_rows);
    }
    multiply(args.slices[s], panel * panel_rows, first_x, std::min(cut, args.m - first_x), worker);
  });
}

void CpuBackend::matmul(const MatmulArgs& args) {
  for (const WeightSlice& slice : args.slices) {
    check(slice.cols > 0 && slice.cols <= max_cols_, "a weight row is longer than max_cols");
    check(quant::row_bytes(slice.format, slice.cols) > 0, "whole blocks");
  }
  if (!args.slices.empty()) {
    const cpu::StorageOps& ops = storage_ops_[static_cast<size_t>(args.slices[0].format)];
    if (ops.multiply_panel != nullptr) return multiply_from_storage(args, ops);
  }
  each_panel(args, kPanelRows,
             [&](const WeightSlice& slice, int64_t first_row, int64_t first_x, int64_t m,
                 int worker) { multiply(args, slice, first_row, first_x, m, scratch(worker)); });
}

void CpuBackend::multiply_from_storage(const MatmulArgs& args, const cpu::StorageOps& ops) {
  const int64_t cols = args.slices[0].cols;
  const int64_t x_bytes = cpu::x_row_bytes(cols);
  for (const WeightSlice& slice : args.slices) {
    check(slice.cols == cols && slice.format == args.slices[0].format, "slices of one matrix");
  }
  for (int64_t block = 0; block < args.m; block += kXRows) {
    MatmulArgs part = args;
    part.x += block * args.ld_x;
    part.y += block * args.ld_y;
    part.m = std::min(kXRows, args.m - block);
    workers_.for_each(part.m, grain_of(cols), [&](int64_t row, int) {
      ops.prepare_row(part.x + row * part.ld_x, cols, prepared_rows() + row * x_bytes);
    });
    each_panel(
        part, cpu::kStoragePanel,
        [&](const WeightSlice& slice, int64_t first_row, int64_t first_x, int64_t m, int worker) {
          const int64_t to = slice.first_row + first_row;
          cpu::StoragePanelArgs of;
          of.x = prepared_rows() + first_x * x_bytes;
          of.m = m;
          of.slice = slice.data;
          of.format = slice.format;
          of.cols = cols;
          of.first = first_row;
          of.rows = std::min(cpu::kStoragePanel, slice.rows - first_row);
          of.bias = part.bias == nullptr ? nullptr : part.bias + to;
          of.y = part.y + first_x * part.ld_y + to;
          of.ld_y = part.ld_y;
          of.scratch = reinterpret_cast<std::byte*>(scratch(worker));
          ops.multiply_panel(of);
        });
  }
}

void CpuBackend::attend(const AttendArgs& args) {
  check_heads(args.heads, args.kv);
  cpu::attend(args, {ops_, workers_, scratch(0), worker_floats_});
}

void CpuBackend::attend_prompt(const AttendPromptArgs& args) {
  check_heads(args.heads, args.kv);
  cpu::attend_prompt(args, {ops_, workers_, scratch(0), worker_floats_});
}

void CpuBackend::narrow_kv(const NarrowKvArgs& args) {
  check(layout::is_kv_bits(args.bits), "numbers of the KV cache have 32 or 16 bits");
  if (args.bits == 32) return;
  workers_.for_each(args.count, grain_of(args.values), [&](int64_t row, int) {
    ops_.narrow_row(args.rows + row * args.ld, args.values);
  });
}

void CpuBackend::write_slots(std::span<const KvSlotWrite> writes, const KvShape& shape) {
  const auto count = static_cast<int64_t>(writes.size());
  workers_.for_each(count, grain_of(2 * shape.kv_heads * shape.head_dim), [&](int64_t index, int) {
    write_slot(writes[static_cast<size_t>(index)], shape);
  });
}

}  // namespace

std::string_view name(Compute compute) { return compute == Compute::kFast ? "fast" : "float32"; }

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  check_options(options);
  const auto set = cpu::choose_instructions(options.instructions, cpu::available_instructions());
  return std::make_unique<CpuBackend>(options, set);
}

int64_t cpu_scratch_bytes(const CpuOptions& options) {
  check_options(options);
  const int64_t bytes = worker_floats(options) * static_cast<int64_t>(sizeof(float));
  return round_up(bytes, kCacheLine) * options.threads + x_bytes(options);
}

}  // namespace transload::kernels
