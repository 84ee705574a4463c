#include "engine/run/score.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/job/score_input.h"

namespace transload::engine {
namespace {

// The windows of each line as sequences; a line is written when its last window is scored.
class ScoreFeed : public Feed {
 public:
  ScoreFeed(const ScoreInput& input, JobOutput& output, RunProgress& progress, StopSignals& signals,
            bool token_logprobs)
      : input_(input),
        output_(output),
        progress_(progress),
        signals_(signals),
        token_logprobs_(token_logprobs) {}

  std::optional<Sequence> next() override {
    signals_.hold();  // from now on there is work to finish
    while (windows_left_ == 0)
      if (!open_line()) return std::nullopt;
    Line& line = lines_.at(open_);
    const size_t index = line.request.windows.size() - windows_left_--;
    const ScoreWindow& window = line.request.windows[index];
    Sequence sequence;
    sequence.request = open_ * kWindows + static_cast<int64_t>(index);
    sequence.tokens.assign(line.request.tokens.begin() + window.begin,
                           line.request.tokens.begin() + window.end);
    // The last token is only scored: nothing needs its row.
    sequence.prompt_tokens = window.end - window.begin - 1;
    sequence.head_rows = window.end - window.first_scored;
    return sequence;
  }

  bool advance(Sequence& sequence) override {
    Line& line = lines_.at(sequence.request / kWindows);
    if (!sequence.error.empty()) line.error = sequence.error;
    line.scored[static_cast<size_t>(sequence.request % kWindows)] = std::move(sequence.scored);
    progress_.new_tokens(sequence.head_rows);
    if (--line.missing == 0) finish(sequence.request / kWindows);
    return false;
  }

  bool stop_requested() override { return signals_.stopped(); }
  void tick(int64_t sweep, int64_t, int64_t) override { progress_.tick(sweep, 0); }

  int64_t finished() const { return finished_; }
  int64_t failed() const { return failed_; }
  int64_t tokens() const { return tokens_; }
  double mean_nll() const {
    return tokens_ == 0 ? 0 : -logprob_sum_ / static_cast<double>(tokens_);
  }

 private:
  static constexpr int64_t kWindows = int64_t{1} << 32;  // numbers of a line's windows
  struct Line {
    ScoreRequest request;
    std::vector<std::vector<ScoredToken>> scored;
    size_t missing = 0;
    std::string error;
  };

  bool open_line() {
    const JobLines& lines = input_.lines();
    while (next_line_ < lines.size() && lines[next_line_].finished()) ++next_line_;
    if (next_line_ == lines.size()) return false;
    open_ = static_cast<int64_t>(next_line_++);
    Line line;
    line.request = input_.read(lines[static_cast<size_t>(open_)]);
    windows_left_ = line.request.windows.size();
    line.scored.resize(windows_left_);
    line.missing = windows_left_;
    lines_.emplace(open_, std::move(line));
    if (windows_left_ == 0) finish(open_);
    return true;
  }

  void finish(int64_t number) {
    const Line& line = lines_.at(number);
    progress_.finished_request();
    if (!line.error.empty()) {
      ++failed_;
      output_.write(LineError{line.request.line, line.request.id_json, "internal", line.error});
    } else {
      Score score;
      score.is_greedy = true;
      score.write_token_logprobs = token_logprobs_;
      for (const std::vector<ScoredToken>& window : line.scored)
        for (const ScoredToken& token : window) {
          score.logprob_sum += static_cast<double>(token.logprob);
          score.is_greedy = score.is_greedy && token.is_greedy;
          score.token_logprobs.push_back(token.logprob);
        }
      score.count = static_cast<int64_t>(score.token_logprobs.size());
      logprob_sum_ += score.logprob_sum;
      tokens_ += score.count;
      ++finished_;
      output_.write(line.request.id_json, score);
    }
    lines_.erase(number);
  }

  const ScoreInput& input_;
  JobOutput& output_;
  RunProgress& progress_;
  StopSignals& signals_;
  bool token_logprobs_;
  size_t next_line_ = 0;
  int64_t open_ = 0;
  size_t windows_left_ = 0;
  std::map<int64_t, Line> lines_;  // under way
  int64_t finished_ = 0;
  int64_t failed_ = 0;
  int64_t tokens_ = 0;
  double logprob_sum_ = 0;
};

RunIdentity identity_of(const LoadedModel& loaded, const ScoreInput& input,
                        const ScoreOptions& options) {
  return {{"command", "score"},
          {"model", loaded.identity.weights},
          {"config", loaded.identity.config},
          {"tokenizer", loaded.identity.tokenizer},
          {"job", fmt::format("{:016x}", input.content_hash())},
          {"compute", std::string(name(options.run.compute))},
          {"instructions", arithmetic(loaded, options.run)},
          {"kv_bits", fmt::format("{}", kv_bits(options.run))},
          {"window", fmt::format("{}", options.window)},
          {"stride", fmt::format("{}", options.stride)},
          {"token_logprobs", options.token_logprobs ? "yes" : "no"}};
}

// The longest window decides what a sweep must hold.
planner::Workload workload_of(const ScoreInput& input) {
  planner::Workload work;
  work.work = planner::Work::kScore;
  work.requests = 0;
  work.max_new_tokens = 0;
  int64_t tokens = 0;
  for (const JobLine& line : input.lines()) {
    if (line.finished()) continue;
    for (const ScoreWindow& window : input.read(line).windows) {
      const int64_t rows = window.end - window.begin - 1;
      ++work.requests;
      tokens += rows;
      work.max_prompt_tokens = std::max(work.max_prompt_tokens, rows);
    }
  }
  work.mean_prompt_tokens = std::max<int64_t>(1, tokens / std::max<int64_t>(1, work.requests));
  work.max_total_tokens = work.max_prompt_tokens;
  return work;
}

void print_summary(const ScoreOptions& options, const planner::Placement& placement,
                   const RunResult& result, const ScoreFeed& feed, const JobCounts& counts) {
  if (options.run.json) {
    nlohmann::json json = summary_json(placement, result, feed.tokens());
    json["finished"] = feed.finished();
    json["errors"] = counts.errors + feed.failed();
    json["skipped"] = counts.skipped;
    json["mean_nll"] = feed.mean_nll();
    json["perplexity"] = std::exp(feed.mean_nll());
    fmt::print("{}\n", json.dump());
    return;
  }
  say(fmt::format(
      "{} lines scored, {} error records, {} were done before\nmean NLL {:.6f} over {} "
      "tokens, perplexity {:.5f}\n{}",
      feed.finished(), counts.errors + feed.failed(), counts.skipped, feed.mean_nll(),
      feed.tokens(), std::exp(feed.mean_nll()), summary_text(placement, result, feed.tokens())));
}

}  // namespace

Outcome score(const ScoreOptions& options) {
  const RunOptions& run = options.run;
  refuse_clash(run);
  StopSignals signals;
  const LoadedModel loaded = load(run.model);
  Progress progress = Progress::on(STDERR_FILENO);
  ScoreInput input = open_input<ScoreInput>(run, progress);
  JobOutput output = JobOutput::open(run.output, identity_of(loaded, input, options));
  const ScoreReading reading{loaded.tokenizer.get(),
                             {loaded.model.spec.max_positions, loaded.model.spec.vocab},
                             options.window,
                             options.stride};
  const JobCounts counts = index_job(input, reading, output, progress);
  if (input.pending() == 0) return nothing_left(run, output, counts);
  const planner::Placement placement = or_take_back(
      output, [&] { return choose_plan(loaded, run, workload_of(input), input.memory()); });
  announce(run, placement);

  RunProgress running = run_progress(progress, placement, input.pending());
  ScoreFeed feed(input, output, running, signals, options.token_logprobs);
  const RunResult result =
      or_take_back(output, [&] { return run_plan(loaded, placement, run, feed); });
  running.end();
  output.flush();
  print_summary(options, placement, result, feed, counts);
  return outcome_of(signals.stopped(), counts.errors + feed.failed());
}

}  // namespace transload::engine
