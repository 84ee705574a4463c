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
    float* to = plan_.single_tier ? at.device : at.host;
    read_requests_.push_back({spill_read_file_, at.place.block * needs_.kv_block_bytes,
                              needs_.kv_block_bytes, reinterpret_cast<std::byte*>(to)});
  });
  read_lane_->submit(read_requests_, false, static_cast<uint64_t>(task.id));
}

void Performer::finish_read_kv(const Task& task) {
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier != Tier::kDisk || is_fresh(row, block)) return;
    const float* data = plan_.single_tier ? at.device : at.host;
    memory_.checksums().verify(at.place.block, reinterpret_cast<const std::byte*>(data),
                               needs_.kv_block_bytes);
  });
}

void Performer::start_write_kv(const Task& task) {
  write_requests_.clear();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    const bool changed = row.prompt || block == row.position / kKvBlockSlots;
    if (at.place.tier != Tier::kDisk || !changed) return;
    auto* data = reinterpret_cast<std::byte*>(plan_.single_tier ? at.device : at.host);
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

// K and V of consecutive tokens from the visit's buffer into slots of a block on the host.
void Performer::store_tokens(std::span<const float> kv, float* block, int64_t slot) {
  kvcache::copy_slots({model_.spec.kv_heads, model_.spec.head_dim}, kv, block, slot,
                      [&](float* to, const float* from, int64_t floats) {
                        copiers_[1].copy(to, from, floats * kFloat);
                      });
}

void Performer::store_kv(const Task& task) {
  const int64_t row_floats = 2 * model_.spec.kv_width();
  const auto rows = [&](int64_t first, int64_t count) {
    return std::span<const float>(visit_kv(task.visit_buffer, first),
                                  static_cast<size_t>(count * row_floats));
  };
  copiers_[1].begin();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier == Tier::kDevice) return;
    if (row.prompt) {
      const int64_t first = block * kKvBlockSlots;
      store_tokens(rows(row.batch_row + first, std::min(kKvBlockSlots, row.tokens - first)),
                   at.host, 0);
    } else if (block == row.position / kKvBlockSlots) {
      store_tokens(rows(row.batch_row, 1), at.host, row.position % kKvBlockSlots);
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
  const int64_t kv_width = spec.kv_width();
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    float* data = on_host ? at.host : at.device;
    scratch.blocks.push_back(data);
    const float* const* last = scratch.blocks.data() + scratch.blocks.size() - 1;
    if (block < row.position / kKvBlockSlots) return;
    float* q = visit_q(task.visit_buffer, row.batch_row);
    if (on_host)
      q = memory_.host_floats(needs_.host.query) +
          (task.visit_buffer * plan_.batch_size + row.batch_row) * spec.q_width();
    const float* kv = visit_kv(task.visit_buffer, row.batch_row);
    if (!on_host) scratch.writes.push_back({kv, kv + kv_width, data, row.position % kKvBlockSlots});
    scratch.rows.push_back({q, q, last - block, row.position + 1});
  });
  kernels::Backend& backend = on_host ? *host_ : *device_;
  const kernels::KvShape shape{spec.kv_heads, spec.head_dim};
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
    const float* kv = visit_kv(task.visit_buffer, row.batch_row);
    device_->attend_prompt({.q = q,
                            .out = q,
                            .ld_q = spec.q_width(),
                            .ld_out = spec.q_width(),
                            .k = kv,
                            .v = kv + spec.kv_width(),
                            .ld_kv = 2 * spec.kv_width(),
                            .rows = row.tokens,
                            .heads = spec.heads,
                            .kv = {spec.kv_heads, spec.head_dim},
                            .scale = attention_scale()});
    if (plan_.keeps_kv()) pack_blocks(one, Tier::kDevice);
    ++one.index;
  }
}

void Performer::pack_prompt(const Task& task) { pack_blocks(task, Tier::kDisk); }

// A prompt's K and V into those of its blocks that are at home on `tier`, on the device.
void Performer::pack_blocks(const Task& task, Tier tier) {
  const layout::DecoderSpec& spec = model_.spec;
  group_blocks(task, [&](const kvcache::BlockAt& at, const planner::SweepRow& row, int64_t block) {
    if (at.place.tier != tier) return;
    std::vector<kernels::KvSlotWrite>& writes = attend_[0].writes;
    writes.clear();
    const int64_t first = block * kKvBlockSlots;
    const int64_t tokens = std::min(kKvBlockSlots, row.tokens - first);
    for (int64_t i = 0; i < tokens; ++i) {
      const float* kv = visit_kv(task.visit_buffer, row.batch_row + first + i);
      writes.push_back({kv, kv + spec.kv_width(), at.device, i});
    }
    device_->write_slots(writes, {spec.kv_heads, spec.head_dim});
  });
}

float Performer::attention_scale() const {
  return 1.0F / std::sqrt(static_cast<float>(model_.spec.head_dim));
}

}  // namespace transload::engine
