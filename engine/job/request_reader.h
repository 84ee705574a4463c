// A line of a `generate` job -> a request.
#pragma once

#include <string_view>
#include <variant>

#include "engine/job/field_reader.h"
#include "engine/job/job.h"

namespace transload::engine {

// Fields: id; prompt, prompt_token_ids or messages; and the sampling fields under their OpenAI
// names. null is a sampling field left out. Threads: single-threaded.
class RequestReader {
 public:
  explicit RequestReader(const JobReading& reading) : reading_(reading) {}
  std::variant<Request, LineError> read(std::string_view text, int64_t line);

 private:
  void read_field(size_t field, FieldReader::Element value);
  void read_messages(FieldReader::Element value);
  void read_prompt();
  void render();
  void check_together();

  JobReading reading_;
  FieldReader fields_;
  Request request_;
  std::string_view text_;  // of "prompt", inside fields_
  std::string messages_;   // of "messages", as JSON
};

}  // namespace transload::engine
