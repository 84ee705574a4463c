// The weight stream: resident loads, pieces through staging and ring, and the head, which uses one
// piece after the other.
#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "planner/schedule.h"

namespace transload::planner {

using layout::Piece;
using layout::Role;
using layout::Tier;

void Schedule::load_residents() {
  for (size_t i = 0; i < needs_.loads.size(); ++i) {
    const ResidentLoad& load = needs_.loads[i];
    const bool device = load.home == Tier::kDevice;
    BufferClock& home = device ? resident_device_ : resident_host_;
    const Buffer buffer = device ? Buffer::kResidentDevice : Buffer::kResidentHost;
    Task read = task(TaskKind::kReadResident, Lane::kDiskRead);
    read.index = static_cast<int32_t>(i);
    read.bytes = load.bytes;
    if (!load.staged) {
      home.partly_written_by(read);
      use(buffer, true, load.target, load.target + load.bytes);
      emit(read);
      continue;
    }
    Ring::Span& span = staging_.at(staging_.allocate(load.bytes).value());
    read.target = span.offset;
    span.clock.written_by(read);
    use(Buffer::kStaging, true, span.offset, span.offset + span.bytes);
    emit(read);
    Task copy = task(TaskKind::kCopyResident, Lane::kHostToDevice);
    copy.index = read.index;
    copy.bytes = load.copy_bytes;
    copy.source = span.offset + load.skip;
    span.clock.read_by(copy);
    home.partly_written_by(copy);
    use(Buffer::kStaging, false, span.offset, span.offset + span.bytes);
    use(buffer, true, load.target, load.target + load.copy_bytes);
    emit(copy);
    span.open = false;
  }
}

bool Schedule::is_streaming() const {
  return std::any_of(needs_.slices.stages.begin(), needs_.slices.stages.end(),
                     [](const layout::Stage& stage) { return !stage.pieces.empty(); });
}

// Moves to the next piece, over stages without pieces and into the next sweep.
void Schedule::settle_stream() {
  const auto stages = static_cast<int64_t>(needs_.slices.stages.size());
  while (stream_piece_ >= needs_.slices.stages[static_cast<size_t>(stream_stage_)].pieces.size()) {
    stream_piece_ = 0;
    if (++stream_stage_ == stages) {
      stream_stage_ = 0;
      ++stream_sweep_;
    }
  }
}

// Emits the load of the next piece of the stream; false when its place is not free yet.
bool Schedule::emit_piece() {
  settle_stream();
  const auto stage = static_cast<size_t>(stream_stage_);
  const Piece& piece = needs_.slices.stages[stage].pieces[stream_piece_];
  int64_t& slot = piece_spans_[stage][stream_piece_];
  if (slot >= 0) return false;
  const auto number = weight_ring_.allocate(ring_bytes(piece, plan_.single_tier));
  if (!number) return false;
  slot = *number;
  Ring::Span& target = weight_ring_.at(*number);
  if (piece.home == Tier::kHost) {
    copy_piece(piece, target, nullptr);
  } else {
    Ring::Span* staged =
        plan_.single_tier ? nullptr : &staging_.at(staging_.allocate(paged_bytes(piece)).value());
    Ring::Span& span = staged != nullptr ? *staged : target;
    Task read = stream_task(TaskKind::kReadPiece, Lane::kDiskRead);
    read.bytes = paged_bytes(piece);
    read.target = span.offset;
    span.clock.written_by(read);
    use(staged != nullptr ? Buffer::kStaging : Buffer::kWeightRing, true, span.offset,
        span.offset + span.bytes);
    emit(read);
    if (staged != nullptr) copy_piece(piece, target, staged);
  }
  ++stream_piece_;
  return true;
}

// A task of the stream belongs to the sweep that uses the piece.
Task Schedule::stream_task(TaskKind kind, Lane lane) {
  Task made = task(kind, lane);
  made.sweep = stream_sweep_;
  made.layer = static_cast<int32_t>(stream_stage_);
  made.index = static_cast<int32_t>(stream_piece_);
  return made;
}

void Schedule::copy_piece(const Piece& piece, Ring::Span& target, Ring::Span* staged) {
  Task copy = stream_task(TaskKind::kCopyPiece, Lane::kHostToDevice);
  copy.bytes = piece.bytes;
  copy.target = target.offset;
  if (staged != nullptr) {
    copy.source = staged->offset + piece.file_offset % kPageBytes;
    staged->clock.read_by(copy);
    use(Buffer::kStaging, false, staged->offset, staged->offset + staged->bytes);
    staged->open = false;
  } else {
    resident_host_.read_by(copy);
    use(Buffer::kResidentHost, false, 0, needs_.host.resident.bytes);
  }
  target.clock.written_by(copy);
  use(Buffer::kWeightRing, true, target.offset, target.offset + target.bytes);
  emit(copy);
}

void Schedule::pump_weights() {
  if (!is_streaming()) return;
  while (true) {
    settle_stream();
    if (last_sweep_ && stream_sweep_ > sweep_) return;
    if (!emit_piece()) return;
  }
}

void Schedule::ensure_stage(int64_t stage) {
  for (const int64_t& span : piece_spans_[static_cast<size_t>(stage)])
    while (span < 0) check(emit_piece(), "weight ring too small for a stage");
}

void Schedule::close_piece(int64_t& span) {
  weight_ring_.close(span);
  span = -1;
}

void Schedule::close_stage(int64_t stage) {
  for (int64_t& span : piece_spans_[static_cast<size_t>(stage)]) close_piece(span);
  pump_weights();
}

void Schedule::read_piece(Task& task, int64_t span) {
  Ring::Span& piece = weight_ring_.at(span);
  piece.clock.read_by(task);
  use(Buffer::kWeightRing, false, piece.offset, piece.offset + piece.bytes);
}

// Adds the weights that one half of a layer's visit multiplies with, and their cost for `rows`.
void Schedule::read_weights(Task& task, int64_t rows, bool attention_in) {
  const auto wanted = [&](Role role) {
    const bool in = role == Role::kQ || role == Role::kK || role == Role::kV || role == Role::kQkv;
    return in == attention_in;
  };
  resident_device_.read_by(task);
  const auto layer = static_cast<size_t>(task.layer);
  const layout::Stage& stage = needs_.slices.stages[layer];
  for (size_t i = 0; i < stage.pieces.size(); ++i)
    if (wanted(model_.weights[static_cast<size_t>(stage.pieces[i].weight)].role))
      read_piece(task, piece_spans_[layer][i]);
  const int64_t passes = ceil_div(rows, plan_.chunk_tokens);
  for (const layout::Weight* weight : layer_weights_[layer]) {
    if (!wanted(weight->role)) continue;
    task.bytes += passes * weight->rows * weight->row_bytes();
    task.flops += 2 * rows * weight->rows * weight->cols;
  }
}

void Schedule::logits(int32_t piece, int64_t rows) {
  const layout::Weight& weight = layout::head_weight(model_);
  Task compute = task(TaskKind::kLogits, Lane::kDeviceCompute);
  compute.index = piece;
  compute.bytes = rows * weight.row_bytes();
  compute.flops = 2 * sweep().head_rows * rows * weight.cols;
  if (piece < 0) {
    resident_device_.read_by(compute);
  } else {
    read_piece(compute, piece_spans_.back()[static_cast<size_t>(piece)]);
  }
  emit(compute);
}

// The head takes the rows of all batches at once, a piece of the vocabulary after the other.
void Schedule::head() {
  const auto index = static_cast<size_t>(&layout::head_weight(model_) - model_.weights.data());
  const int64_t resident = needs_.slices.cuts[index].rows(Tier::kDevice);
  if (resident > 0) logits(-1, resident);
  const layout::Stage& stage = needs_.slices.stages.back();
  for (size_t i = 0; i < stage.pieces.size(); ++i) {
    int64_t& span = piece_spans_.back()[i];
    while (span < 0) check(emit_piece(), "weight ring too small for the head");
    logits(static_cast<int32_t>(i), stage.pieces[i].rows);
    close_piece(span);
    pump_weights();
  }
  Task sample = task(TaskKind::kSample, Lane::kDeviceCompute);
  sample.bytes = sweep().head_rows * model_.spec.vocab * 4;
  emit(sample);
  sampled_ = {};
  sampled_.add(sample.lane, sample.id);
  pump_weights();
}

}  // namespace transload::planner
