#include "engine/run/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "engine/run/generate_feed.h"
#include "planner/report.h"

namespace transload::engine {
namespace {

RunIdentity identity_of(const LoadedModel& loaded, const JobInput& input,
                        const SamplingOptions& d) {
  return {{"command", "generate"},
          {"model", loaded.identity},
          {"job", fmt::format("{:016x}", input.content_hash())},
          {"compute", "float32"},
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
    ++work.requests;
    prompt_tokens += line.prompt_tokens;
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

struct Counts {
  int64_t errors = 0;
  int64_t skipped = 0;
};

void print_summary(const GenerateOptions& options, const planner::Placement& placement,
                   const RunResult& result, const GenerateFeed& feed, const Counts& counts) {
  if (options.run.json) {
    nlohmann::json json = summary_json(placement, result, feed.new_tokens());
    json["finished"] = feed.finished();
    json["errors"] = counts.errors + feed.failed();
    json["skipped"] = counts.skipped;
    json["placement"] =
        planner::placement_json(placement.plan, placement.needs, placement.prediction);
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print(stderr, "{}{} requests finished, {} error records, {} were done before\n{}",
             defaults_text(options), feed.finished(), counts.errors + feed.failed(), counts.skipped,
             summary_text(placement, result, feed.new_tokens()));
}

void print_plan(const GenerateOptions& options, const planner::Placement& placement) {
  if (options.run.json) {
    if (!options.run.dry_run) return;  // it is part of the summary
    fmt::print(
        "{}\n",
        planner::placement_json(placement.plan, placement.needs, placement.prediction).dump(2));
    return;
  }
  std::FILE* to = options.run.dry_run ? stdout : stderr;
  fmt::print(to, "{}",
             planner::placement_text(placement.plan, placement.needs, placement.prediction));
}

void refuse_clash(const RunOptions& run) {
  if (run.json && !run.dry_run && run.output == "-")
    throw Error(Kind::kUsage,
                "--json: the summary and --output - both want standard output; "
                "give --output a file");
}

// A dry run reads the job, and leaves the output alone.
Outcome dry_run(const GenerateOptions& options, const LoadedModel& loaded, JobInput& input,
                const JobReading& reading, const ReadProgress& progress) {
  int64_t errors = 0;
  input.index(
      reading, [&](const LineError&) { ++errors; }, progress);
  if (input.pending() == 0) {
    fmt::print("nothing to compute: {} lines, {} of them bad\n",
               static_cast<int64_t>(input.lines().size()) + errors, errors);
  } else {
    print_plan(options, choose_plan(loaded, options.run, workload_of(input)));
  }
  return errors > 0 ? Outcome::kPartial : Outcome::kDone;
}

}  // namespace

Outcome generate(const GenerateOptions& options) {
  refuse_clash(options.run);
  const LoadedModel loaded = load(options.run.model);
  Progress progress = Progress::on(STDERR_FILENO);
  progress.begin("open", "bytes", 0);
  const ReadProgress reading_progress = [&](int64_t done, int64_t) { progress.update(done); };
  const std::string spool =
      options.run.output == "-" ? "/tmp/transload.spool" : options.run.output + ".spool";
  JobInput input = JobInput::open(options.run.input, spool, reading_progress);
  const JobReading reading{loaded.tokenizer.get(),
                           options.defaults,
                           {loaded.model.spec.max_positions, loaded.model.spec.vocab}};
  if (options.run.dry_run) return dry_run(options, loaded, input, reading, reading_progress);

  JobOutput output =
      JobOutput::open(options.run.output, identity_of(loaded, input, options.defaults));
  Counts counts;
  input.index(
      reading,
      [&](const LineError& error) {
        ++counts.errors;
        output.write(error);
      },
      reading_progress);
  input.mark_finished(output);
  progress.end();
  counts.skipped = static_cast<int64_t>(input.lines().size()) - input.pending();
  if (input.pending() == 0) {
    output.flush();
    fmt::print(stderr, "nothing left to compute: {} requests were done before, {} error records\n",
               counts.skipped, counts.errors);
    return counts.errors > 0 ? Outcome::kPartial : Outcome::kDone;
  }
  const planner::Placement placement = choose_plan(loaded, options.run, workload_of(input));
  print_plan(options, placement);

  const StopSignals signals;
  RunProgress run_progress(
      progress, input.pending(),
      placement.needs.device.resident.bytes + placement.needs.host.resident.bytes);
  GenerateFeed feed(loaded, input, output, run_progress, signals);
  const RunResult result = run_plan(loaded, placement, options.run, feed);
  run_progress.end();
  output.flush();
  print_summary(options, placement, result, feed, counts);
  if (signals.stopped()) return Outcome::kInterrupted;
  return counts.errors + feed.failed() > 0 ? Outcome::kPartial : Outcome::kDone;
}

}  // namespace transload::engine
