// Runs a plan: states in, tasks out to the lanes, tokens back to the feed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/executor/performer.h"
#include "planner/schedule.h"

namespace transload::engine {

// Where sequences come from and go to. Called by the engine's driver thread only.
class Feed {
 public:
  virtual ~Feed() = default;
  // The next request, or nothing once there is none.
  virtual std::optional<Sequence> next() = 0;
  // After a sweep, for each sequence in it: `sampled` (already appended to tokens) or `scored` is
  // new, or `error` is set. Says whether the sequence goes on.
  virtual bool advance(Sequence& sequence) = 0;
  // The run ends after the sweep in progress.
  virtual bool stop_requested() = 0;
  // At least once a second while a sweep runs.
  virtual void tick(int64_t sweep, int64_t prompt_tokens, int64_t decode_rows) = 0;
};

struct EngineOptions {
  PerformerOptions performer;
  TaskObserver observer;
  // The states that the schedule was fed with, in order; null: not kept.
  std::vector<planner::BatchState>* record_states = nullptr;
  // Tests: an executor of their own; empty: Lanes.
  std::function<std::unique_ptr<Executor>(Performer&)> make_executor;
};

struct RunStats {
  int64_t sweeps = 0;
  int64_t prompt_tokens = 0;
  int64_t new_tokens = 0;
  int64_t row_steps = 0;    // rows computed for a next token, over all sweeps
  double seconds = 0;       // from the first task to the last token
  double load_seconds = 0;  // of the resident weights
  // From the start to the last token of the first sweep, as the prediction's first_sweep_s.
  double first_sweep_seconds = 0;
  // Sweeps without a prompt, after the first, and what they took from last token to last token.
  int64_t decode_sweeps = 0;
  double decode_seconds = 0;
  LaneTimes lanes;
};

class Engine {
 public:
  // Takes all memory. Model and plan outlive the engine. Errors: those of check_fits, TierMemory
  // and the backends.
  Engine(const layout::Model& model, const planner::Plan& plan, const EngineOptions& options);
  Engine(const layout::Model& model, planner::Plan&& plan, const EngineOptions& options) = delete;
  ~Engine();

  // Computes everything that the feed gives. Call once.
  RunStats run(Feed& feed);

  const planner::Footprint& footprint() const { return needs_; }
  const Performer& performer() const { return performer_; }

 private:
  class Sink : public planner::TaskSink {
   public:
    explicit Sink(Executor& executor) : executor_(executor) {}
    void emit(const planner::Task& task, std::span<const planner::Use> uses) override {
      last.add(task.lane, task.id);
      executor_.take(task, uses);
    }
    planner::Dependencies last;  // emitted so far

   private:
    Executor& executor_;
  };

  void fill_waiting(Feed& feed);
  bool sweep(Feed& feed);
  void wait_for(const planner::Dependencies& needs, Feed& feed, const planner::Sweep& sweep);
  void advance(Feed& feed, const planner::Sweep& sweep);
  void check_model_files() const;
  void time_sweep(const planner::Sweep& sweep);

  const planner::Plan& plan_;
  EngineOptions options_;
  planner::Footprint needs_;
  planner::Schedule schedule_;
  Performer performer_;
  std::unique_ptr<Executor> executor_;  // after the performer: its threads end first
  std::unique_ptr<Sink> sink_;
  planner::BatchState state_;
  std::vector<Sequence> waiting_;
  bool feed_ended_ = false;
  std::array<planner::Dependencies, 2> emitted_;   // up to the end of a sweep's emission
  std::chrono::steady_clock::time_point sampled_;  // the last sweep's last token; first, the start
  RunStats stats_;
};

}  // namespace transload::engine
