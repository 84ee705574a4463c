// A job: JSON lines in, JSON lines out, resumable.
//
//   JobInput input = JobInput::open(in, spool, progress);            // content_hash() is known now
//   JobOutput output = JobOutput::open(out, identity);               // refuses another run's file
//   input.index(reading, [&](const LineError& e) { output.write(e); }, progress);
//   input.mark_finished(output);
//   for (const JobLine& line : input.lines()) if (!line.finished()) ... input.read(line) ...
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat/chat_renderer.h"
#include "engine/job/line.h"
#include "engine/sampling/sampler.h"
#include "engine/tokenizer/tokenizer.h"

namespace transload::engine {

// One request of `generate`, ready to run.
struct Request {
  int64_t line = 0;  // 1-based
  JobFormat format = JobFormat::kLines;
  bool is_chat = false;  // kBatch: of /v1/chat/completions
  std::string id_json;   // the id as JSON text (escapes in their shortest form)
  uint64_t stream = 0;   // id_hash(id_json): equal seeds under other ids draw independently
  std::vector<int32_t> prompt;
  SamplingOptions sampling;  // max_tokens clamped to the context
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  int32_t samples = 1;               // sample i draws from sample_stream(id_json, i)
  std::string model;                 // kBatch: what the record calls it
  const Tokenizer* names = nullptr;  // kBatch: spells the tokens of logprobs
};

// What a finished sample of a request writes.
struct Completion {
  std::string text;
  bool has_text = true;  // false where the model has no tokenizer: "text" is null
  std::vector<int32_t> tokens;
  std::string finish_reason;  // "stop", "length"
  int64_t prompt_tokens = 0;
  std::vector<Sampled> logprobs;  // a token each; written when the request asks for them
};

// What a scored line writes.
struct Score {
  double logprob_sum = 0;
  int64_t count = 0;
  bool is_greedy = false;
  std::vector<float> token_logprobs;
  bool write_token_logprobs = false;
};

struct JobLimits {
  int64_t max_positions = 0;  // of the model: a prompt must leave room for one token
  int64_t vocab = 0;          // token ids must be below it
};

// How lines are read.
struct JobReading {
  const Tokenizer* tokenizer = nullptr;  // null: prompts are token ids only
  SamplingOptions defaults;              // of fields a line leaves out (or gives as null)
  JobLimits limits;
  ChatRenderer* chat = nullptr;  // null: lines with messages are errors
  std::string model_name = {};   // in records of batch lines that name none
};

// (bytes read so far, bytes to read).
using ReadProgress = std::function<void(int64_t done_bytes, int64_t all_bytes)>;

class JobOutput;

// The input file, in bounded chunks: 32 bytes a line are kept (JobLine); while index() or
// mark_finished() runs, 6 more for finding ids. Of a long job, most of that lies in a file without
// a name beside spool_path (SpilledArray). The ids of bad lines are not remembered.
// The first line that is an object tells the format of all: with a custom_id or a body it is
// OpenAI's batch file. Blank lines are skipped; a BOM, CRLF and a missing final newline are fine.
// Threads: single-threaded.
class JobInput {
 public:
  // Opens and hashes. "-" is standard input; it, and whatever cannot seek, is copied to spool_path
  // first, which is unlinked at once. Errors: kIo, kUsage.
  static JobInput open(const std::string& path, const std::string& spool_path,
                       const ReadProgress& progress);

  uint64_t content_hash() const;  // XXH3 of the whole input, for the run's identity

  // Checks and tokenises every line. Each bad one is handed to on_error once, in file order, and
  // not kept. Errors: kIo, kBadInput when the file changed since open().
  void index(const JobReading& reading, const std::function<void(const LineError&)>& on_error,
             const ReadProgress& progress);

  // Marks the lines that have a record in `output`, and returns how many of these are errors.
  // Errors: kIo, kBadInput for a record whose id is not in this input or that is there twice.
  int64_t mark_finished(const JobOutput& output);

  const JobLines& lines() const;  // in file order
  int64_t pending() const;        // lines not finished
  const JobMemory& memory() const;
  int64_t max_prompt_tokens() const;  // over all lines; 0 when there is none
  JobFormat format() const;
  // Fields that were accepted and have no effect ("user"), in alphabetical order.
  std::vector<std::string> without_effect() const;

  // Reads, renders and tokenises a line again; an error where its chat template cannot be rendered
  // any more. Errors: kIo, kBadInput when the file changed since index().
  std::variant<Request, LineError> read(const JobLine& line) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// What must be the same for a resume, as name -> value ("model", "job", "compute", "kv_bits",
// "temperature", ...). Written to OUT.state (at most 4 KiB, by rename).
using RunIdentity = std::vector<std::pair<std::string, std::string>>;

// The output file: whole lines, each written by one write(2) as its request ends. "-" (standard
// output) and what is no regular file have neither state nor resume. The bytes of a line depend
// on its request alone. Threads: single-threaded; another process is kept out by flock(2).
class JobOutput {
 public:
  // Opens or resumes. A last line without its newline is cut off.
  // Errors: kUsage naming what changed since the run that wrote the file, or that there is a file
  // without a state; kBadInput for a line in OUT that is not ours or a damaged state; kIo.
  static JobOutput open(const std::string& path, const RunIdentity& identity);

  // The ids with a completion or score in the file that open() found, in file order.
  void for_each_finished(const std::function<void(const std::string& id_json)>& visit) const;
  bool error_written(int64_t line) const;  // whether it has an error record
  bool has_answers() const;                // a completion or a score is in the file

  // Errors: kIo; what a failed write left of the line is cut off again.
  // A completion a sample, in their order.
  void write(const Request& request, std::span<const Completion> samples);
  void write(const Request& request, const Completion& completion) {
    write(request, std::span<const Completion>(&completion, 1));
  }
  void write(const std::string& id_json, const Score& score);
  void write(const LineError& error);  // nothing when the line already has an error record
  void flush();                        // fsync
  // Leaves OUT and its state as open() found them, unless there is an answer in OUT.
  void take_back();
  int64_t bytes_written() const;  // by this process

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace transload::engine
