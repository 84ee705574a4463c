#include "engine/run/job_steps.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "planner/report.h"

namespace transload::engine {

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void refuse_clash(const RunOptions& run) {
  if (run.json && !run.dry_run && run.output == "-")
    throw Error(
        Kind::kUsage,
        "--json: the summary and --output - both want standard output; give --output a file");
}

std::string spool_path(const RunOptions& run) {
  if (run.output != "-") return run.output + ".spool";
  return (std::filesystem::temp_directory_path() / fmt::format("transload.{}.spool", getpid()))
      .string();
}

ReadProgress reading_progress(Progress& progress) {
  return [&progress](int64_t done, int64_t) { progress.update(done); };
}

void refuse_worse_machine(const LineError& error, const JobOutput& output) {
  if (error.code != kChatUnavailable || !output.has_answers()) return;
  if (output.error_written(error.line)) return;
  throw Error(Kind::kIo, fmt::format("line {}: {}; no record was written: make chat lines run "
                                     "here and repeat the command to resume",
                                     error.line, error.message));
}

Outcome nothing_left(const RunOptions& run, JobOutput& output, const JobCounts& counts) {
  output.flush();
  if (run.json) {
    const nlohmann::json json = {
        {"tokens", 0}, {"finished", 0}, {"errors", counts.errors}, {"skipped", counts.skipped}};
    fmt::print("{}\n", json.dump());
    return outcome_of(false, counts.errors);
  }
  say(fmt::format("nothing left to compute: {} requests were done before, {} error records\n",
                  counts.skipped, counts.errors));
  return outcome_of(false, counts.errors);
}

void announce(const RunOptions& run, const planner::Placement& placement) {
  if (!run.json)
    say(planner::placement_text(placement.plan, placement.needs, placement.prediction));
  const int64_t pinned = placement.needs.pinned_bytes;
  if (pinned >= 0 && pinned < placement.needs.bytes[1])
    say(
        fmt::format("warning: {} of {} host memory can be page-locked, the rest is pageable; raise "
                    "ulimit -l or --pinned-memory\n",
                    format_bytes(pinned), format_bytes(placement.needs.bytes[1])));
}

RunProgress run_progress(Progress& progress, const planner::Placement& placement,
                         int64_t requests) {
  const planner::Footprint& needs = placement.needs;
  return {progress, requests, needs.device.resident.bytes + needs.host.resident.bytes};
}

Outcome outcome_of(bool interrupted, int64_t errors) {
  if (interrupted) return Outcome::kInterrupted;
  return errors > 0 ? Outcome::kPartial : Outcome::kDone;
}

}  // namespace transload::engine
