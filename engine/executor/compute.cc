// The decoder: embedding, projections, MLP, head and sampling.
#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "engine/executor/performer.h"

namespace transload::engine {

using kernels::MatmulArgs;
using layout::Role;
using layout::Tier;
using planner::Task;

// The rows from `first` on whose hidden rows lie behind one another, at most a chunk of them.
Performer::Rows Performer::next_rows(const Task& task, int64_t first, int64_t end) const {
  const bool on_device = first < needs_.device_rows;
  if (on_device) end = std::min(end, needs_.device_rows);
  Rows rows{first, std::min(plan_.chunk_tokens, end - first), nullptr};
  float* base = memory_.device_floats(on_device ? needs_.device.hidden : needs_.device.hidden_work);
  const int64_t row = on_device ? task.batch * needs_.device_rows + first
                                : task.work * needs_.host_rows + first - needs_.device_rows;
  rows.hidden = base + row * model_.spec.hidden;
  return rows;
}

float* Performer::visit_q(int64_t buffer, int64_t row) const {
  const int64_t width = model_.spec.q_width() + 2 * model_.spec.kv_width();
  return memory_.device_floats(needs_.device.visit) + buffer * plan_.batch_rows() * width +
         row * model_.spec.q_width();
}

float* Performer::visit_kv(int64_t buffer, int64_t row) const {
  return visit_q(buffer, plan_.batch_rows()) + row * 2 * model_.spec.kv_width();
}

// Parts of the chunk buffer: two of the hidden width, then the wide one.
float* Performer::chunk(int part) const {
  return memory_.device_floats(needs_.device.chunk) +
         part * plan_.chunk_tokens * model_.spec.hidden;
}

// The slices of a matrix that the device holds now: those that stay and those in the ring.
std::span<const kernels::WeightSlice> Performer::slices(int64_t sweep, int64_t layer, Role role) {
  slices_.clear();
  const layout::Weight& weight = *layer_weight(layer, role);
  const int64_t index = index_of(&weight);
  const layout::MatrixCut& cut = needs_.slices.cuts[static_cast<size_t>(index)];
  if (cut.rows(Tier::kDevice) > 0)
    slices_.push_back(
        {resident(index, Tier::kDevice), weight.format, 0, cut.rows(Tier::kDevice), weight.cols});
  if (layer < 0) return slices_;
  const auto stage = static_cast<size_t>(layer);
  const std::vector<layout::Piece>& pieces = needs_.slices.stages[stage].pieces;
  const std::byte* ring = memory_.device(needs_.device.weight_ring);
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].weight == index)
      slices_.push_back({ring + piece_at_[static_cast<size_t>(sweep % 2)][stage][i], weight.format,
                         pieces[i].first_row, pieces[i].rows, weight.cols});
  return slices_;
}

void Performer::multiply(int64_t layer, Role matrix, Role bias, const MatmulArgs& args) {
  MatmulArgs all = args;
  all.slices = slices(sweep_number_, layer, matrix);
  all.bias = vector(layer, bias);
  device_->matmul(all);
}

void Performer::normalise(int64_t layer, Role weight, Role bias, const NormRows& rows) {
  device_->norm({.kind = model_.spec.norm,
                 .x = rows.x,
                 .ld_x = model_.spec.hidden,
                 .rows = rows.rows,
                 .dim = model_.spec.hidden,
                 .weight = vector(layer, weight),
                 .bias = vector(layer, bias),
                 .eps = model_.spec.norm_eps,
                 .y = rows.y,
                 .ld_y = model_.spec.hidden});
}

void Performer::embed(const Task& task) {
  const layout::DecoderSpec& spec = model_.spec;
  const layout::Weight& embedding = *layer_weight(-1, Role::kEmbedding);
  const int64_t index = index_of(&embedding);
  const layout::MatrixCut& cut = needs_.slices.cuts[static_cast<size_t>(index)];
  const std::byte* gathered = memory_.device(needs_.device.gather) +
                              task.index * planner::kGatherRows * needs_.gather_device_slot;
  row_pointers_.clear();
  gathered_tokens(task, [&](int64_t i, int32_t token) {
    if (token < cut.begin[1]) {
      row_pointers_.push_back(resident(index, Tier::kDevice) + token * embedding.row_bytes());
      return;
    }
    const int64_t offset = embedding.extent.offset + token * embedding.row_bytes();
    row_pointers_.push_back(gathered + i * needs_.gather_device_slot +
                            (plan_.single_tier ? offset % kPageBytes : 0));
  });
  const std::span<const std::byte* const> pointers = row_pointers_;
  const int64_t end = task.source + task.target;
  for (int64_t row = task.source; row < end;) {
    const Rows rows = next_rows(task, row, end);
    const auto part =
        pointers.subspan(static_cast<size_t>(row - task.source), static_cast<size_t>(rows.count));
    if (layer_weight(-1, Role::kProjectIn) == nullptr) {
      device_->decode_rows(embedding.format, part, spec.embed_dim, rows.hidden, spec.hidden);
    } else {
      device_->decode_rows(embedding.format, part, spec.embed_dim, chunk(2), spec.embed_dim);
      multiply(-1, Role::kProjectIn, kNoBias,
               {.x = chunk(2),
                .ld_x = spec.embed_dim,
                .m = rows.count,
                .slices = {},
                .bias = nullptr,
                .y = rows.hidden,
                .ld_y = spec.hidden});
    }
    row += rows.count;
  }
  if (spec.position == layout::PositionKind::kLearned) add_positions(task);
  if (task.source + task.target == batch_of(task).tokens) log_activations(task);
}

void Performer::add_positions(const Task& task) {
  const layout::Weight& table = *layer_weight(-1, Role::kPositions);
  const std::byte* base = resident(index_of(&table), Tier::kDevice);
  const int64_t end = task.source + task.target;
  for (int64_t row = task.source; row < end;) {
    const Rows rows = next_rows(task, row, end);
    list_positions(task, rows);
    row_pointers_.clear();
    for (const int32_t position : positions_)
      row_pointers_.push_back(base + (position + model_.spec.position_offset) * table.row_bytes());
    device_->decode_rows(table.format, row_pointers_, model_.spec.hidden, chunk(0),
                         model_.spec.hidden);
    device_->add(chunk(0), model_.spec.hidden, rows.hidden, model_.spec.hidden, rows.count,
                 model_.spec.hidden);
    row += rows.count;
  }
}

void Performer::list_positions(const Task& task, const Rows& rows) {
  positions_.clear();
  for (const planner::SweepRow& row : batch_of(task).rows) {
    const int64_t end = std::min(rows.first + rows.count, row.batch_row + row.tokens);
    for (int64_t i = std::max(rows.first, row.batch_row); i < end; ++i)
      positions_.push_back(static_cast<int32_t>(row.position + i - row.batch_row));
  }
}

void Performer::attention_in(const Task& task) {
  const int64_t tokens = batch_of(task).tokens;
  for (int64_t row = 0; row < tokens;) {
    const Rows rows = next_rows(task, row, tokens);
    const float* x = rows.hidden;
    if (model_.spec.pre_norm) {
      normalise(task.layer, Role::kNorm1, Role::kNorm1Bias, {x, rows.count, chunk(0)});
      x = chunk(0);
    }
    project_qkv(task, rows, x);
    if (model_.spec.position == layout::PositionKind::kRotary) rotate(task, rows);
    // From here on K and V are numbers of the cache, so that a prompt's attention sees what that of
    // later tokens will see, wherever the border between them is.
    const int64_t kv_width = 2 * model_.spec.kv_width();
    device_->narrow_kv({.rows = visit_kv(task.visit_buffer, rows.first),
                        .ld = kv_width,
                        .count = rows.count,
                        .values = kv_width,
                        .bits = plan_.kv_bits});
    row += rows.count;
  }
}

void Performer::project_qkv(const Task& task, const Rows& rows, const float* x) {
  const layout::DecoderSpec& spec = model_.spec;
  float* q = visit_q(task.visit_buffer, rows.first);
  float* kv = visit_kv(task.visit_buffer, rows.first);
  const int64_t kv_width = spec.kv_width();
  MatmulArgs args{.x = x,
                  .ld_x = spec.hidden,
                  .m = rows.count,
                  .slices = {},
                  .bias = nullptr,
                  .y = q,
                  .ld_y = spec.q_width()};
  if (spec.qkv == layout::QkvLayout::kSeparate) {
    multiply(task.layer, Role::kQ, Role::kQBias, args);
    args.y = kv;
    args.ld_y = 2 * kv_width;
    multiply(task.layer, Role::kK, Role::kKBias, args);
    args.y = kv + kv_width;
    multiply(task.layer, Role::kV, Role::kVBias, args);
    return;
  }
  // Fused rows are [head][q, k, v][head_dim].
  args.y = chunk(2);
  args.ld_y = spec.qkv_width();
  multiply(task.layer, Role::kQkv, Role::kQkvBias, args);
  const int64_t d = spec.head_dim;
  for (int64_t i = 0; i < rows.count; ++i) {
    const float* from = chunk(2) + i * spec.qkv_width();
    for (int64_t head = 0; head < spec.heads; ++head, from += 3 * d) {
      std::copy_n(from, d, q + i * spec.q_width() + head * d);
      std::copy_n(from + d, d, kv + i * 2 * kv_width + head * d);
      std::copy_n(from + 2 * d, d, kv + i * 2 * kv_width + kv_width + head * d);
    }
  }
}

void Performer::rotate(const Task& task, const Rows& rows) {
  const layout::DecoderSpec& spec = model_.spec;
  list_positions(task, rows);
  kernels::RotaryArgs args{.x = visit_q(task.visit_buffer, rows.first),
                           .ld = spec.q_width(),
                           .rows = rows.count,
                           .heads = spec.heads,
                           .head_dim = spec.head_dim,
                           .rotary_dim = spec.rotary_dim,
                           .style = spec.rotary_style,
                           .inverse_frequencies = spec.inverse_frequencies.data(),
                           .magnitude = spec.rotary_magnitude,
                           .positions = positions_.data()};
  device_->rotary(args);
  args.x = visit_kv(task.visit_buffer, rows.first);
  args.ld = 2 * spec.kv_width();
  args.heads = spec.kv_heads;
  device_->rotary(args);
}

void Performer::attention_out(const Task& task) {
  const layout::DecoderSpec& spec = model_.spec;
  const int64_t h = spec.hidden;
  const int64_t layer = task.layer;
  const int64_t tokens = batch_of(task).tokens;
  for (int64_t row = 0; row < tokens;) {
    const Rows rows = next_rows(task, row, tokens);
    float* x = rows.hidden;
    float* attention = chunk(0);
    float* normed = chunk(1);
    multiply(layer, Role::kO, Role::kOBias,
             {.x = visit_q(task.visit_buffer, rows.first),
              .ld_x = spec.q_width(),
              .m = rows.count,
              .slices = {},
              .bias = nullptr,
              .y = attention,
              .ld_y = h});
    if (spec.parallel_residual)
      normalise(layer, Role::kNorm2, Role::kNorm2Bias, {x, rows.count, normed});
    device_->add(attention, h, x, h, rows.count, h);
    if (!spec.pre_norm) normalise(layer, Role::kNorm1, Role::kNorm1Bias, {x, rows.count, x});
    if (spec.pre_norm && !spec.parallel_residual)
      normalise(layer, Role::kNorm2, Role::kNorm2Bias, {x, rows.count, normed});
    mlp(layer, spec.pre_norm ? normed : x, rows.count, attention);
    device_->add(attention, h, x, h, rows.count, h);
    if (!spec.pre_norm) normalise(layer, Role::kNorm2, Role::kNorm2Bias, {x, rows.count, x});
    row += rows.count;
  }
  log_activations(task);
}

void Performer::mlp(int64_t layer, const float* x, int64_t rows, float* out) {
  const layout::DecoderSpec& spec = model_.spec;
  float* up = chunk(2);
  float* gate = spec.gated ? up + plan_.chunk_tokens * spec.ffn : up;
  MatmulArgs args{.x = x,
                  .ld_x = spec.hidden,
                  .m = rows,
                  .slices = {},
                  .bias = nullptr,
                  .y = up,
                  .ld_y = spec.ffn};
  multiply(layer, Role::kUp, Role::kUpBias, args);
  if (spec.gated) {
    args.y = gate;
    multiply(layer, Role::kGate, Role::kGateBias, args);
  }
  device_->activate({.kind = spec.activation,
                     .gate = gate,
                     .up = spec.gated ? up : nullptr,
                     .rows = rows,
                     .cols = spec.ffn,
                     .ld = spec.ffn});
  multiply(layer, Role::kDown, Role::kDownBias,
           {.x = gate,
            .ld_x = spec.ffn,
            .m = rows,
            .slices = {},
            .bias = nullptr,
            .y = out,
            .ld_y = spec.hidden});
}

void Performer::log_activations(const Task& task) {
  if (activations_ == nullptr) return;
  for (const planner::SweepRow& row : batch_of(task).rows) {
    const int64_t last = row.batch_row + row.tokens - 1;
    const Rows rows = next_rows(task, last, last + 1);
    const Sequence& sequence = sequences_[static_cast<size_t>(row.row_slot)];
    activations_->write({task.sweep, task.layer, sequence.request, row.position + row.tokens - 1},
                        rows.hidden, model_.spec.hidden);
  }
}

}  // namespace transload::engine
