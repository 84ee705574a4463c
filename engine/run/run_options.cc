#include "engine/run/run_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

#include "base/error.h"
#include "base/units.h"
#include "engine/checkpoint/input_file.h"
#include "engine/checkpoint/nesting.h"
#include "engine/run/machine_probe.h"
#include "offload/region.h"
#include "planner/report.h"
#include "planner/trace.h"

namespace transload::engine {
namespace {

std::atomic<int> g_signals{0};  // a signal handler can reach nothing else
std::atomic<bool> g_hold{false};

void on_signal(int signal) {
  if (!g_hold) _exit(kInterruptedStatus);
  if (g_signals.fetch_add(1) > 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

void refuse_wishes_beside_plan(const planner::Wishes& wishes) {
  const bool any = wishes.weights || wishes.kv || wishes.activations || wishes.batch_size ||
                   wishes.num_batches || wishes.prefill_tokens || wishes.attention ||
                   wishes.budget_bytes[0] || wishes.budget_bytes[1] || wishes.budget_bytes[2];
  if (any)
    throw Error(Kind::kUsage,
                "--plan: the plan fixes placement, budgets and batch; leave those flags out");
}

planner::Placement place_or_read(const LoadedModel& loaded, const RunOptions& options,
                                 const planner::Workload& workload) {
  const planner::Machine machine =
      probe_machine(loaded.model, {.threads = options.wishes.threads,
                                   .max_cols = 0,
                                   .instructions = options.instructions,
                                   .compute = options.compute});
  if (!options.plan)
    return planner::place({loaded.model, workload, options.wishes,
                           probe_free(options.tiers.disk_directory), machine});
  refuse_wishes_beside_plan(options.wishes);
  planner::Placement placement;
  placement.plan = *options.plan;
  if (options.tiers.pinned_bytes >= 0 && placement.plan.single_tier)
    throw Error(Kind::kUsage, "--pinned-memory: the plan has no host tier; leave the flag out");
  placement.plan.threads = options.wishes.threads;
  if (placement.plan.work != workload.work)
    throw Error(Kind::kUsage, "--plan: made for the other command (generate or score)");
  if (workload.max_prompt_tokens > placement.plan.prefill_tokens ||
      workload.max_total_tokens > placement.plan.max_tokens)
    throw Error(
        Kind::kUsage,
        fmt::format("--plan: made for prompts of up to {} and sequences of up to {} tokens; "
                    "this job has {} and {}",
                    placement.plan.prefill_tokens, placement.plan.max_tokens,
                    workload.max_prompt_tokens, workload.max_total_tokens));
  placement.needs = planner::footprint(loaded.model, placement.plan);
  planner::check_fits(loaded.model, placement.plan, placement.needs);
  const int64_t few = std::min<int64_t>(workload.requests, 2 * placement.plan.row_slots());
  placement.prediction = planner::simulate(
      loaded.model, placement.plan, placement.needs, planner::limited(machine, placement.plan),
      planner::typical_requests(workload, few),
      {.max_sweeps = 64, .decode_sweeps = 4, .requests = workload.requests});
  return placement;
}

double decode_sweep_seconds(const RunStats& stats) {
  return stats.decode_seconds / static_cast<double>(std::max<int64_t>(stats.decode_sweeps, 1));
}

}  // namespace

planner::Plan read_plan(const std::string& path) {
  nlohmann::json json = parse_model_json(read_text(path, 64 * kMiB), "--plan: " + path);
  if (json.is_discarded()) throw Error(Kind::kBadInput, "--plan: " + path + " is not JSON");
  if (json.is_object() && json.contains("plan")) json = json.at("plan");  // as --dry-run --json
  return planner::plan_from_json(json);
}

LoadedModel load(const std::string& path) {
  LoadedModel loaded;
  const Checkpoint checkpoint = open_checkpoint(path);
  loaded.model = load_model(checkpoint);
  loaded.tokenizer = load_tokenizer(checkpoint);
  loaded.chat = find_chat_template(checkpoint);
  loaded.end_tokens = end_tokens(checkpoint);
  loaded.identity = identify(checkpoint, loaded.model, loaded.chat, loaded.end_tokens);
  return loaded;
}

int64_t kv_bits(const RunOptions& options) {
  return options.plan ? options.plan->kv_bits : options.wishes.kv_bits;
}

std::string arithmetic(const LoadedModel& loaded, const RunOptions& options) {
  const auto backend = kernels::make_cpu_backend(
      {.max_cols = 1, .instructions = options.instructions, .compute = options.compute});
  return arithmetic(*backend, loaded.model);
}

planner::Placement choose_plan(const LoadedModel& loaded, const RunOptions& options,
                               const planner::Workload& workload, const JobMemory& job) {
  planner::Placement placement = place_or_read(loaded, options, workload);
  placement.needs.process_bytes += job_bytes(job, placement.plan.row_slots());
  const int64_t host = placement.needs.bytes[1];
  const int64_t most = options.tiers.pinned_bytes;
  if (host > 0)
    placement.needs.pinned_bytes = offload::lockable_bytes(most < 0 ? host : std::min(most, host));
  return placement;
}

StopSignals::StopSignals() {
  g_signals = 0;
  g_hold = false;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}
StopSignals::~StopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}
void StopSignals::hold() { g_hold = true; }
bool StopSignals::stopped() const { return g_signals > 0; }

void RunProgress::phase(const char* name, const char* unit, int64_t total) {
  if (phase_ == name) return;
  phase_ = name;
  progress_.begin(name, unit, total);
}

void RunProgress::tick(int64_t sweep, int64_t decode_rows) {
  if (sweep == 0) {
    phase("load", "bytes", resident_bytes_);
    progress_.tick();
    return;
  }
  // The first sweep is all prefill; later ones mix the prompts that refill with decode rows.
  if (decode_rows > 0 || phase_ == "decode") {
    phase("decode", "requests", requests_);
  } else {
    phase("prefill", "requests", requests_);
  }
  progress_.update(done_, tokens_);
}

void RunProgress::end() {
  if (!phase_.empty()) progress_.update(done_, tokens_);
  progress_.end();
}

RunResult run_plan(const LoadedModel& loaded, const planner::Placement& placement,
                   const RunOptions& options, Feed& feed) {
  std::unique_ptr<planner::TraceWriter> trace;
  std::unique_ptr<ActivationLog> activations;
  EngineOptions engine_options;
  engine_options.performer.tiers = options.tiers;
  engine_options.performer.instructions = options.instructions;
  engine_options.performer.compute = options.compute;
  if (!options.activations_file.empty()) {
    activations = std::make_unique<ActivationLog>(options.activations_file);
    engine_options.performer.activations = activations.get();
  }
  if (!options.trace_file.empty()) {
    trace = std::make_unique<planner::TraceWriter>(options.trace_file, "run");
    engine_options.observer = [&](const planner::Task& task, double start, double end) {
      trace->add(task, start, end);
    };
  }
  RunResult result;
  {
    Engine engine(loaded.model, placement.plan, engine_options);
    if (weights_identity(loaded.model) != loaded.identity.weights)
      throw Error(Kind::kIo, loaded.model.name +
                                 ": its files were changed while the job was read; run it again");
    result.stats = engine.run(feed);
    result.disk_engine = engine.performer().disk_description();
    result.compute = engine.performer().compute_description();
    result.pinned_bytes = engine.performer().memory().host_region().locked_bytes();
    result.host_bytes = engine.performer().memory().host_region().bytes();
  }
  if (trace) trace->finish();
  return result;
}

std::string summary_text(const planner::Placement& placement, const RunResult& result,
                         int64_t tokens) {
  const RunStats& stats = result.stats;
  const double rate = static_cast<double>(tokens) / std::max(stats.seconds, 1e-9);
  std::string text = fmt::format(
      "{} tokens in {:.2f} s ({:.2f} s of it loading): {:.1f} tokens/s (predicted {:.1f}), {} "
      "sweeps\ncompute: {}; KV cache: {}; disk: {}\n",
      tokens, stats.seconds, stats.load_seconds, rate, placement.prediction.tokens_per_s,
      stats.sweeps, result.compute, planner::kv_text(placement.plan), result.disk_engine);
  if (stats.decode_sweeps > 0)
    text += fmt::format("a decode sweep took {:.3g} s (predicted {:.3g})\n",
                        decode_sweep_seconds(stats), placement.prediction.decode_sweep_s);
  if (result.host_bytes > 0)
    text += fmt::format("host memory: {} page-locked of {}\n", format_bytes(result.pinned_bytes),
                        format_bytes(result.host_bytes));
  text += fmt::format("{:<16} {:>10} {:>6} {:>16}\n", "lane", "bytes", "busy", "predicted busy");
  for (size_t i = 0; i < planner::kLanes; ++i) {
    if (stats.lanes.tasks[i] == 0) continue;
    const double predicted =
        placement.prediction.simulated_s > 0
            ? std::min(1.0, placement.prediction.busy_s[i] / placement.prediction.simulated_s)
            : 0;
    text += fmt::format(
        "{:<16} {:>10} {:>5.0f}% {:>15.0f}%\n", planner::name(static_cast<planner::Lane>(i)),
        format_bytes(stats.lanes.bytes[i]),
        100 * stats.lanes.busy_s[i] / std::max(stats.seconds, 1e-9), 100 * predicted);
  }
  return text;
}

nlohmann::json summary_json(const planner::Placement& placement, const RunResult& result,
                            int64_t tokens) {
  const RunStats& stats = result.stats;
  nlohmann::json lanes = nlohmann::json::object();
  for (size_t i = 0; i < planner::kLanes; ++i)
    if (stats.lanes.tasks[i] > 0)
      lanes[std::string(planner::name(static_cast<planner::Lane>(i)))] = {
          {"bytes", stats.lanes.bytes[i]},
          {"tasks", stats.lanes.tasks[i]},
          {"busy_s", stats.lanes.busy_s[i]},
          {"busy_share", stats.lanes.busy_s[i] / std::max(stats.seconds, 1e-9)}};
  return {{"tokens", tokens},
          {"seconds", stats.seconds},
          {"load_seconds", stats.load_seconds},
          {"tokens_per_s", static_cast<double>(tokens) / std::max(stats.seconds, 1e-9)},
          {"predicted_tokens_per_s", placement.prediction.tokens_per_s},
          {"sweeps", stats.sweeps},
          {"first_sweep_s", stats.first_sweep_seconds},
          {"decode_sweeps", stats.decode_sweeps},
          {"decode_sweep_s", decode_sweep_seconds(stats)},
          {"predicted_decode_sweep_s", placement.prediction.decode_sweep_s},
          {"row_steps", stats.row_steps},
          {"prompt_tokens", stats.prompt_tokens},
          {"compute", result.compute},
          {"disk", result.disk_engine},
          {"pinned_bytes", result.pinned_bytes},
          {"lanes", lanes},
          {"placement",
           planner::placement_json(placement.plan, placement.needs, placement.prediction)}};
}

}  // namespace transload::engine
