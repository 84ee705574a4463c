// The lines of a job: their format, what is kept of a line, and what is said of a bad one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/job/spilled_array.h"

namespace transload::engine {

// What the lines of a job look like, and with them the records of the output.
enum class JobFormat {
  kLines,  // {"id", ...}
  kBatch,  // OpenAI's batch file: {"custom_id", "method", "url", "body"}
};

// Longer lines become a LineError and are never held in memory.
inline constexpr int64_t kLineLimitBytes = int64_t{16} * 1024 * 1024;

// Code of a chat line that only this machine keeps from running: Python, Jinja2 or time is missing.
inline constexpr std::string_view kChatUnavailable = "chat_unavailable";

// A line that cannot run; becomes {"id", "line", "error"}.
struct LineError {
  int64_t line = 0;  // 1-based
  std::string id_json = "null";
  // "invalid_json", "invalid_utf8", "line_too_long", "missing_id", "missing_prompt",
  // "unknown_field", "invalid_value", "prompt_too_long", "duplicate_id", "chat_template",
  // "chat_unavailable", "internal"
  std::string code;
  std::string message;  // what, and what to do
  JobFormat format = JobFormat::kLines;
};

inline constexpr int32_t kMaxSamples = 128;                 // a line
inline constexpr uint32_t kSampleUnit = uint32_t{1} << 25;  // above the bytes of any line

// All that is kept of a good line.
struct JobLine {
  int64_t offset = 0;
  uint32_t bytes_and_samples = 0;
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;  // after clamping to the context
  uint32_t number = 0;     // 1-based line number
  uint64_t id_hash_and_state = 0;

  // The hash of the id but for its lowest bit, which is the state.
  uint64_t id_key() const { return id_hash_and_state & ~uint64_t{1}; }
  // The line's bytes (at most kLineLimitBytes), and how many samples it asks for.
  int64_t bytes() const { return bytes_and_samples & (kSampleUnit - 1); }
  int32_t samples() const { return 1 + static_cast<int32_t>(bytes_and_samples / kSampleUnit); }
  void set_bytes_and_samples(int64_t bytes, int32_t samples) {
    bytes_and_samples =
        static_cast<uint32_t>(bytes) + kSampleUnit * static_cast<uint32_t>(samples - 1);
  }
  bool finished() const { return (id_hash_and_state & 1) != 0; }
};
static_assert(sizeof(JobLine) == 32);
using JobLines = SpilledArray<JobLine>;

// What a job takes beside the tiers, in bytes: upper bounds over its good lines.
struct JobMemory {
  int64_t lines = 0;
  int64_t longest_line = 0;    // as text, bad lines too
  int64_t longest_record = 0;  // as text
  int64_t slot = 0;            // what is gathered in a row slot until its record is written
};
int64_t job_bytes(const JobMemory& job, int64_t row_slots);

// xxHash (XXH3, 64 bits) of an id as JSON text: "\"a\"" or "7". Also the stream of its random
// numbers.
uint64_t id_hash(const std::string& id_json);
// The stream of one of a line's samples; that of sample 0 is id_hash.
uint64_t sample_stream(const std::string& id_json, int64_t sample);

}  // namespace transload::engine
