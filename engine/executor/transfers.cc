// Moving weights, embedding rows and activations.
#include "base/check.h"
#include "base/units.h"
#include "engine/executor/performer.h"

namespace transload::engine {

using layout::Role;
using layout::Tier;
using planner::Task;

namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

void Performer::start_read_resident(const Task& task) {
  const planner::ResidentLoad& load = needs_.loads[static_cast<size_t>(task.index)];
  std::byte* to = memory_.host(needs_.host.staging) + task.target;
  if (!load.staged) {
    to = (load.home == Tier::kDevice ? memory_.device(needs_.device.resident)
                                     : memory_.host(needs_.host.resident)) +
         load.target;
  }
  const offload::DiskRequest request{load.file, load.file_offset, load.bytes, to};
  read_lane_->submit({&request, 1}, false, static_cast<uint64_t>(task.id));
}

void Performer::copy_resident(const Task& task) {
  const planner::ResidentLoad& load = needs_.loads[static_cast<size_t>(task.index)];
  offload::PacedCopier& copier = copiers_[0];
  copier.begin();
  copier.copy(memory_.device(needs_.device.resident) + load.target,
              memory_.host(needs_.host.staging) + task.source, load.copy_bytes);
  copier.finish();
}

void Performer::start_read_piece(const Task& task) {
  const auto stage = static_cast<size_t>(task.layer);
  const auto index = static_cast<size_t>(task.index);
  const layout::Piece& piece = needs_.slices.stages[stage].pieces[index];
  std::byte* to = memory_.host(needs_.host.staging) + task.target;
  if (plan_.single_tier) {
    to = memory_.device(needs_.device.weight_ring) + task.target;
    piece_at_[static_cast<size_t>(task.sweep % 2)][stage][index] =
        task.target + piece.file_offset % kPageBytes;
  }
  const layout::Weight& weight = model_.weights[static_cast<size_t>(piece.weight)];
  const offload::DiskRequest request{weight.extent.file, round_down(piece.file_offset, kPageBytes),
                                     planner::paged_bytes(piece), to};
  read_lane_->submit({&request, 1}, false, static_cast<uint64_t>(task.id));
}

void Performer::copy_piece(const Task& task) {
  const auto stage = static_cast<size_t>(task.layer);
  const auto index = static_cast<size_t>(task.index);
  const layout::Piece& piece = needs_.slices.stages[stage].pieces[index];
  const std::byte* from = memory_.host(needs_.host.staging) + task.source;
  if (piece.home == Tier::kHost) {
    const layout::MatrixCut& cut = needs_.slices.cuts[static_cast<size_t>(piece.weight)];
    const int64_t row_bytes = model_.weights[static_cast<size_t>(piece.weight)].row_bytes();
    from = resident(piece.weight, Tier::kHost) + (piece.first_row - cut.begin[1]) * row_bytes;
  }
  offload::PacedCopier& copier = copiers_[0];
  copier.begin();
  copier.copy(memory_.device(needs_.device.weight_ring) + task.target, from, piece.bytes);
  copier.finish();
  piece_at_[static_cast<size_t>(task.sweep % 2)][stage][index] = task.target;
}

int32_t Performer::token_at(const planner::SweepRow& row, int64_t offset) const {
  const Sequence& sequence = sequences_[static_cast<size_t>(row.row_slot)];
  return sequence.tokens[static_cast<size_t>(row.position + offset)];
}

void Performer::start_gather_read(const Task& task) {
  const layout::Weight& embedding = *layer_weight(-1, Role::kEmbedding);
  const layout::MatrixCut& cut = needs_.slices.cuts[static_cast<size_t>(index_of(&embedding))];
  const int64_t slot = plan_.single_tier ? needs_.gather_device_slot : needs_.gather_host_slot;
  std::byte* base =
      plan_.single_tier ? memory_.device(needs_.device.gather) : memory_.host(needs_.host.gather);
  base += task.index * planner::kGatherRows * slot;
  read_requests_.clear();
  gathered_tokens(task, [&](int64_t i, int32_t token) {
    if (token < cut.begin[2]) return;
    const int64_t from = embedding.extent.offset + token * embedding.row_bytes();
    const int64_t begin = round_down(from, kPageBytes);
    read_requests_.push_back({embedding.extent.file, begin,
                              round_up(from + embedding.row_bytes(), kPageBytes) - begin,
                              base + i * slot});
  });
  read_lane_->submit(read_requests_, false, static_cast<uint64_t>(task.id));
}

void Performer::gather_copy(const Task& task) {
  const layout::Weight& embedding = *layer_weight(-1, Role::kEmbedding);
  const int64_t index = index_of(&embedding);
  const layout::MatrixCut& cut = needs_.slices.cuts[static_cast<size_t>(index)];
  const int64_t row_bytes = embedding.row_bytes();
  std::byte* to = memory_.device(needs_.device.gather) +
                  task.index * planner::kGatherRows * needs_.gather_device_slot;
  const std::byte* staged = memory_.host(needs_.host.gather) +
                            task.index * planner::kGatherRows * needs_.gather_host_slot;
  offload::PacedCopier& copier = copiers_[0];
  copier.begin();
  gathered_tokens(task, [&](int64_t i, int32_t token) {
    if (token < cut.begin[1]) return;
    const std::byte* from = nullptr;
    if (token < cut.begin[2]) {
      from = resident(index, Tier::kHost) + (token - cut.begin[1]) * row_bytes;
    } else {
      const int64_t offset = embedding.extent.offset + token * row_bytes;
      from = staged + i * needs_.gather_host_slot + offset % kPageBytes;
    }
    copier.copy(to + i * needs_.gather_device_slot, from, row_bytes);
  });
  copier.finish();
}

// The rows of a batch that live on the host, to or from a working copy on the device.
void Performer::copy_hidden(const Task& task, bool to_device) {
  const int64_t row_floats = model_.spec.hidden;
  float* home =
      memory_.host_floats(needs_.host.hidden) + task.batch * needs_.host_rows * row_floats;
  float* work =
      memory_.device_floats(needs_.device.hidden_work) + task.work * needs_.host_rows * row_floats;
  const int64_t bytes = (batch_of(task).tokens - needs_.device_rows) * row_floats * kFloat;
  offload::PacedCopier& copier = copiers_[to_device ? 0 : 1];
  copier.begin();
  copier.copy(to_device ? work : home, to_device ? home : work, bytes);
  copier.finish();
}

}  // namespace transload::engine
