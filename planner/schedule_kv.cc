// KV blocks: bringing those of decode rows to where attention runs, storing what is new.
//
// A block lies at home on the device, on the host or on the disk. Attention on the device reads
// device blocks in place and all others through the device's KV ring; on the host it reads host
// blocks in place and disk blocks through the host's KV ring. New K and V come from the visit's
// buffer; blocks of the disk are written whole, from a ring.
#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "planner/schedule.h"

namespace transload::planner {

using layout::kKvBlockSlots;
using layout::Tier;

namespace {

constexpr int64_t kFloat = sizeof(float);

// Null for no blocks.
Ring::Span* allocate(Ring& ring, int64_t blocks) {
  return blocks > 0 ? &ring.at(ring.allocate(blocks).value()) : nullptr;
}

}  // namespace

Schedule::GroupSize Schedule::row_size(const Visit& visit, int64_t row_slot, int64_t first_block,
                                       int64_t end_block) const {
  GroupSize size;
  for (int64_t block = first_block; block < end_block; ++block)
    ++size.blocks[static_cast<size_t>(kv_.at(row_slot, visit.layer, block).tier)];
  return size;
}

// Blocks that pass through a tier's ring in groups of at most half of it, so that one group moves
// while the other is read; a single row may take all.
int64_t Schedule::ring_blocks(Tier tier) const {
  return tier == Tier::kDevice ? plan_.kv_ring_device_blocks : plan_.kv_ring_host_blocks;
}

void Schedule::decode_groups(Visit& visit) {
  const BatchSweep& rows = batch(visit.batch);
  const bool on_device = plan_.attention == AttentionSite::kDevice;
  query_free_[visit.buffer] = query_used_[visit.buffer];
  Group group{};
  GroupSize size;
  for (int64_t i = 0; i < rows.decode_rows; ++i) {
    const SweepRow& row = rows.rows[static_cast<size_t>(i)];
    const int64_t slots = row.position + 1;
    GroupSize more = row_size(visit, row.row_slot, 0, ceil_div(slots, kKvBlockSlots));
    more.slots = slots;
    const auto passing = [&](Tier ring) {
      if (ring == Tier::kHost || plan_.single_tier)
        return size.at(Tier::kDisk) + more.at(Tier::kDisk);
      return size.at(Tier::kHost) + size.at(Tier::kDisk) + more.at(Tier::kHost) +
             more.at(Tier::kDisk);
    };
    const bool full = (on_device && passing(Tier::kDevice) > ring_blocks(Tier::kDevice) / 2) ||
                      (!plan_.single_tier && passing(Tier::kHost) > ring_blocks(Tier::kHost) / 2);
    if (full && group.end_row > group.first_row) {
      decode_group(visit, group, size);
      group.first_row = group.end_row;
      size = {};
    }
    group.end_row = i + 1;
    for (size_t t = 0; t < layout::kTiers; ++t) size.blocks[t] += more.blocks[t];
    size.slots += more.slots;
  }
  decode_group(visit, group, size);
}

// Notes a group and the homes of its blocks: the sweep's tasks look nowhere else, so the tables may
// change while the last of them still run.
int32_t Schedule::add_group(const Visit& visit, const Group& group) {
  Sweep& now = sweep();
  const auto index = static_cast<int32_t>(now.groups.size());
  now.groups.push_back(group);
  now.groups.back().first_place = static_cast<int64_t>(now.places.size());
  const BatchSweep& rows = batch(visit.batch);
  for (int64_t i = group.first_row; i < group.end_row; ++i) {
    const SweepRow& row = rows.rows[static_cast<size_t>(i)];
    const int64_t end = row.prompt ? group.end_block : row.position / kKvBlockSlots + 1;
    for (int64_t block = row.prompt ? group.first_block : 0; block < end; ++block)
      now.places.push_back(kv_.at(row.row_slot, visit.layer, block));
  }
  return index;
}

void Schedule::decode_group(Visit& visit, const Group& group, const GroupSize& size) {
  const int32_t index = add_group(visit, group);
  if (plan_.attention == AttentionSite::kDevice) {
    attend_on_device(visit, size, index);
  } else {
    attend_on_host(visit, size, index);
  }
}

Task Schedule::group_task(TaskKind kind, Lane lane, const Visit& visit, int32_t index) {
  Task made = visit_task(kind, lane, visit);
  made.index = index;
  return made;
}

// Bytes of K and V of so many slots.
int64_t Schedule::kv_bytes(int64_t slots) const {
  return layout::kv_bytes(2 * slots * model_.spec.kv_width(), plan_.kv_bits);
}

// The blocks that the new tokens of the group's rows go to.
Schedule::Tails Schedule::tails(const Visit& visit, const Group& group) {
  Tails tails;
  const BatchSweep& rows = batch(visit.batch);
  for (int64_t i = group.first_row; i < group.end_row; ++i) {
    const SweepRow& row = rows.rows[static_cast<size_t>(i)];
    const auto place = kv_.at(row.row_slot, visit.layer, row.position / kKvBlockSlots);
    ++tails.blocks[static_cast<size_t>(place.tier)];
    if (row.position % kKvBlockSlots == 0) ++tails.fresh[static_cast<size_t>(place.tier)];
  }
  return tails;
}

void Schedule::use_home(Task& task, const Visit& visit, const Group& group, Tier tier,
                        bool writes) {
  static constexpr std::array<Buffer, layout::kTiers> kBuffers = {Buffer::kKvDevice,
                                                                  Buffer::kKvHost, Buffer::kKvDisk};
  const BatchSweep& rows = batch(visit.batch);
  for (int64_t i = group.first_row; i < group.end_row; ++i) {
    const SweepRow& row = rows.rows[static_cast<size_t>(i)];
    int64_t begin = group.first_block;
    int64_t end = group.end_block;
    if (!row.prompt) {
      end = row.position / kKvBlockSlots + 1;
      begin = writes ? end - 1 : 0;
      // There is nothing to read in a block that this token opens, but for attention on the host,
      // which comes after the store.
      const bool opens = row.position % kKvBlockSlots == 0;
      if (opens && !writes && task.kind != TaskKind::kHostAttend) --end;
    }
    for (int64_t block = begin; block < end; ++block) {
      const auto place = kv_.at(row.row_slot, visit.layer, block);
      if (place.tier == tier)
        use(kBuffers[static_cast<size_t>(tier)], writes, place.block, place.block + 1);
    }
  }
  if (!writes) task.needs.add(kv_written(visit));
}

void Schedule::use_ring(Task& task, Buffer buffer, Ring::Span& span, bool writes) {
  if (writes) {
    span.clock.written_by(task);
  } else {
    span.clock.read_by(task);
  }
  use(buffer, writes, span.offset, span.offset + span.bytes);
}

// Brings the group's KV blocks of the disk, of which so many hold something, into a ring: the
// host's, or in a single tier the device's.
void Schedule::read_group(Visit& visit, int32_t index, int64_t blocks, Ring::Span& ring) {
  const Group& group = sweep().groups[static_cast<size_t>(index)];
  Task read = group_task(TaskKind::kReadKv, Lane::kDiskRead, visit, index);
  read.bytes = blocks * needs_.kv_block_bytes;
  use_home(read, visit, group, Tier::kDisk, false);
  use_ring(read, plan_.single_tier ? Buffer::kKvRingDevice : Buffer::kKvRingHost, ring, true);
  emit(read);
}

void Schedule::attend_on_device(Visit& visit, const GroupSize& size, int32_t index) {
  Group& group = sweep().groups[static_cast<size_t>(index)];
  const bool single = plan_.single_tier;
  const int64_t passing = size.at(Tier::kDisk) + (single ? 0 : size.at(Tier::kHost));
  const Tails tail = tails(visit, group);
  Dependencies loaded;
  Ring::Span* const device = allocate(kv_ring_device_, passing);
  Ring::Span* const host = allocate(kv_ring_host_, single ? 0 : size.at(Tier::kDisk));
  if (device != nullptr) group.device_offset = device->offset;
  if (host != nullptr) group.host_offset = host->offset;
  Ring::Span* const from_disk = single ? device : host;
  const int64_t on_disk = size.at(Tier::kDisk) - tail.fresh_at(Tier::kDisk);
  if (from_disk != nullptr) read_group(visit, index, on_disk, *from_disk);
  if (device != nullptr && !single) {
    Task load = group_task(TaskKind::kLoadKv, Lane::kHostToDevice, visit, index);
    load.bytes =
        (passing - tail.fresh_at(Tier::kHost) - tail.fresh_at(Tier::kDisk)) * needs_.kv_block_bytes;
    use_home(load, visit, group, Tier::kHost, false);
    if (host != nullptr) use_ring(load, Buffer::kKvRingHost, *host, false);
    use_ring(load, Buffer::kKvRingDevice, *device, true);
    emit(load);
    loaded.add(load.lane, load.id);
  }
  Task attend = group_task(TaskKind::kAttend, Lane::kDeviceCompute, visit, index);
  attend.bytes = kv_bytes(size.slots);
  attend.flops = 4 * size.slots * model_.spec.q_width();
  use_home(attend, visit, group, Tier::kDevice, false);
  use_home(attend, visit, group, Tier::kDevice, true);
  if (device != nullptr) use_ring(attend, Buffer::kKvRingDevice, *device, true);
  visit_clock_[visit.buffer].read_by(attend);
  use_new(visit, group, false);
  use_query_rows(visit, group, true);
  emit(attend);
  visit.attention.add(attend.lane, attend.id);
  kv_new_.add(attend.lane, attend.id);
  store_tail(visit, {tail, index, host != nullptr ? host : device, loaded});
  if (device != nullptr) device->open = false;
  if (host != nullptr) host->open = false;
}

// Brings the group's new K and V home from the visit's buffer. Tail blocks of the disk are in
// `ring` (the host's, or in a single tier the device's, where attention has put the token already).
// The result is what attention on the host must wait for.
Dependencies Schedule::store_tail(Visit& visit, const TailStore& what) {
  const auto& [tail, index, ring, loaded] = what;
  const Group& group = sweep().groups[static_cast<size_t>(index)];
  Dependencies stored;
  const bool single = plan_.single_tier;
  if (!single && tail.at(Tier::kHost) + tail.at(Tier::kDisk) > 0) {
    Task store = group_task(TaskKind::kStoreKv, Lane::kDeviceToHost, visit, index);
    store.bytes = kv_bytes(tail.at(Tier::kHost) + tail.at(Tier::kDisk));
    visit_clock_[visit.buffer].read_by(store);
    store.needs.add(loaded);
    use_new(visit, group, false);
    use_home(store, visit, group, Tier::kHost, true);
    if (tail.at(Tier::kDisk) > 0) use_ring(store, Buffer::kKvRingHost, *ring, true);
    emit(store);
    stored.add(store.lane, store.id);
    kv_new_.add(stored);
  }
  if (tail.at(Tier::kDisk) == 0) return stored;
  Task write = group_task(TaskKind::kWriteKv, Lane::kDiskWrite, visit, index);
  write.bytes = tail.at(Tier::kDisk) * needs_.kv_block_bytes;
  use_ring(write, single ? Buffer::kKvRingDevice : Buffer::kKvRingHost, *ring, false);
  use_home(write, visit, group, Tier::kDisk, true);
  emit(write);
  kv_new_.add(write.lane, write.id);
  return stored;
}

void Schedule::attend_on_host(Visit& visit, const GroupSize& size, int32_t index) {
  Group& group = sweep().groups[static_cast<size_t>(index)];
  const Tails tail = tails(visit, group);
  Ring::Span* const host = allocate(kv_ring_host_, size.at(Tier::kDisk));
  if (host != nullptr) {
    group.host_offset = host->offset;
    read_group(visit, index, size.at(Tier::kDisk) - tail.fresh_at(Tier::kDisk), *host);
  }
  const int64_t query_bytes = (group.end_row - group.first_row) * model_.spec.q_width() * kFloat;
  Task send = group_task(TaskKind::kSendQuery, Lane::kDeviceToHost, visit, index);
  send.bytes = query_bytes;
  visit_clock_[visit.buffer].read_by(send);
  send.needs.add(query_free_[visit.buffer]);
  use_query_rows(visit, group, false);
  use_query(visit, group, true);
  emit(send);
  // The token's K and V go into its block before attention reads it.
  const Dependencies stored = store_tail(visit, {tail, index, host, {}});
  Task attend = group_task(TaskKind::kHostAttend, Lane::kHostCompute, visit, index);
  attend.bytes = kv_bytes(size.slots);
  attend.flops = 4 * size.slots * model_.spec.q_width();
  attend.needs.add(send.lane, send.id);
  attend.needs.add(stored);
  use_home(attend, visit, group, Tier::kHost, false);
  if (host != nullptr) use_ring(attend, Buffer::kKvRingHost, *host, false);
  use_query(visit, group, true);
  emit(attend);
  Task back = group_task(TaskKind::kReturnOutput, Lane::kHostToDevice, visit, index);
  back.bytes = query_bytes;
  back.needs.add(attend.lane, attend.id);
  use_query(visit, group, false);
  use_query_rows(visit, group, true);
  emit(back);
  query_used_[visit.buffer].add(back.lane, back.id);
  visit.attention.add(back.lane, back.id);
  if (host != nullptr) host->open = false;
}

void Schedule::use_query(const Visit& visit, const Group& group, bool writes) {
  const int64_t begin = static_cast<int64_t>(visit.buffer) * plan_.batch_size;
  use(Buffer::kQueryHost, writes, begin + group.first_row, begin + group.end_row);
}

// Rows of the visit's buffer: queries (and attention outputs), then K and V, counted in rows.
void Schedule::use_visit(const Visit& visit, bool kv, bool writes, int64_t first, int64_t end) {
  const int64_t part = 2 * static_cast<int64_t>(visit.buffer) + (kv ? 1 : 0);
  use(Buffer::kVisit, writes, part * plan_.batch_rows() + first, part * plan_.batch_rows() + end);
}

void Schedule::use_query_rows(const Visit& visit, const Group& group, bool writes) {
  use_visit(visit, false, writes, group.first_row, group.end_row);
}

void Schedule::use_new(const Visit& visit, const Group& group, bool writes) {
  const SweepRow& first = batch(visit.batch).rows[static_cast<size_t>(group.first_row)];
  const SweepRow& last = batch(visit.batch).rows[static_cast<size_t>(group.end_row - 1)];
  use_visit(visit, true, writes, first.batch_row, last.batch_row + last.tokens);
}

// A prompt's K and V lie in the visit's buffer. Blocks at home on the device are filled by the
// attention task; those of the host and the disk leave in groups that fit the rings.
void Schedule::store_prompt(Visit& visit, const SweepRow& row, int64_t row_index) {
  const int64_t blocks = ceil_div(row.tokens, kKvBlockSlots);
  const int64_t ring = ring_blocks(plan_.single_tier ? Tier::kDevice : Tier::kHost);
  Group group{.first_row = row_index,
              .end_row = row_index + 1,
              .first_block = 0,
              .end_block = 0,
              .device_offset = 0,
              .host_offset = 0};
  const auto flush = [&](int64_t end_block) {
    group.end_block = end_block;
    const GroupSize size = row_size(visit, row.row_slot, group.first_block, end_block);
    if (size.at(Tier::kHost) + size.at(Tier::kDisk) > 0) store_prompt_group(visit, group, size);
    group.first_block = end_block;
  };
  int64_t disk = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    if (kv_.at(row.row_slot, visit.layer, block).tier != Tier::kDisk) continue;
    if (disk == std::max<int64_t>(ring / 2, 1)) {
      flush(block);
      disk = 0;
    }
    ++disk;
  }
  flush(blocks);
}

void Schedule::store_prompt_group(Visit& visit, const Group& made, const GroupSize& size) {
  const int32_t index = add_group(visit, made);
  Group& group = sweep().groups.back();
  const bool single = plan_.single_tier;
  const int64_t disk = size.at(Tier::kDisk);
  Ring& ring = single ? kv_ring_device_ : kv_ring_host_;
  const Buffer ring_buffer = single ? Buffer::kKvRingDevice : Buffer::kKvRingHost;
  Ring::Span* span = nullptr;
  if (disk > 0) {
    span = &ring.at(ring.allocate(disk).value());
    (single ? group.device_offset : group.host_offset) = span->offset;
  }
  Task store = group_task(single ? TaskKind::kPackPrompt : TaskKind::kStoreKv,
                          single ? Lane::kDeviceCompute : Lane::kDeviceToHost, visit, index);
  store.bytes = (disk + size.at(Tier::kHost)) * needs_.kv_block_bytes;
  visit_clock_[visit.buffer].read_by(store);
  use_new(visit, group, false);
  if (!single) use_home(store, visit, group, Tier::kHost, true);
  if (span != nullptr) use_ring(store, ring_buffer, *span, true);
  emit(store);
  kv_new_.add(store.lane, store.id);
  if (span == nullptr) return;
  Task write = group_task(TaskKind::kWriteKv, Lane::kDiskWrite, visit, index);
  write.bytes = disk * needs_.kv_block_bytes;
  use_ring(write, ring_buffer, *span, false);
  use_home(write, visit, group, Tier::kDisk, true);
  emit(write);
  kv_new_.add(write.lane, write.id);
  span->open = false;
}

}  // namespace transload::planner
