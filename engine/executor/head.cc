// The end of a sweep: final norm, logits, next tokens or scores.
#include <tbb/task_arena.h>

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "engine/executor/performer.h"

namespace transload::engine {

using layout::Role;
using layout::Tier;
using planner::Task;

// The rows that the head needs, normed (and projected), into its input.
void Performer::final_rows(const Task& task) {
  const layout::DecoderSpec& spec = model_.spec;
  const planner::BatchSweep& batch = batch_of(task);
  int64_t to = batch.first_head_row;
  for (const planner::SweepRow& row : batch.rows) {
    const int64_t end = row.batch_row + row.tokens;
    for (int64_t first = end - row.head_rows; first < end;) {
      const Rows rows = next_rows(task, first, end);
      float* out = memory_.device_floats(needs_.device.head_input) + to * spec.embed_dim;
      const bool projects = layer_weight(-1, Role::kProjectOut) != nullptr;
      const float* x = rows.hidden;
      if (spec.final_norm) {
        float* normed = projects ? chunk(0) : out;
        normalise(-1, Role::kFinalNorm, Role::kFinalNormBias, {x, rows.count, normed});
        x = normed;
      }
      if (projects) {
        multiply(-1, Role::kProjectOut, kNoBias,
                 {.x = x,
                  .ld_x = spec.hidden,
                  .m = rows.count,
                  .slices = {},
                  .bias = nullptr,
                  .y = out,
                  .ld_y = spec.embed_dim});
      } else if (!spec.final_norm) {
        std::copy_n(x, rows.count * spec.hidden, out);
      }
      first += rows.count;
      to += rows.count;
    }
  }
}

// One piece of the head, or all its slices on the device (index -1), for all rows.
void Performer::logits(const Task& task) {
  const layout::Weight& weight = layout::head_weight(model_);
  const int64_t index = index_of(&weight);
  kernels::WeightSlice slice{nullptr, weight.format, 0, 0, weight.cols};
  if (task.index < 0) {
    slice.rows = needs_.slices.cuts[static_cast<size_t>(index)].rows(Tier::kDevice);
    slice.data = resident(index, Tier::kDevice);
  } else {
    const auto piece_index = static_cast<size_t>(task.index);
    const layout::Piece& piece = needs_.slices.stages.back().pieces[piece_index];
    slice.first_row = piece.first_row;
    slice.rows = piece.rows;
    slice.data = memory_.device(needs_.device.weight_ring) +
                 piece_at_[static_cast<size_t>(task.sweep % 2)].back()[piece_index];
  }
  if (!plan_.keeps_kv()) return score_logits(task, slice);
  const int64_t vocab = model_.spec.vocab;
  device_->matmul({.x = memory_.device_floats(needs_.device.head_input),
                   .ld_x = model_.spec.embed_dim,
                   .m = sweep_of(task).head_rows,
                   .slices = {&slice, 1},
                   .bias = vector(-1, Role::kHeadBias),
                   .y = memory_.device_floats(needs_.device.logits),
                   .ld_y = vocab});
}

// A tile of rows and tokens at a time: scoring never holds a whole row of logits.
void Performer::score_logits(const Task& task, const kernels::WeightSlice& slice) {
  const int64_t rows = sweep_of(task).head_rows;
  const int64_t width = std::min(model_.spec.vocab, planner::kScoreTileCols);
  const int64_t row_bytes = quant::row_bytes(slice.format, slice.cols);
  if (slice.first_row == 0) start_scores(task);
  float* tile = memory_.device_floats(needs_.device.logits);
  const float* bias = vector(-1, Role::kHeadBias);
  for (int64_t token = 0; token < slice.rows; token += width) {
    kernels::WeightSlice part = slice;
    part.data += token * row_bytes;
    part.first_row = 0;
    part.rows = std::min(width, slice.rows - token);
    const int64_t first_token = slice.first_row + token;
    for (int64_t row = 0; row < rows; row += planner::kScoreTileRows) {
      const int64_t count = std::min(planner::kScoreTileRows, rows - row);
      device_->matmul(
          {.x = memory_.device_floats(needs_.device.head_input) + row * model_.spec.embed_dim,
           .ld_x = model_.spec.embed_dim,
           .m = count,
           .slices = {&part, 1},
           .bias = bias == nullptr ? nullptr : bias + first_token,
           .y = tile,
           .ld_y = width});
      device_->accumulate_logits(tile, width, count, part.rows, first_token, stats_.data() + row);
    }
  }
}

// Sets each head row's target: the token after it.
void Performer::start_scores(const Task& task) {
  size_t at = 0;
  for (const planner::BatchSweep& batch : sweep_of(task).batches)
    for (const planner::SweepRow& row : batch.rows)
      for (int64_t i = row.tokens - row.head_rows; i < row.tokens; ++i)
        stats_[at++] = {.target = token_at(row, i + 1)};
}

void Performer::finish_scores(const Task& task) {
  size_t at = 0;
  for (const planner::BatchSweep& batch : sweep_of(task).batches)
    for (const planner::SweepRow& row : batch.rows) {
      Sequence& sequence = sequences_[static_cast<size_t>(row.row_slot)];
      sequence.scored.clear();
      for (int64_t i = 0; i < row.head_rows; ++i) {
        const kernels::LogitStats& stats = stats_[at++];
        const double logprob = static_cast<double>(stats.target_logit) -
                               static_cast<double>(stats.maximum) - std::log(stats.sum);
        sequence.scored.push_back({static_cast<float>(logprob), stats.best == stats.target});
        if (!std::isfinite(logprob)) sequence.error = "non-finite logits" + kv_hint();
      }
    }
}

// What overflows float16 becomes NaN, see Backend::narrow_kv.
std::string Performer::kv_hint() const {
  return plan_.kv_bits == 16 ? "; where keys or values are beyond 65504, --kv-bits 32 helps" : "";
}

// Draws the next token of every row; a row that cannot go on carries its error.
void Performer::sample_row(const planner::Sweep& sweep, int64_t head_row) {
  for (const planner::BatchSweep& batch : sweep.batches) {
    const int64_t at = head_row - batch.first_head_row;
    if (at < 0 || at >= batch.head_rows) continue;
    const planner::SweepRow& row = batch.rows[static_cast<size_t>(at)];
    Sequence& sequence = sequences_[static_cast<size_t>(row.row_slot)];
    const auto worker = static_cast<size_t>(tbb::this_task_arena::current_thread_index());
    const auto vocab = static_cast<size_t>(model_.spec.vocab);
    const std::span<const int32_t> tokens = sequence.tokens;
    const auto prompt = static_cast<size_t>(sequence.prompt_tokens);
    const bool ban = sequence.generated() < sequence.sampling.min_tokens;
    SampleRow sample_row;
    sample_row.logits = {
        memory_.device_floats(needs_.device.logits) + static_cast<size_t>(head_row) * vocab, vocab};
    sample_row.prompt = tokens.first(prompt);
    sample_row.generated = tokens.subspan(prompt);
    if (ban) sample_row.banned = sequence.end_tokens;
    sample_row.stream = sequence.stream;
    sample_row.step = sequence.generated();
    try {
      sample(sample_row, sequence.sampling, sampling_[worker % sampling_.size()], sequence.sampled);
    } catch (const Error& error) {
      sequence.error = error.what() + kv_hint();
    }
    return;
  }
}

void Performer::sample_rows(const Task& task) {
  if (!plan_.keeps_kv()) return finish_scores(task);
  struct Context {
    Performer* performer;
    const planner::Sweep* sweep;
  } context{this, &sweep_of(task)};
  device_->for_each(
      context.sweep->head_rows,
      [](void* opaque, int64_t row) {
        const auto* c = static_cast<Context*>(opaque);
        c->performer->sample_row(*c->sweep, row);
      },
      &context);
}

}  // namespace transload::engine
