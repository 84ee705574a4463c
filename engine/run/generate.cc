#include "engine/run/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "engine/job/run_state.h"
#include "engine/run/generate_feed.h"
#include "planner/report.h"

namespace transload::engine {
namespace {

// The moment that chat templates take for now. A resumed job keeps the one it began with.
std::string now_of(const GenerateOptions& options) {
  if (!options.chat_now.empty()) return options.chat_now;
  const auto before =
      options.run.output == "-" ? std::nullopt : read_state(options.run.output + ".state");
  for (const auto& [name, value] : before.value_or(RunIdentity{})) {
    if (name == "chat_now" && is_chat_moment(value)) return value;
  }
  return chat_now();
}

RunIdentity identity_of(const LoadedModel& loaded, const JobInput& input,
                        const GenerateOptions& options, const std::string& now) {
  const SamplingOptions& d = options.defaults;
  return {{"command", "generate"},
          {"model", loaded.identity.weights},
          {"config", loaded.identity.config},
          {"tokenizer", loaded.identity.tokenizer},
          {"chat template", loaded.identity.chat_template},
          {"end tokens", loaded.identity.end_tokens},
          {"job", fmt::format("{:016x}", input.content_hash())},
          {"compute", std::string(name(options.run.compute))},
          {"instructions", arithmetic(loaded, options.run)},
          {"kv_bits", fmt::format("{}", kv_bits(options.run))},
          {"chat_now", now},
          {"max_tokens", fmt::format("{}", d.max_tokens)},
          {"temperature", fmt::format("{}", d.temperature)},
          {"top_p", fmt::format("{}", d.top_p)},
          {"top_k", fmt::format("{}", d.top_k)},
          {"min_p", fmt::format("{}", d.min_p)},
          {"repetition_penalty", fmt::format("{}", d.repetition_penalty)},
          {"presence_penalty", fmt::format("{}", d.presence_penalty)},
          {"frequency_penalty", fmt::format("{}", d.frequency_penalty)},
          {"seed", fmt::format("{}", d.seed)}};
}

planner::Workload workload_of(const JobInput& input) {
  planner::Workload work;
  work.requests = 0;
  int64_t prompt_tokens = 0;
  for (const JobLine& line : input.lines()) {
    if (line.finished()) continue;
    work.requests += line.samples();
    prompt_tokens += int64_t{line.samples()} * line.prompt_tokens;
    work.max_prompt_tokens = std::max<int64_t>(work.max_prompt_tokens, line.prompt_tokens);
    work.max_new_tokens = std::max<int64_t>(work.max_new_tokens, line.max_tokens);
    work.max_total_tokens =
        std::max<int64_t>(work.max_total_tokens, line.prompt_tokens + line.max_tokens);
  }
  work.mean_prompt_tokens =
      std::max<int64_t>(1, prompt_tokens / std::max<int64_t>(work.requests, 1));
  return work;
}

std::string defaults_text(const GenerateOptions& options) {
  return fmt::format("where a line says nothing: temperature {}, max_tokens {}, seed {}\n",
                     options.defaults.temperature, options.defaults.max_tokens,
                     options.defaults.seed);
}

// What a batch file's bodies say to a server, and nothing here.
std::string ignored_text(const JobInput& input) {
  std::string names;
  for (const std::string& name : input.without_effect()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "" : "accepted without effect: " + names + " (--model gives the model)\n";
}

void print_summary(const GenerateOptions& options, const planner::Placement& placement,
                   const RunResult& result, const GenerateFeed& feed, const JobCounts& counts) {
  if (options.run.json) {
    nlohmann::json json = summary_json(placement, result, feed.new_tokens());
    json["finished"] = feed.finished();
    json["errors"] = counts.errors + feed.failed();
    json["skipped"] = counts.skipped;
    fmt::print("{}\n", json.dump());
    return;
  }
  say(fmt::format("{}{} requests finished, {} error records, {} were done before\n{}",
                  defaults_text(options), feed.finished(), counts.errors + feed.failed(),
                  counts.skipped, summary_text(placement, result, feed.new_tokens())));
}

void print_plan(const RunOptions& run, const planner::Placement& placement) {
  const auto& [plan, needs, prediction] = placement;
  if (run.json) {
    fmt::print("{}\n", planner::placement_json(plan, needs, prediction).dump(2));
  } else {
    fmt::print("{}", planner::placement_text(plan, needs, prediction));
  }
}

// A dry run reads the job, and leaves the output alone.
Outcome dry_run(const GenerateOptions& options, const LoadedModel& loaded, JobInput& input,
                const JobReading& reading, Progress& progress) {
  int64_t errors = 0;
  input.index(
      reading, [&](const LineError&) { ++errors; }, reading_progress(progress));
  progress.end();
  const auto lines = static_cast<int64_t>(input.lines().size()) + errors;
  if (input.pending() == 0 && options.run.json) {
    fmt::print("{}\n", nlohmann::json{{"lines", lines}, {"errors", errors}}.dump());
  } else if (input.pending() == 0) {
    fmt::print("nothing to compute: {} lines, {} of them bad\n", lines, errors);
  } else {
    print_plan(options.run, choose_plan(loaded, options.run, workload_of(input), input.memory()));
  }
  return outcome_of(false, errors);
}

}  // namespace

Outcome generate(const GenerateOptions& options) {
  const RunOptions& run = options.run;
  refuse_clash(run);
  StopSignals signals;
  const LoadedModel loaded = load(run.model);
  Progress progress = Progress::on(STDERR_FILENO);
  JobInput input = open_input<JobInput>(run, progress);
  const std::string now = now_of(options);
  ChatRenderer chat(loaded.chat, now);
  const JobReading reading{loaded.tokenizer.get(),
                           options.defaults,
                           {loaded.model.spec.max_positions, loaded.model.spec.vocab},
                           &chat,
                           loaded.model.name};
  if (run.dry_run) return dry_run(options, loaded, input, reading, progress);
  JobOutput output = JobOutput::open(run.output, identity_of(loaded, input, options, now));
  const JobCounts counts = index_job(input, reading, output, progress);
  say(ignored_text(input));
  if (input.pending() == 0) return nothing_left(run, output, counts);
  const planner::Placement placement = or_take_back(
      output, [&] { return choose_plan(loaded, run, workload_of(input), input.memory()); });
  announce(run, placement);

  RunProgress running = run_progress(progress, placement, input.pending());
  GenerateFeed feed(loaded, input, output, running, signals);
  const RunResult result =
      or_take_back(output, [&] { return run_plan(loaded, placement, run, feed); });
  running.end();
  output.flush();
  print_summary(options, placement, result, feed, counts);
  return outcome_of(signals.stopped(), counts.errors + feed.failed());
}

}  // namespace transload::engine
