// What `generate` and `score` share: options, the plan, the run and its summary.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/executor/engine.h"
#include "engine/job/job.h"
#include "engine/job/progress.h"
#include "engine/run/model_identity.h"
#include "engine/tokenizer/tokenizer.h"
#include "planner/placement.h"

namespace transload::engine {

struct RunOptions {
  std::string model;
  std::string input;
  std::string output;
  planner::Wishes wishes;
  TierOptions tiers;
  kernels::Compute compute = kernels::Compute::kFloat32;
  std::string instructions;           // TRANSLOAD_CPU: forces an instruction set; tests
  std::optional<planner::Plan> plan;  // to run instead of choosing one
  std::string trace_file;
  std::string activations_file;
  bool dry_run = false;
  bool json = false;
};

// A plan as --dry-run --json prints it, or as it is inside that. Errors: kIo, kBadInput.
planner::Plan read_plan(const std::string& path);

// An opened model: checkpoint headers, shape and tokenizer.
struct LoadedModel {
  layout::Model model;
  std::unique_ptr<Tokenizer> tokenizer;  // null: token ids only
  ChatTemplate chat;
  std::vector<int32_t> end_tokens;
  ModelIdentity identity;
};
LoadedModel load(const std::string& path);

// That of the backend a run gets, see performer.h.
std::string arithmetic(const LoadedModel& loaded, const RunOptions& options);

// Width of the KV cache's numbers: of --plan's plan, or as wished for. It changes the answers.
int64_t kv_bits(const RunOptions& options);

// The plan of a run: read from --plan, or chosen. What was given twice differently is an error.
planner::Placement choose_plan(const LoadedModel& loaded, const RunOptions& options,
                               const planner::Workload& workload, const JobMemory& job);

// Exit status of a process that SIGINT or SIGTERM ended.
inline constexpr int kInterruptedStatus = 75;

// Takes SIGINT and SIGTERM while it lives. The process ends at once with kInterruptedStatus, for
// nothing is lost; after hold() the run ends after the sweep in progress, and a second signal ends
// the process at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  void hold();
  bool stopped() const;
};

// Progress of a run: loading, prefill, decode.
class RunProgress {
 public:
  RunProgress(Progress& progress, int64_t requests, int64_t resident_bytes)
      : progress_(progress), requests_(requests), resident_bytes_(resident_bytes) {}
  void tick(int64_t sweep, int64_t decode_rows);
  void finished_request() { ++done_; }
  void new_tokens(int64_t count) { tokens_ += count; }
  void end();

 private:
  void phase(const char* name, const char* unit, int64_t total);

  Progress& progress_;
  int64_t requests_;
  int64_t resident_bytes_;
  int64_t done_ = 0;
  int64_t tokens_ = 0;
  std::string phase_;
};

// Runs a feed by a plan and prints predicted against measured.
struct RunResult {
  RunStats stats;
  std::string disk_engine;
  std::string compute;
  int64_t pinned_bytes = 0;
  int64_t host_bytes = 0;
};
RunResult run_plan(const LoadedModel& loaded, const planner::Placement& placement,
                   const RunOptions& options, Feed& feed);

// Lines of the summary that both commands print; tokens counts what tokens/s is of.
std::string summary_text(const planner::Placement& placement, const RunResult& result,
                         int64_t tokens);
nlohmann::json summary_json(const planner::Placement& placement, const RunResult& result,
                            int64_t tokens);

}  // namespace transload::engine
