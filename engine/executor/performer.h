// What each task of the schedule does to memory: the decoder, cut along the tasks.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/executor/activation_log.h"
#include "engine/executor/lanes.h"
#include "engine/executor/sequence.h"
#include "engine/executor/tier_memory.h"
#include "kernels/backend.h"
#include "kvcache/blocks.h"
#include "offload/copy.h"
#include "offload/faults.h"
#include "planner/schedule.h"

namespace transload::engine {

struct PerformerOptions {
  TierOptions tiers;
  std::string instructions;  // of the CPU backend; "": best at hand
  kernels::Compute compute = kernels::Compute::kFloat32;
  offload::DiskOptions::Engine disk_engine = offload::DiskOptions::Engine::kProbe;
  offload::DiskFaults* faults = nullptr;  // tests
  ActivationLog* activations = nullptr;   // --dump-activations
};

// "cpu, fast, avx512 (Q4_1 in 8-bit codes)": decides the bits of an answer beside model, job and
// settings.
std::string arithmetic(const kernels::Backend& backend, const layout::Model& model);

// Holds the tiers' memory and the backends and performs tasks in it. A lane's calls come from one
// thread; different lanes at the same time touch different bytes, which the tasks' dependencies see
// to. Sequences are written by the driver between sweeps only.
class Performer : public TaskRunner {
 public:
  Performer(const layout::Model& model, const planner::Plan& plan, const planner::Footprint& needs,
            const PerformerOptions& options);
  ~Performer() override;

  void prepare(planner::Lane lane) override;
  void perform(const planner::Task& task) override;
  void start(const planner::Task& task) override;
  void finish(const planner::Task& task) override;

  // The sweep whose tasks come next; it stays until the call after next. `sequences` by row slot.
  void set_sweep(const planner::Sweep& sweep) {
    sweeps_[static_cast<size_t>(sweep.number % 2)] = &sweep;
  }
  std::vector<Sequence>& sequences() { return sequences_; }

  // The bytes of a use (for tests that poison what is released); empty for buffers without memory.
  std::span<std::byte> bytes_of(planner::Buffer buffer, int64_t begin, int64_t end);
  std::string disk_description() const { return read_lane_->description(); }
  std::string compute_description() const;
  const TierMemory& memory() const { return memory_; }
  int64_t spill_bytes_written() const { return spill_bytes_written_; }

 private:
  using Task = planner::Task;
  static constexpr layout::Role kNoBias = layout::Role::kEmbedding;  // no vector: none is added
  struct Rows {  // consecutive rows of a batch whose hidden rows are contiguous
    int64_t first = 0;
    int64_t count = 0;
    float* hidden = nullptr;
  };
  struct NormRows {
    const float* x = nullptr;
    int64_t rows = 0;
    float* y = nullptr;
  };

  // performer.cc
  void register_lanes();
  void reserve_scratch();
  void load_vectors();
  const planner::Sweep& sweep_of(const Task& task) const {
    return *sweeps_[static_cast<size_t>(task.sweep % 2)];
  }
  const planner::BatchSweep& batch_of(const Task& task) const {
    return sweep_of(task).batches[static_cast<size_t>(task.batch)];
  }
  const layout::Weight* layer_weight(int64_t layer, layout::Role role) const;
  const float* vector(int64_t layer, layout::Role role) const;
  int64_t index_of(const layout::Weight* weight) const { return weight - model_.weights.data(); }
  const std::byte* resident(int64_t weight_index, layout::Tier tier) const;

  // transfers.cc: weights, embedding rows, activations
  void start_read_resident(const Task& task);
  void copy_resident(const Task& task);
  void start_read_piece(const Task& task);
  void copy_piece(const Task& task);
  void start_gather_read(const Task& task);
  void gather_copy(const Task& task);
  void copy_hidden(const Task& task, bool to_device);
  template <class Work>
  void gathered_tokens(const Task& task, Work work) const;

  // kv_transfers.cc
  template <class Work>
  void group_blocks(const Task& task, Work work) const;
  static bool is_fresh(const planner::SweepRow& row, int64_t block);
  void start_read_kv(const Task& task);
  void finish_read_kv(const Task& task);
  void start_write_kv(const Task& task);
  void load_kv(const Task& task);
  void copy_query(const Task& task, bool to_device);
  kernels::KvShape kv_shape() const;
  kernels::KvSlotWrite slot_write(int64_t visit_buffer, int64_t row, std::byte* block,
                                  int64_t slot) const;
  void store_kv(const Task& task);
  void attend(const Task& task, bool on_host);
  void attend_prompts(const Task& task);
  void pack_prompt(const Task& task);
  void pack_blocks(const Task& task, layout::Tier tier);
  float attention_scale() const;

  // compute.cc
  void embed(const Task& task);
  void add_positions(const Task& task);
  void list_positions(const Task& task, const Rows& rows);
  void attention_in(const Task& task);
  void project_qkv(const Task& task, const Rows& rows, const float* x);
  void rotate(const Task& task, const Rows& rows);
  void attention_out(const Task& task);
  void mlp(int64_t layer, const float* x, int64_t rows, float* out);
  void log_activations(const Task& task);
  Rows next_rows(const Task& task, int64_t first, int64_t end) const;
  int32_t token_at(const planner::SweepRow& row, int64_t offset) const;
  std::span<const kernels::WeightSlice> slices(int64_t sweep, int64_t layer, layout::Role role);
  void multiply(int64_t layer, layout::Role matrix, layout::Role bias,
                const kernels::MatmulArgs& args);
  void normalise(int64_t layer, layout::Role weight, layout::Role bias, const NormRows& rows);
  float* visit_q(int64_t buffer, int64_t row) const;
  float* visit_kv(int64_t buffer, int64_t row) const;
  float* chunk(int part) const;

  // head.cc
  void final_rows(const Task& task);
  void logits(const Task& task);
  void score_logits(const Task& task, const kernels::WeightSlice& slice);
  void start_scores(const Task& task);
  void finish_scores(const Task& task);
  std::string kv_hint() const;
  void sample_rows(const Task& task);
  void sample_row(const planner::Sweep& sweep, int64_t head_row);

  const layout::Model& model_;
  const planner::Plan& plan_;
  const planner::Footprint& needs_;
  ActivationLog* activations_;
  TierMemory memory_;
  kvcache::BlockMemory kv_blocks_;
  std::unique_ptr<kernels::Backend> device_;
  std::unique_ptr<kernels::Backend> host_;
  std::unique_ptr<offload::RateLimiter> disk_limiter_;
  std::array<std::unique_ptr<offload::RateLimiter>, 2> link_limiters_;  // one a direction
  std::unique_ptr<offload::DiskLane> read_lane_;
  std::unique_ptr<offload::DiskLane> write_lane_;
  int32_t spill_read_file_ = -1;
  int32_t spill_write_file_ = -1;
  std::array<offload::PacedCopier, 2> copiers_;  // to the device, to the host
  int64_t spill_bytes_written_ = 0;

  std::array<const planner::Sweep*, 2> sweeps_{};
  std::vector<Sequence> sequences_;
  std::vector<std::array<const layout::Weight*, layout::kRoles>> by_role_;  // layers, then global
  std::vector<std::array<int64_t, 2>> resident_at_;  // by weight: offset on device, host; -1: none
  // Offset of each piece in the weight ring, by sweep parity, stage and piece.
  std::array<std::vector<std::vector<int64_t>>, 2> piece_at_;
  int64_t sweep_number_ = 0;  // of the compute lane's task

  // Scratch, sized once; a lane each.
  std::vector<offload::DiskRequest> read_requests_;
  std::vector<offload::DiskRequest> write_requests_;
  std::vector<kernels::WeightSlice> slices_;
  std::vector<const std::byte*> row_pointers_;
  std::vector<int32_t> positions_;
  struct AttendScratch {
    std::vector<kernels::AttendRow> rows;
    std::vector<const std::byte*> blocks;
    std::vector<kernels::KvSlotWrite> writes;
  };
  std::array<AttendScratch, 2> attend_;  // device, host
  std::vector<kernels::LogitStats> stats_;
  std::vector<SamplingScratch> sampling_;
};

// work(i, token) for the i-th of the batch's rows that the task names.
template <class Work>
void Performer::gathered_tokens(const Task& task, Work work) const {
  const int64_t first = task.source;
  const int64_t end = first + task.target;
  for (const planner::SweepRow& row : batch_of(task).rows) {
    const int64_t last = std::min(end, row.batch_row + row.tokens);
    for (int64_t i = std::max(first, row.batch_row); i < last; ++i)
      work(i - first, token_at(row, i - row.batch_row));
  }
}

}  // namespace transload::engine
