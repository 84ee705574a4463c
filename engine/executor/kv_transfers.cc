// Moving KV blocks, queries and attention outputs.
#include <cmath>

#include "base/check.h"
#include "base/units.h"
#include "engine/executor/performer.h"

namespace transload::engine {

using layout::kKvBlockSlots;
using layout::Tier;
using planner::Task;

namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

// work(block, row, number of the block in the sequence) for every block of a group of decode rows
// or of a prompt.
template <class Work>
void Performer::group_blocks(const Task& task, Work work) const {
  const planner::Group& group = sweep_of(task).groups[static_cast<size_t>(task.index)];
  kvcache::BlockWalk blocks(
      kv_blocks_, std::span(sweep_of(task).places).subspan(static_cast<size_t>(group.first_place)),
      group.device_offset, group.host_offset);
  for (int64_t i = group.first_row; i < group.end_row; ++i) {
    const planner::SweepRow& row = batch_of(task).rows[static_cast<size_t>(i)];
    const int64_t first = row.prompt ? group.first_block : 0;
    const int64_t end = row.prompt ? group.end_block : row.position / kKvBlockSlots + 1;
    for (int64_t block = first; block < end; ++block) work(blocks.next(), row, block);
  }
}

// Whether a block holds nothing before this sweep.
bool Performer::is_fresh(const planner::SweepRow& row, int64_t block) {
  return row.prompt || row.position == block * kKvBlockSlots;
}

void Performer::start_read_kv(const Task& task) {
  read_requests_.clear();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier != Tier::kDisk || is_fresh(row, block)) return;
    std::byte* to = plan_.single_tier ? at.device : at.host;
    read_requests_.push_back(
        {spill_read_file_, at.place.block * needs_.kv_block_bytes, needs_.kv_block_bytes, to});
  });
  read_lane_->submit(read_requests_, false, static_cast<uint64_t>(task.id));
}

void Performer::finish_read_kv(const Task& task) {
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier != Tier::kDisk || is_fresh(row, block)) return;
    const std::byte* data = plan_.single_tier ? at.device : at.host;
    memory_.checksums().verify(at.place.block, data, needs_.kv_block_bytes);
  });
}

void Performer::start_write_kv(const Task& task) {
  write_requests_.clear();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    const bool changed = row.prompt || block == row.position / kKvBlockSlots;
    if (at.place.tier != Tier::kDisk || !changed) return;
    std::byte* data = plan_.single_tier ? at.device : at.host;
    memory_.checksums().set(at.place.block, data, needs_.kv_block_bytes);
    write_requests_.push_back(
        {spill_write_file_, at.place.block * needs_.kv_block_bytes, needs_.kv_block_bytes, data});
  });
  spill_bytes_written_ += static_cast<int64_t>(write_requests_.size()) * needs_.kv_block_bytes;
  write_lane_->submit(write_requests_, true, static_cast<uint64_t>(task.id));
}

void Performer::load_kv(const Task& task) {
  offload::PacedCopier& copier = copiers_[0];
  copier.begin();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier == Tier::kDevice || is_fresh(row, block)) return;
    copier.copy(at.device, at.host, needs_.kv_block_bytes);
  });
  copier.finish();
}

// Queries to the host, or attention outputs back into their place.
void Performer::copy_query(const Task& task, bool to_device) {
  const planner::Group& group = sweep_of(task).groups[static_cast<size_t>(task.index)];
  const int64_t width = model_.spec.q_width();
  float* host = memory_.host_floats(needs_.host.query) +
                (task.visit_buffer * plan_.batch_size + group.first_row) * width;
  float* device = visit_q(task.visit_buffer, group.first_row);
  offload::PacedCopier& copier = copiers_[to_device ? 0 : 1];
  copier.begin();
  copier.copy(to_device ? device : host, to_device ? host : device,
              (group.end_row - group.first_row) * width * kFloat);
  copier.finish();
}

kernels::KvShape Performer::kv_shape() const {
  return {model_.spec.kv_heads, model_.spec.head_dim, plan_.kv_bits};
}

// Brings a row's K and V, numbers of the cache since attention_in, from the visit's buffer into a
// slot of a block.
kernels::KvSlotWrite Performer::slot_write(int64_t visit_buffer, int64_t row, std::byte* block,
                                           int64_t slot) const {
  const auto* k = reinterpret_cast<const std::byte*>(visit_kv(visit_buffer, row));
  return {k, k + layout::kv_bytes(model_.spec.kv_width(), plan_.kv_bits), block, slot};
}

void Performer::store_kv(const Task& task) {
  const kernels::KvShape shape = kv_shape();
  const auto store = [&](int64_t row, std::byte* block, int64_t slot) {
    kernels::write_slot(slot_write(task.visit_buffer, row, block, slot), shape);
    copiers_[1].copied(2 * shape.kv_heads * shape.vector_bytes());
  };
  copiers_[1].begin();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier == Tier::kDevice) return;
    if (row.prompt) {
      const int64_t first = block * kKvBlockSlots;
      const int64_t tokens = std::min(kKvBlockSlots, row.tokens - first);
      for (int64_t i = 0; i < tokens; ++i) store(row.batch_row + first + i, at.host, i);
    } else if (block == row.position / kKvBlockSlots) {
      store(row.batch_row, at.host, row.position % kKvBlockSlots);
    }
  });
  copiers_[1].finish();
}

// Attention of decode rows, on the device (which puts the new K and V into their blocks first) or
// on the host (where they have been stored).
void Performer::attend(const Task& task, bool on_host) {
  const layout::DecoderSpec& spec = model_.spec;
  AttendScratch& scratch = attend_[on_host ? 1 : 0];
  scratch.rows.clear();
  scratch.blocks.clear();
  scratch.writes.clear();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    std::byte* data = on_host ? at.host : at.device;
    scratch.blocks.push_back(data);
    const std::byte* const* last = scratch.blocks.data() + scratch.blocks.size() - 1;
    if (block < row.position / kKvBlockSlots) return;
    float* q = visit_q(task.visit_buffer, row.batch_row);
    if (on_host)
      q = memory_.host_floats(needs_.host.query) +
          (task.visit_buffer * plan_.batch_size + row.batch_row) * spec.q_width();
    if (!on_host)
      scratch.writes.push_back(
          slot_write(task.visit_buffer, row.batch_row, data, row.position % kKvBlockSlots));
    scratch.rows.push_back({q, q, last - block, row.position + 1});
  });
  kernels::Backend& backend = on_host ? *host_ : *device_;
  const kernels::KvShape shape = kv_shape();
  backend.write_slots(scratch.writes, shape);
  backend.attend({scratch.rows, spec.heads, shape, attention_scale()});
}

void Performer::attend_prompts(const Task& task) {
  const layout::DecoderSpec& spec = model_.spec;
  const planner::BatchSweep& batch = batch_of(task);
  Task one = task;
  for (const planner::SweepRow& row : batch.rows) {
    if (!row.prompt) continue;
    float* q = visit_q(task.visit_buffer, row.batch_row);
    const kernels::KvSlotWrite kv = slot_write(task.visit_buffer, row.batch_row, nullptr, 0);
    device_->attend_prompt({.q = q,
                            .out = q,
                            .ld_q = spec.q_width(),
                            .ld_out = spec.q_width(),
                            .k = kv.k,
                            .v = kv.v,
                            .ld_kv = 2 * spec.kv_width() * kFloat,
                            .rows = row.tokens,
                            .heads = spec.heads,
                            .kv = kv_shape(),
                            .scale = attention_scale()});
    if (plan_.keeps_kv()) pack_blocks(one, Tier::kDevice);
    ++one.index;
  }
}

void Performer::pack_prompt(const Task& task) { pack_blocks(task, Tier::kDisk); }

// A prompt's K and V into those of its blocks that are at home on `tier`, on the device.
void Performer::pack_blocks(const Task& task, Tier tier) {
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier != tier) return;
    std::vector<kernels::KvSlotWrite>& writes = attend_[0].writes;
    writes.clear();
    const int64_t first = block * kKvBlockSlots;
    const int64_t tokens = std::min(kKvBlockSlots, row.tokens - first);
    for (int64_t i = 0; i < tokens; ++i)
      writes.push_back(slot_write(task.visit_buffer, row.batch_row + first + i, at.device, i));
    device_->write_slots(writes, kv_shape());
  });
}

float Performer::attention_scale() const {
  return 1.0F / std::sqrt(static_cast<float>(model_.spec.head_dim));
}

}  // namespace transload::engine
