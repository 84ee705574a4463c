// Requests of a job to the engine, tokens back to text and records.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/executor/engine.h"
#include "engine/job/job.h"
#include "engine/job/stop_strings.h"
#include "engine/run/run_options.h"

namespace transload::engine {

// A sequence's number is that of its line, and above it, from bit 32 on, that of the sample.
// Threads: the driver's.
class GenerateFeed : public Feed {
 public:
  GenerateFeed(const LoadedModel& loaded, const JobInput& input, JobOutput& output,
               RunProgress& progress, StopSignals& signals);

  std::optional<Sequence> next() override;
  bool advance(Sequence& sequence) override;
  bool stop_requested() override { return signals_.stopped(); }
  void tick(int64_t sweep, int64_t prompt_tokens, int64_t decode_rows) override;

  int64_t finished() const { return finished_; }
  int64_t failed() const { return failed_; }
  int64_t new_tokens() const { return new_tokens_; }

 private:
  // A line in work.
  struct Line {
    Request request;
    int32_t started = 0;  // samples given out
    int32_t open = 0;     // samples without an end yet, those not given out included
    std::string error;    // of the first sample that failed
    std::vector<Completion> completions;  // a sample each
  };
  struct Sample {
    Line* line = nullptr;
    int32_t number = 0;
    std::unique_ptr<IncrementalDecoder> decoder;  // null without a tokenizer
    StopMatcher stops;
    std::string text;
    std::vector<Sampled> logprobs;
  };

  bool begin_line();
  void write_error(const LineError& error);
  Sequence begin_sample(Line& line);
  bool ends(const Sample& sample, const Sequence& sequence) const;
  void add_text(Sample& sample, const Sequence& sequence, const std::string& piece);
  void finish(Sample& sample, const Sequence& sequence, const std::string& reason);
  void fail(Sample& sample, const Sequence& sequence);
  // Ends a sample; with the last one of its line the line is written.
  void end(Sample& sample, const Sequence& sequence);

  const LoadedModel& loaded_;
  const JobInput& input_;
  JobOutput& output_;
  RunProgress& progress_;
  StopSignals& signals_;
  size_t next_line_ = 0;
  Line* current_ = nullptr;                      // has samples to give out
  std::unordered_map<int64_t, Line> lines_;      // by line number; its nodes stay where they are
  std::unordered_map<int64_t, Sample> samples_;  // by the sequence's number
  int64_t finished_ = 0;
  int64_t failed_ = 0;
  int64_t new_tokens_ = 0;
};

}  // namespace transload::engine
