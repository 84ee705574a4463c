// What is kept of a line of an input file, and what is said of a bad one.
#pragma once

#include <cstdint>
#include <string>

namespace transload::engine {

// Longer lines become a LineError and are never held in memory.
inline constexpr int64_t kLineLimitBytes = int64_t{16} * 1024 * 1024;

// A line that cannot run; becomes {"id", "line", "error"}.
struct LineError {
  int64_t line = 0;  // 1-based
  std::string id_json = "null";
  // "invalid_json", "invalid_utf8", "line_too_long", "missing_id", "missing_prompt",
  // "unknown_field", "invalid_value", "prompt_too_long", "duplicate_id", "chat_template"
  std::string code;
  std::string message;  // what, and what to do
};

// All that is kept of a good line.
struct JobLine {
  int64_t offset = 0;
  int32_t bytes = 0;
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;  // after clamping to the context
  uint32_t number = 0;     // 1-based line number
  uint64_t id_hash_and_state = 0;

  // The hash of the id but for its lowest bit, which is the state.
  uint64_t id_key() const { return id_hash_and_state & ~uint64_t{1}; }
  bool finished() const { return (id_hash_and_state & 1) != 0; }
};
static_assert(sizeof(JobLine) == 32);

// xxHash (XXH3, 64 bits) of an id as JSON text: "\"a\"" or "7". Also the stream of its random
// numbers.
uint64_t id_hash(const std::string& id_json);

}  // namespace transload::engine
