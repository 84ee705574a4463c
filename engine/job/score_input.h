// Lines to score: {"id", "prompt", "continuation"}, {"id", "prompt_token_ids",
// "continuation_token_ids"}, {"id", "text"} or {"id", "token_ids"}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/job/job.h"

namespace transload::engine {

// Tokens [begin, end) of a request go through the model at once; those in [first_scored, end) are
// scored, each by the logits of the token before it.
struct ScoreWindow {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_scored = 0;
};

struct ScoreRequest {
  int64_t line = 0;
  std::string id_json;
  std::vector<int32_t> tokens;
  std::vector<ScoreWindow> windows;
};

struct ScoreReading {
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  JobLimits limits;                      // a window holds at most max_positions tokens
  int64_t window = 0;                    // of texts; 0: max_positions
  int64_t stride = 0;                    // 0: window
};

// Windows of a text of `tokens` tokens, `stride` apart. The first token of the text and of each
// window is not scored; with stride < window, a window after the first scores only the tokens that
// no window before it held. Source: Hugging Face, "Perplexity of fixed-length models".
// Errors: kUsage unless 1 <= stride <= window and window >= 2.
std::vector<ScoreWindow> score_windows(int64_t tokens, int64_t window, int64_t stride);

// Tokens of prompt and continuation as lm-evaluation-harness makes them: white space at the
// prompt's end moves to the continuation; the continuation's tokens are those of the whole beyond
// as many as the prompt has: encode(prompt + continuation)[len(encode(prompt)):].
struct PromptAndContinuation {
  std::vector<int32_t> prompt;
  std::vector<int32_t> continuation;
};
PromptAndContinuation encode_pair(const Tokenizer& tokenizer, std::string_view prompt,
                                  std::string_view continuation);

// As JobInput: same errors, same bounds (max_tokens of a line is the number of scored tokens).
// Threads: single-threaded.
class ScoreInput {
 public:
  // Errors: as JobInput::open.
  static ScoreInput open(const std::string& path, const std::string& spool_path,
                         const ReadProgress& progress);
  uint64_t content_hash() const;
  // Errors: as JobInput::index; kUsage for a window that cannot be.
  void index(const ScoreReading& reading, const std::function<void(const LineError&)>& on_error,
             const ReadProgress& progress);
  int64_t mark_finished(const JobOutput& output);
  const JobLines& lines() const;
  const JobMemory& memory() const;
  int64_t pending() const;
  ScoreRequest read(const JobLine& line) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace transload::engine
