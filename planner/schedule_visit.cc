// A batch's visit to a layer: embedding, projections, MLP, and activations that live on the host.
#include <algorithm>

#include "base/units.h"
#include "planner/schedule.h"

namespace transload::planner {

using layout::Role;

namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

Task Schedule::visit_task(TaskKind kind, Lane lane, const Visit& visit) {
  Task made = task(kind, lane);
  made.layer = visit.layer;
  made.batch = visit.batch;
  made.visit_buffer = static_cast<int32_t>(visit.buffer);
  made.work = static_cast<int32_t>(visit.work);
  made.needs.add(sampled_);
  return made;
}

// The batch's hidden rows: those at home on the device, and the working copy of the others.
void Schedule::use_hidden(Task& task, Visit& visit, bool writes) {
  const int64_t row_bytes = model_.spec.hidden * kFloat;
  const int64_t tokens = batch(visit.batch).tokens;
  const int64_t on_device = std::min(tokens, needs_.device_rows);
  const int64_t home = visit.batch * needs_.device_rows * row_bytes;
  use(Buffer::kHidden, writes, home, home + on_device * row_bytes);
  if (tokens <= needs_.device_rows) return;
  BufferClock& work = hidden_work_[visit.work];
  if (writes) {
    work.written_by(task);
  } else {
    work.read_by(task);
  }
  const auto begin = static_cast<int64_t>(visit.work) * needs_.host_rows * row_bytes;
  use(Buffer::kHiddenWork, writes, begin, begin + (tokens - on_device) * row_bytes);
}

void Schedule::load_hidden(Visit& visit) {
  const int64_t rows = batch(visit.batch).tokens - needs_.device_rows;
  if (rows <= 0) return;
  Task load = visit_task(TaskKind::kLoadHidden, Lane::kHostToDevice, visit);
  load.bytes = rows * model_.spec.hidden * kFloat;
  hidden_host_[static_cast<size_t>(visit.batch)].read_by(load);
  hidden_work_[visit.work].written_by(load);
  const int64_t home = visit.batch * needs_.host_rows * model_.spec.hidden * kFloat;
  const auto begin =
      static_cast<int64_t>(visit.work) * needs_.host_rows * model_.spec.hidden * kFloat;
  use(Buffer::kHiddenHost, false, home, home + load.bytes);
  use(Buffer::kHiddenWork, true, begin, begin + load.bytes);
  emit(load);
}

void Schedule::store_hidden(Visit& visit) {
  const int64_t rows = batch(visit.batch).tokens - needs_.device_rows;
  if (rows <= 0) return;
  Task store = visit_task(TaskKind::kStoreHidden, Lane::kDeviceToHost, visit);
  store.bytes = rows * model_.spec.hidden * kFloat;
  hidden_work_[visit.work].read_by(store);
  hidden_host_[static_cast<size_t>(visit.batch)].written_by(store);
  const int64_t home = visit.batch * needs_.host_rows * model_.spec.hidden * kFloat;
  const auto begin =
      static_cast<int64_t>(visit.work) * needs_.host_rows * model_.spec.hidden * kFloat;
  use(Buffer::kHiddenWork, false, begin, begin + store.bytes);
  use(Buffer::kHiddenHost, true, home, home + store.bytes);
  emit(store);
}

// Rows [first_row, first_row + rows) of the batch. Where the embedding is not wholly on the device
// its rows are fetched first; bytes are those of all rows, as if none were on the device.
// NOLINTNEXTLINE(readability-function-size): three tasks of the same rows and buffers
void Schedule::embed_rows(Visit& visit, int64_t first_row, int64_t rows) {
  const size_t buffer = gathers_++ % 2;
  const auto fill = [&](Task& task, int64_t slot_bytes) {
    task.index = static_cast<int32_t>(buffer);
    task.source = first_row;
    task.target = rows;
    task.bytes = rows * slot_bytes;
  };
  const auto span = [&](Buffer name, bool writes, int64_t slot_bytes) {
    const auto begin = static_cast<int64_t>(buffer) * kGatherRows * slot_bytes;
    use(name, writes, begin, begin + rows * slot_bytes);
  };
  const layout::Weight& embedding = *model_.find(Role::kEmbedding);
  const auto index = static_cast<size_t>(&embedding - model_.weights.data());
  const bool on_disk = needs_.slices.cuts[index].rows(layout::Tier::kDisk) > 0;
  if (on_disk) {
    Task read = visit_task(TaskKind::kGatherRead, Lane::kDiskRead, visit);
    const bool direct = plan_.single_tier;
    const int64_t slot_bytes = direct ? needs_.gather_device_slot : needs_.gather_host_slot;
    fill(read, slot_bytes);
    (direct ? gather_device_ : gather_host_)[buffer].written_by(read);
    span(direct ? Buffer::kGatherDevice : Buffer::kGatherHost, true, slot_bytes);
    emit(read);
  }
  if (needs_.gather_device_slot > 0 && !plan_.single_tier) {
    Task copy = visit_task(TaskKind::kGatherCopy, Lane::kHostToDevice, visit);
    fill(copy, embedding.row_bytes());
    if (on_disk) {
      gather_host_[buffer].read_by(copy);
      span(Buffer::kGatherHost, false, needs_.gather_host_slot);
    }
    resident_host_.read_by(copy);
    gather_device_[buffer].written_by(copy);
    span(Buffer::kGatherDevice, true, needs_.gather_device_slot);
    emit(copy);
  }
  Task embed = visit_task(TaskKind::kEmbed, Lane::kDeviceCompute, visit);
  fill(embed, embedding.row_bytes());
  resident_device_.read_by(embed);
  if (needs_.gather_device_slot > 0) {
    gather_device_[buffer].read_by(embed);
    span(Buffer::kGatherDevice, false, needs_.gather_device_slot);
  }
  use_hidden(embed, visit, true);
  emit(embed);
}

void Schedule::embed(int32_t b) {
  Visit visit{.layer = -1, .batch = b, .buffer = 0, .work = visits_++ % 2, .attention = {}};
  const int64_t tokens = batch(b).tokens;
  const int64_t step = needs_.gather_device_slot > 0 ? kGatherRows : tokens;
  for (int64_t row = 0; row < tokens; row += step)
    embed_rows(visit, row, std::min(step, tokens - row));
  store_hidden(visit);
}

// Up to and including attention.
void Schedule::front(Visit& visit) {
  load_hidden(visit);
  const BatchSweep& rows = batch(visit.batch);
  Task in = visit_task(TaskKind::kAttentionIn, Lane::kDeviceCompute, visit);
  read_weights(in, rows.tokens, true);
  use_hidden(in, visit, false);
  visit_clock_[visit.buffer].written_by(in);
  use_visit(visit, false, true, 0, rows.tokens);
  use_visit(visit, true, true, 0, rows.tokens);
  emit(in);
  visit.attention.add(in.lane, in.id);

  kv_new_ = {};
  if (rows.decode_rows > 0) decode_groups(visit);
  if (rows.decode_rows < static_cast<int64_t>(rows.rows.size())) prompts(visit);
  kv_written(visit).add(kv_new_);
}

void Schedule::prompts(Visit& visit) {
  const BatchSweep& rows = batch(visit.batch);
  const auto first = static_cast<size_t>(rows.decode_rows);
  Task attend = visit_task(TaskKind::kAttendPrompt, Lane::kDeviceCompute, visit);
  attend.index = static_cast<int32_t>(sweep().groups.size());  // a group for each prompt
  for (size_t i = first; i < rows.rows.size(); ++i) {
    const SweepRow& row = rows.rows[i];
    attend.flops += 2 * row.tokens * (row.tokens + 1) * model_.spec.q_width();
    attend.bytes += kv_bytes(row.tokens);
    const auto index = static_cast<int64_t>(i);
    Group whole{};
    whole.first_row = index;
    whole.end_row = index + 1;
    whole.end_block = plan_.keeps_kv() ? ceil_div(row.tokens, layout::kKvBlockSlots) : 0;
    add_group(visit, whole);
    use_home(attend, visit, whole, layout::Tier::kDevice, true);
    use_new(visit, whole, false);
    use_visit(visit, false, true, row.batch_row, row.batch_row + row.tokens);
  }
  visit_clock_[visit.buffer].read_by(attend);
  emit(attend);
  visit.attention.add(attend.lane, attend.id);
  kv_new_.add(attend.lane, attend.id);
  if (!plan_.keeps_kv()) return;
  for (size_t i = first; i < rows.rows.size(); ++i)
    store_prompt(visit, rows.rows[i], static_cast<int64_t>(i));
}

// From the output projection on.
void Schedule::back(Visit& visit) {
  Task out = visit_task(TaskKind::kAttentionOut, Lane::kDeviceCompute, visit);
  out.needs.add(visit.attention);
  read_weights(out, batch(visit.batch).tokens, false);
  visit_clock_[visit.buffer].read_by(out);
  use_visit(visit, false, false, 0, batch(visit.batch).tokens);
  use_hidden(out, visit, true);
  emit(out);
  store_hidden(visit);
}

void Schedule::finish_rows(int32_t b) {
  Visit visit{.layer = static_cast<int32_t>(model_.spec.layers),
              .batch = b,
              .buffer = 0,
              .work = visits_++ % 2,
              .attention = {}};
  load_hidden(visit);
  Task final = visit_task(TaskKind::kFinal, Lane::kDeviceCompute, visit);
  final.bytes = batch(b).head_rows * model_.spec.hidden * kFloat;
  use_hidden(final, visit, false);
  emit(final);
}

}  // namespace transload::planner
