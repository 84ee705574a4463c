// Steps that `generate` and `score` share, from the input file to the exit status.
#pragma once

#include <cstdint>
#include <string>

#include "engine/job/job.h"
#include "engine/run/run_options.h"

namespace transload::engine {

enum class Outcome { kDone, kPartial, kInterrupted };

struct JobCounts {
  int64_t errors = 0;   // error records in the output before the first line runs
  int64_t skipped = 0;  // lines answered by an earlier run
};

// To standard error, for people: a run goes on where nobody can read it.
void say(const std::string& text);

// Errors: kUsage where the summary and the records would both go to standard output.
void refuse_clash(const RunOptions& run);

// Where standard input is copied to: beside the output, or among temporary files.
std::string spool_path(const RunOptions& run);

ReadProgress reading_progress(Progress& progress);

// Opens --input as a JobInput or a ScoreInput.
template <class Input>
Input open_input(const RunOptions& run, Progress& progress) {
  progress.begin("open", "bytes", 0);
  return Input::open(run.input, spool_path(run), reading_progress(progress));
}

// A job is not resumed where its chat lines cannot run any more: they would all become errors.
// Errors: kIo where the output has answers and no record of this chat_unavailable.
void refuse_worse_machine(const LineError& error, const JobOutput& output);

// Checks every line, writes the records of bad ones and finds those that are done.
template <class Input, class Reading>
JobCounts index_job(Input& input, const Reading& reading, JobOutput& output, Progress& progress) {
  JobCounts counts;
  const auto on_error = [&](const LineError& error) {
    refuse_worse_machine(error, output);
    ++counts.errors;
    output.write(error);
  };
  input.index(reading, on_error, reading_progress(progress));
  const int64_t failed = input.mark_finished(output);  // by an earlier run, while they ran
  progress.end();
  counts.errors += failed;
  counts.skipped = static_cast<int64_t>(input.lines().size()) - input.pending() - failed;
  return counts;
}

// A step without which there are no answers: where it fails before the first one, a new output is
// taken back.
template <class Step>
auto or_take_back(JobOutput& output, const Step& step) {
  try {
    return step();
  } catch (...) {
    output.take_back();
    throw;
  }
}

// Says that every line has its record (with --json on standard output), and the outcome of that.
Outcome nothing_left(const RunOptions& run, JobOutput& output, const JobCounts& counts);

// Prints the placement to standard error; with --json it is part of the summary.
void announce(const RunOptions& run, const planner::Placement& placement);

// Progress of a run by this placement.
RunProgress run_progress(Progress& progress, const planner::Placement& placement, int64_t requests);

Outcome outcome_of(bool interrupted, int64_t errors);

}  // namespace transload::engine
