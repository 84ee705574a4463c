// A line of `score` -> tokens and windows.
#pragma once

#include <string_view>
#include <variant>

#include "engine/job/field_reader.h"
#include "engine/job/score_input.h"

namespace transload::engine {

// Threads: single-threaded.
class ScoreReader {
 public:
  // Errors: kUsage for a window or stride that cannot be.
  explicit ScoreReader(const ScoreReading& reading);
  std::variant<ScoreRequest, LineError> read(std::string_view text, int64_t line);

 private:
  void read_field(size_t field, FieldReader::Element value);
  void check_form();
  void take_pair(PromptAndContinuation pair);
  void take_text(std::vector<int32_t> tokens);

  ScoreReading reading_;
  FieldReader fields_;
  ScoreRequest request_;
  std::string_view prompt_, continuation_, text_;  // inside fields_
  std::vector<int32_t> prompt_tokens_, continuation_tokens_, text_tokens_;
};

}  // namespace transload::engine
