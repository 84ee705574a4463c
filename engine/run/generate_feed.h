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
  struct Active {
    Request request;
    std::unique_ptr<IncrementalDecoder> decoder;  // null without a tokenizer
    StopMatcher stops;
    std::string text;
    std::vector<Sampled> logprobs;
  };

  bool ends(const Active& active, const Sequence& sequence) const;
  void add_text(Active& active, const Sequence& sequence, const std::string& piece);
  void finish(Active& active, const Sequence& sequence, const std::string& reason);

  const LoadedModel& loaded_;
  const JobInput& input_;
  JobOutput& output_;
  RunProgress& progress_;
  StopSignals& signals_;
  size_t next_line_ = 0;
  std::unordered_map<int64_t, Active> active_;  // by line number
  int64_t finished_ = 0;
  int64_t failed_ = 0;
  int64_t new_tokens_ = 0;
};

}  // namespace transload::engine
