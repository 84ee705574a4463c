#include "engine/executor/engine.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace transload::engine {
namespace {

constexpr double kTickSeconds = 0.5;

planner::Footprint checked_footprint(const layout::Model& model, const planner::Plan& plan) {
  planner::Footprint needs = planner::footprint(model, plan);
  planner::check_fits(model, plan, needs);
  return needs;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Engine::Engine(const layout::Model& model, const planner::Plan& plan, const EngineOptions& options)
    : plan_(plan),
      options_(options),
      needs_(checked_footprint(model, plan)),
      schedule_(model, plan, needs_),
      performer_(model, plan, needs_, options.performer) {
  executor_ = options.make_executor ? options.make_executor(performer_)
                                    : std::make_unique<Lanes>(performer_, options.observer);
  sink_ = std::make_unique<Sink>(*executor_);
  const auto slots = static_cast<size_t>(plan.row_slots());
  state_.active.resize(slots);
  state_.waiting.reserve(slots);
  waiting_.reserve(slots + 1);
}

Engine::~Engine() = default;

// Keeps as many sequences ready as there are row slots, and one more: it says whether a sweep is
// the last, so that no weights are loaded ahead of one that never comes.
void Engine::fill_waiting(Feed& feed) {
  const size_t slots = state_.active.size();
  while (!feed_ended_ && waiting_.size() <= slots) {
    std::optional<Sequence> sequence = feed.next();
    if (!sequence) {
      feed_ended_ = true;
    } else {
      waiting_.push_back(std::move(*sequence));
    }
  }
  state_.waiting.clear();
  for (size_t i = 0; i < std::min(slots, waiting_.size()); ++i)
    state_.waiting.push_back(
        {waiting_[i].prompt_tokens, waiting_[i].max_new_tokens, waiting_[i].head_rows});
  state_.more_waiting = waiting_.size() > slots;
}

void Engine::wait_for(const planner::Dependencies& needs, Feed& feed, const planner::Sweep& sweep) {
  int64_t decode_rows = 0;
  for (const planner::BatchSweep& batch : sweep.batches) decode_rows += batch.decode_rows;
  while (!executor_->wait(needs, kTickSeconds))
    feed.tick(sweep.number, sweep.tokens - decode_rows, decode_rows);
  feed.tick(sweep.number, sweep.tokens - decode_rows, decode_rows);
}

void Engine::advance(Feed& feed, const planner::Sweep& sweep) {
  for (const planner::BatchSweep& batch : sweep.batches)
    for (const planner::SweepRow& row : batch.rows) {
      const auto slot = static_cast<size_t>(row.row_slot);
      Sequence& sequence = performer_.sequences()[slot];
      if (row.prompt) stats_.prompt_tokens += row.tokens;
      ++stats_.row_steps;
      if (plan_.keeps_kv() && sequence.error.empty()) {
        sequence.tokens.push_back(sequence.sampled.token);
        ++stats_.new_tokens;
      }
      state_.active[slot] = feed.advance(sequence) && plan_.keeps_kv();
    }
}

// What was read of a file that was changed meanwhile is in doubt, and is not written.
void Engine::check_model_files() const {
  const bool streams = needs_.slices.bytes[static_cast<size_t>(layout::Tier::kDisk)] > 0;
  if (!streams && stats_.sweeps > 1) return;
  for (const offload::File& file : performer_.memory().model_files()) file.check_unchanged();
}

void Engine::time_sweep(const planner::Sweep& sweep) {
  const double took = seconds_since(sampled_);
  sampled_ = std::chrono::steady_clock::now();
  if (stats_.sweeps == 1) stats_.first_sweep_seconds = took;
  if (stats_.sweeps == 1 || !sweep.admissions.empty()) return;
  ++stats_.decode_sweeps;
  stats_.decode_seconds += took;
}

// Runs one sweep; false when there is nothing to do.
bool Engine::sweep(Feed& feed) {
  fill_waiting(feed);
  const bool any_active =
      std::any_of(state_.active.begin(), state_.active.end(), [](bool active) { return active; });
  if (!any_active && waiting_.empty()) return false;
  if (options_.record_states != nullptr) options_.record_states->push_back(state_);
  // The schedule's record of the sweep before last is overwritten: its last stores must be done.
  planner::Dependencies& emitted = emitted_[static_cast<size_t>(stats_.sweeps % 2)];
  while (!executor_->wait(emitted, kTickSeconds)) feed.tick(stats_.sweeps, 0, 0);
  const planner::Sweep& now = schedule_.next(state_, *sink_);
  emitted = sink_->last;
  performer_.set_sweep(now);
  int64_t moved = 0;
  for (const planner::Admission& admission : now.admissions) {
    performer_.sequences()[static_cast<size_t>(admission.row_slot)] =
        std::move(waiting_[static_cast<size_t>(admission.waiting)]);
    ++moved;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + moved);
  executor_->flush();
  ++stats_.sweeps;
  planner::Dependencies sampled;
  sampled.add(planner::Lane::kDeviceCompute,
              sink_->last.last[static_cast<size_t>(planner::Lane::kDeviceCompute)]);
  wait_for(sampled, feed, now);
  time_sweep(now);
  check_model_files();
  advance(feed, now);
  return true;
}

RunStats Engine::run(Feed& feed) {
  const auto start = std::chrono::steady_clock::now();
  sampled_ = start;
  schedule_.start(*sink_);
  executor_->flush();
  planner::Dependencies loaded = sink_->last;
  while (!executor_->wait(loaded, kTickSeconds)) feed.tick(0, 0, 0);
  stats_.load_seconds = seconds_since(start);
  while (!feed.stop_requested() && sweep(feed)) {
  }
  stats_.seconds = seconds_since(start);
  stats_.lanes = executor_->times();
  return stats_;
}

}  // namespace transload::engine
