#include "planner/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace transload::planner {

using layout::Tier;

namespace {

// Blocks that a ring may hold as separate groups; groups are at least one block.
int64_t ring_spans(int64_t blocks) { return std::max<int64_t>(blocks, 1) + 2; }

int64_t piece_count(const Footprint& needs) {
  int64_t count = 2;
  for (const layout::Stage& stage : needs.slices.stages)
    count += static_cast<int64_t>(stage.pieces.size());
  return count;
}

}  // namespace

Schedule::Schedule(const layout::Model& model, const Plan& plan, const Footprint& needs)
    : model_(model),
      plan_(plan),
      needs_(needs),
      kv_(plan.row_slots(), plan.keeps_kv() ? model.spec.layers : 0, needs.max_kv_blocks,
          plan.kv_blocks),
      tokens_(static_cast<size_t>(plan.row_slots())),
      entered_(static_cast<size_t>(plan.row_slots())),
      weight_ring_(plan.weight_ring_bytes, piece_count(needs)),
      staging_(plan.staging_bytes, piece_count(needs) + static_cast<int64_t>(needs.loads.size())),
      hidden_host_(static_cast<size_t>(plan.num_batches)),
      visit_clock_(static_cast<size_t>(plan.visit_buffers)),
      query_free_(static_cast<size_t>(plan.visit_buffers)),
      query_used_(static_cast<size_t>(plan.visit_buffers)),
      kv_written_(static_cast<size_t>(plan.num_batches * model.spec.layers)),
      kv_ring_device_(plan.kv_ring_device_blocks, ring_spans(plan.kv_ring_device_blocks)),
      kv_ring_host_(plan.kv_ring_host_blocks, ring_spans(plan.kv_ring_host_blocks)) {
  for (const layout::Stage& stage : needs.slices.stages)
    piece_spans_.emplace_back(stage.pieces.size(), -1);
  layer_weights_.resize(static_cast<size_t>(model.spec.layers));
  for (const layout::Weight& weight : model.weights)
    if (weight.layer >= 0 && is_matrix(weight.role))
      layer_weights_[static_cast<size_t>(weight.layer)].push_back(&weight);
  reserve();
}

// Room for the largest sweep: every row a prompt in as many groups as its ring makes of it.
void Schedule::reserve() {
  const auto rows = static_cast<size_t>(plan_.row_slots());
  const auto layers = static_cast<size_t>(model_.spec.layers);
  const auto blocks = static_cast<size_t>(needs_.max_kv_blocks);
  const int64_t ring = ring_blocks(plan_.single_tier ? Tier::kDevice : Tier::kHost);
  const auto groups =
      static_cast<size_t>(2 + ceil_div(needs_.max_kv_blocks, std::max<int64_t>(ring / 2, 1)));
  for (Sweep& sweep : sweeps_) {
    sweep.admissions.reserve(rows);
    sweep.batches.resize(static_cast<size_t>(plan_.num_batches));
    for (BatchSweep& batch : sweep.batches)
      batch.rows.reserve(static_cast<size_t>(plan_.batch_size));
    sweep.groups.reserve(rows * layers * groups);
    sweep.places.reserve(rows * layers * blocks * 2);
  }
  uses_.reserve(static_cast<size_t>(plan_.batch_size) * (2 * blocks + 4) +
                static_cast<size_t>(piece_count(needs_)) + 8);
}

Task Schedule::task(TaskKind kind, Lane lane) {
  Task task;
  task.kind = kind;
  task.lane = lane;
  task.id = ++emitted_[static_cast<size_t>(lane)];
  task.sweep = sweep_;
  uses_.clear();
  return task;
}

void Schedule::emit(Task& task) {
  // A lane runs in order: it never waits for itself.
  task.needs.last[static_cast<size_t>(task.lane)] = 0;
  sink_->emit(task, uses_);
}

void Schedule::start(TaskSink& sink) {
  sink_ = &sink;
  load_residents();
  pump_weights();
}

const Sweep& Schedule::next(const BatchState& state, TaskSink& sink) {
  check(state.active.size() == tokens_.size(), "state of another plan");
  sink_ = &sink;
  ++sweep_;
  Sweep& now = sweep();
  now.number = sweep_;
  now.admissions.clear();
  now.groups.clear();
  now.places.clear();
  admit(state);
  list_rows(state);
  check(now.tokens > 0, "a sweep without rows");
  const auto admitted = static_cast<int64_t>(now.admissions.size());
  const auto waiting = static_cast<int64_t>(state.waiting.size());
  last_sweep_ = !plan_.keeps_kv() && admitted == waiting && !state.more_waiting;

  for (int32_t b = 0; b < plan_.num_batches; ++b)
    if (batch(b).tokens > 0) embed(b);
  sweep_layers();
  for (int32_t b = 0; b < plan_.num_batches; ++b)
    if (batch(b).head_rows > 0) finish_rows(b);
  head();
  return now;
}

// With two visit buffers a batch's projections are emitted before the previous batch's output
// projection: that batch's attention and transfers then overlap them.
void Schedule::sweep_layers() {
  Visit previous;
  previous.batch = -1;
  const auto finish = [&](Visit& visit) {
    back(visit);
    const bool last_of_layer = [&] {
      for (int32_t b = visit.batch + 1; b < plan_.num_batches; ++b)
        if (batch(b).tokens > 0) return false;
      return true;
    }();
    if (last_of_layer) close_stage(visit.layer);
  };
  const int64_t busy = std::count_if(sweep().batches.begin(), sweep().batches.end(),
                                     [](const BatchSweep& b) { return b.tokens > 0; });
  const bool overlap = pipelined() && busy > 1;
  for (int32_t layer = 0; layer < model_.spec.layers; ++layer) {
    ensure_stage(layer);
    for (int32_t b = 0; b < plan_.num_batches; ++b) {
      if (batch(b).tokens == 0) continue;
      Visit visit{.layer = layer, .batch = b, .buffer = 0, .work = 0, .attention = {}};
      visit.buffer = visits_ % static_cast<size_t>(plan_.visit_buffers);
      visit.work = visits_ % 2;
      ++visits_;
      front(visit);
      if (!overlap) {
        finish(visit);
        continue;
      }
      if (previous.batch >= 0) finish(previous);
      previous = visit;
    }
  }
  if (overlap) finish(previous);
}

void Schedule::admit(const BatchState& state) {
  for (size_t slot = 0; slot < tokens_.size(); ++slot)
    if (!state.active[slot] && tokens_[slot] > 0) {
      if (plan_.keeps_kv()) kv_.release(static_cast<int64_t>(slot));
      tokens_[slot] = 0;
    }
  int64_t waiting = 0;
  const auto last = static_cast<int64_t>(state.waiting.size());
  bool room = true;
  for (int64_t b = 0; b < plan_.num_batches && room; ++b) {
    int64_t left = plan_.prefill_tokens;
    for (int64_t slot = b * plan_.batch_size; slot < (b + 1) * plan_.batch_size && room; ++slot) {
      if (tokens_[static_cast<size_t>(slot)] > 0 || waiting == last) continue;
      const WaitingPrompt& prompt = state.waiting[static_cast<size_t>(waiting)];
      if (prompt.prompt_tokens > left) break;
      // The last new token is never fed back, so it needs no slot.
      const int64_t slots = prompt.prompt_tokens + std::max<int64_t>(prompt.max_new_tokens - 1, 0);
      room = !plan_.keeps_kv() || kv_.reserve(slot, slots);
      if (!room) break;
      left -= prompt.prompt_tokens;
      entered_[static_cast<size_t>(slot)] = prompt;
      sweep().admissions.push_back({slot, waiting++});
    }
  }
}

void Schedule::add_row(BatchSweep& batch, const SweepRow& row) {
  batch.rows.push_back(row);
  batch.rows.back().batch_row = batch.tokens;
  batch.tokens += row.tokens;
  batch.head_rows += row.head_rows;
}

void Schedule::list_rows(const BatchState& state) {
  Sweep& now = sweep();
  now.head_rows = 0;
  now.tokens = 0;
  size_t admitted = 0;
  for (int64_t b = 0; b < plan_.num_batches; ++b) {
    BatchSweep& batch = now.batches[static_cast<size_t>(b)];
    batch.rows.clear();
    batch.tokens = 0;
    batch.head_rows = 0;
    for (int64_t slot = b * plan_.batch_size; slot < (b + 1) * plan_.batch_size; ++slot) {
      int64_t& tokens = tokens_[static_cast<size_t>(slot)];
      if (tokens == 0 || !state.active[static_cast<size_t>(slot)]) continue;
      add_row(batch, {.row_slot = slot, .position = tokens});
      ++tokens;
    }
    batch.decode_rows = static_cast<int64_t>(batch.rows.size());
    for (; admitted < now.admissions.size(); ++admitted) {
      const int64_t slot = now.admissions[admitted].row_slot;
      if (slot >= (b + 1) * plan_.batch_size) break;
      const WaitingPrompt& prompt = entered_[static_cast<size_t>(slot)];
      add_row(batch, {.row_slot = slot,
                      .tokens = prompt.prompt_tokens,
                      .head_rows = prompt.head_rows,
                      .prompt = true});
      tokens_[static_cast<size_t>(slot)] = prompt.prompt_tokens;
    }
    batch.first_head_row = now.head_rows;
    now.head_rows += batch.head_rows;
    now.tokens += batch.tokens;
  }
}

}  // namespace transload::planner
