// A job: JSON lines in, JSON lines out, resumable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/tokenizer/tokenizer.h"

namespace transload::engine {

// One request of `generate`, ready to run.
struct Request {
  int64_t line = 0;             // 1-based
  std::string id_json;          // the id as JSON text, written back as it came
  std::vector<int32_t> prompt;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
};

// A line that cannot run; becomes {"id", "line", "error"}.
struct LineError {
  int64_t line = 0;
  std::string id_json = "null";
  std::string code;     // "invalid_json", "missing_prompt", "unknown_field", "invalid_value",
                        // "prompt_too_long", "duplicate_id", "line_too_long", "invalid_utf8"
  std::string message;
};

// What a finished request writes.
struct Completion {
  std::string text;  // empty where the model has no tokenizer
  std::vector<int32_t> tokens;
  std::string finish_reason;  // "stop", "length"
  int64_t prompt_tokens = 0;
  std::vector<Sampled> logprobs;  // a token each, when asked for
};

struct JobLimits {
  int64_t max_positions = 0;  // of the model: a prompt must leave room for one token
  int64_t vocab = 0;          // token ids must be below it
};

// The input file, indexed once: at most 32 bytes a line are kept (offset, length, token counts,
// state). Standard input is spooled to OUT.spool beside the output first. Blank lines are skipped;
// a BOM, CRLF and a missing final newline are fine; a bad line becomes a LineError.
// Threads: single-threaded.
class JobInput {
 public:
  struct Line {
    int64_t offset = 0;
    int32_t bytes = 0;
    int32_t prompt_tokens = 0;
    int32_t max_tokens = 0;   // after clamping to the context
    uint32_t number = 0;      // 1-based line number
    uint64_t id_hash_and_state = 0;
  };
  static_assert(sizeof(Line) == 32);

  // Errors: kIo, kUsage. Every bad line is handed to on_error once, in file order, and not kept.
  static JobInput open(const std::string& path, const std::string& spool_path,
                       const Tokenizer* tokenizer, const SamplingOptions& defaults,
                       const JobLimits& limits,
                       const std::function<void(const LineError&)>& on_error,
                       const std::function<void(int64_t done_bytes, int64_t all_bytes)>& progress);

  std::span<const Line> lines() const;
  // Reads and tokenises a line again.
  Request read(const Line& line) const;
  uint64_t content_hash() const;  // xxhash of the whole input, for the state file
  int64_t max_prompt_tokens() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// What must be the same for a resume, as name -> value ("model", "job", "compute",
// "temperature", ...). Written to OUT.state (at most 4 KiB, by rename).
using RunIdentity = std::vector<std::pair<std::string, std::string>>;

// The output file: whole lines, each written as its request ends.
class JobOutput {
 public:
  // Opens or resumes. A torn last line is cut off. Errors: kUsage naming what changed since the
  // run that wrote the file, kIo, kBadInput for a line in OUT that is not ours.
  static JobOutput open(const std::string& path, const RunIdentity& identity);

  bool finished(uint64_t id_hash) const;        // a completion for this id is there
  bool error_written(int64_t line) const;       // an error record for this line is there
  void write(const Request& request, const Completion& completion);
  void write(const LineError& error);
  void flush();  // fsync
  int64_t bytes_written() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Hash of an id as JSON text, as JobInput::Line and JobOutput use it.
uint64_t id_hash(const std::string& id_json);

}  // namespace transload::engine
