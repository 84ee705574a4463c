// The schedule: from the state of the batches to the tasks of the next sweep.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/kv_table.h"
#include "planner/clock.h"
#include "planner/footprint.h"
#include "planner/plan.h"
#include "planner/task.h"

namespace transload::planner {

struct WaitingPrompt {
  int64_t prompt_tokens = 0;
  int64_t max_new_tokens = 0;  // 0 when scoring
  int64_t head_rows = 1;       // the last rows of the prompt that the head computes
};

// What the schedule must know before a sweep: only lengths.
struct BatchState {
  std::vector<bool> active;            // by row slot: its sequence goes on
  std::vector<WaitingPrompt> waiting;  // the next prompts, in order; row_slots() are enough
  bool more_waiting = false;           // prompts beyond `waiting` exist
};

// One sequence's rows in a batch's visit: a decode row, or a whole prompt.
struct SweepRow {
  int64_t row_slot = 0;
  int64_t batch_row = 0;  // of its first token among the batch's rows
  int64_t position = 0;   // of its first token in the sequence
  int64_t tokens = 1;
  int64_t head_rows = 1;
  bool prompt = false;
};

// Decode rows whose KV blocks move together, or a run of KV blocks of one prompt.
struct Group {
  int64_t first_row = 0;  // in BatchSweep::rows
  int64_t end_row = 0;
  int64_t first_block = 0;  // prompts
  int64_t end_block = 0;
  int64_t device_offset = 0;  // in the KV rings, in blocks
  int64_t host_offset = 0;
  int64_t first_place = 0;  // in Sweep::places: homes of its blocks, row by row
};

struct BatchSweep {
  std::vector<SweepRow> rows;  // decode rows first
  int64_t decode_rows = 0;
  int64_t tokens = 0;
  int64_t head_rows = 0;
  int64_t first_head_row = 0;  // in the head's input
};

struct Admission {
  int64_t row_slot = 0;
  int64_t waiting = 0;  // index into BatchState::waiting
};

struct Sweep {
  int64_t number = 0;
  std::vector<Admission> admissions;
  std::vector<BatchSweep> batches;
  std::vector<Group> groups;
  std::vector<layout::KvPlace> places;
  int64_t head_rows = 0;
  int64_t tokens = 0;
};

class TaskSink {
 public:
  virtual ~TaskSink() = default;
  // Tasks come in an order in which each needs only earlier ones. `uses` lives for the call.
  virtual void emit(const Task& task, std::span<const Use> uses) = 0;
};

// Deterministic: the same states give the same tasks. A sweep's tasks depend on the sample task of
// the sweep before (its tokens); weight loads depend on buffers alone and run ahead across sweeps.
// Allocates nothing after construction. Threads: one.
class Schedule {
 public:
  // The three outlive the schedule. `needs` is footprint(model, plan), checked by check_fits.
  Schedule(const layout::Model& model, const Plan& plan, const Footprint& needs);

  // The loads of the resident weights, and the first streamed ones.
  void start(TaskSink& sink);

  // Admits waiting prompts and emits the tasks of the next sweep. The result lives until the call
  // after next. Requires: something is active or waiting.
  const Sweep& next(const BatchState& state, TaskSink& sink);

  const layout::KvTable& kv() const { return kv_; }
  int64_t tokens(int64_t row_slot) const { return tokens_[static_cast<size_t>(row_slot)]; }

 private:
  struct Visit {  // of a batch to a layer
    int32_t layer = 0;
    int32_t batch = 0;
    size_t buffer = 0;       // visit buffer
    size_t work = 0;         // working rows of host-homed activations
    Dependencies attention;  // what the output projection needs
  };
  struct GroupSize {
    std::array<int64_t, layout::kTiers> blocks{};  // KV blocks by home
    int64_t slots = 0;                             // filled, the new token's included

    int64_t at(layout::Tier tier) const { return blocks[static_cast<size_t>(tier)]; }
  };
  struct Tails {
    std::array<int64_t, layout::kTiers> blocks{};  // by home
    std::array<int64_t, layout::kTiers> fresh{};   // of these: nothing in them yet

    int64_t at(layout::Tier tier) const { return blocks[static_cast<size_t>(tier)]; }
    int64_t fresh_at(layout::Tier tier) const { return fresh[static_cast<size_t>(tier)]; }
  };
  struct TailStore {
    Tails tail;
    int32_t group = 0;
    Ring::Span* ring = nullptr;  // where tail blocks of the disk are
    Dependencies loaded;         // what still reads the blocks
  };

  // schedule.cc: states and rows
  void reserve();
  void admit(const BatchState& state);
  void list_rows(const BatchState& state);
  void add_row(BatchSweep& batch, const SweepRow& row);
  void sweep_layers();
  bool pipelined() const { return plan_.visit_buffers > 1; }

  // schedule_weights.cc: the weight stream
  void load_residents();
  bool is_streaming() const;
  void settle_stream();
  bool emit_piece();
  Task stream_task(TaskKind kind, Lane lane);
  void copy_piece(const layout::Piece& piece, Ring::Span& target, Ring::Span* staged);
  void pump_weights();
  void ensure_stage(int64_t stage);
  void close_piece(int64_t& span);
  void close_stage(int64_t stage);
  void read_piece(Task& task, int64_t span);
  void read_weights(Task& task, int64_t rows, bool attention_in);
  void logits(int32_t piece, int64_t rows);
  void head();

  // schedule_visit.cc: a batch at a layer
  void embed(int32_t batch);
  void embed_rows(Visit& visit, int64_t first_row, int64_t rows);
  void load_hidden(Visit& visit);
  void store_hidden(Visit& visit);
  void front(Visit& visit);
  void prompts(Visit& visit);
  void back(Visit& visit);
  void finish_rows(int32_t batch);
  Task visit_task(TaskKind kind, Lane lane, const Visit& visit);
  void use_hidden(Task& task, Visit& visit, bool writes);

  // schedule_kv.cc: KV blocks
  GroupSize row_size(const Visit& visit, int64_t row_slot, int64_t first_block,
                     int64_t end_block) const;
  void decode_groups(Visit& visit);
  int32_t add_group(const Visit& visit, const Group& group);
  void decode_group(Visit& visit, const Group& group, const GroupSize& size);
  void read_group(Visit& visit, int32_t index, int64_t blocks, Ring::Span& ring);
  void attend_on_device(Visit& visit, const GroupSize& size, int32_t index);
  void attend_on_host(Visit& visit, const GroupSize& size, int32_t index);
  void store_prompt(Visit& visit, const SweepRow& row, int64_t row_index);
  void store_prompt_group(Visit& visit, const Group& group, const GroupSize& size);
  int64_t kv_bytes(int64_t slots) const;
  Tails tails(const Visit& visit, const Group& group);
  Dependencies store_tail(Visit& visit, const TailStore& what);
  Task group_task(TaskKind kind, Lane lane, const Visit& visit, int32_t index);
  void use_home(Task& task, const Visit& visit, const Group& group, layout::Tier tier, bool writes);
  void use_query(const Visit& visit, const Group& group, bool writes);
  void use_visit(const Visit& visit, bool kv, bool writes, int64_t first, int64_t end);
  void use_query_rows(const Visit& visit, const Group& group, bool writes);
  void use_new(const Visit& visit, const Group& group, bool writes);
  void use_ring(Task& task, Buffer buffer, Ring::Span& span, bool writes);
  int64_t ring_blocks(layout::Tier tier) const;

  Task task(TaskKind kind, Lane lane);
  void emit(Task& task);
  void use(Buffer buffer, bool writes, int64_t begin, int64_t end) {
    uses_.push_back({buffer, writes, begin, end});
  }
  Sweep& sweep() { return sweeps_[static_cast<size_t>(sweep_ % 2)]; }
  BatchSweep& batch(int32_t index) { return sweep().batches[static_cast<size_t>(index)]; }
  Dependencies& kv_written(const Visit& visit) {
    return kv_written_[static_cast<size_t>(visit.layer * plan_.num_batches + visit.batch)];
  }

  const layout::Model& model_;
  const Plan& plan_;
  const Footprint& needs_;
  layout::KvTable kv_;
  std::vector<int64_t> tokens_;         // in the KV cache, by row slot; 0: free
  std::vector<WaitingPrompt> entered_;  // by row slot, of the prompt admitted for this sweep

  Sweep sweeps_[2];
  int64_t sweep_ = 0;
  bool last_sweep_ = false;  // nothing can follow: no weights are loaded ahead
  TaskSink* sink_ = nullptr;
  std::array<TaskId, kLanes> emitted_{};
  std::vector<Use> uses_;
  Dependencies sampled_;  // the tokens of the sweep before

  Ring weight_ring_;
  Ring staging_;
  std::vector<std::vector<int64_t>> piece_spans_;  // by stage and piece; -1: not loaded
  int64_t stream_sweep_ = 1;                       // the piece that is loaded next
  int64_t stream_stage_ = 0;
  size_t stream_piece_ = 0;
  std::vector<std::vector<const layout::Weight*>> layer_weights_;  // by layer

  BufferClock resident_device_;
  BufferClock resident_host_;
  std::array<BufferClock, 2> gather_device_;
  std::array<BufferClock, 2> gather_host_;
  std::array<BufferClock, 2> hidden_work_;
  std::vector<BufferClock> hidden_host_;  // by batch
  std::vector<BufferClock> visit_clock_;  // by visit buffer
  std::vector<Dependencies> query_free_;  // host query buffers, by visit buffer: free after
  std::vector<Dependencies> query_used_;  // and used until
  std::vector<Dependencies> kv_written_;  // by layer and batch, in earlier visits
  Dependencies kv_new_;                   // what this visit writes
  Ring kv_ring_device_;
  Ring kv_ring_host_;
  size_t gathers_ = 0;
  size_t visits_ = 0;
};

}  // namespace transload::planner
