// A line of a `generate` job -> a request.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "engine/job/field_reader.h"
#include "engine/job/job.h"
#include "engine/job/request_fields.h"

namespace transload::engine {

// A line of our own: id; prompt, prompt_token_ids or messages; and the sampling fields under their
// OpenAI names. A line of OpenAI's batch file: custom_id, method, url, and these in its body.
// null is a field left out. Threads: single-threaded.
class RequestReader {
 public:
  explicit RequestReader(const JobReading& reading, JobFormat format = JobFormat::kLines)
      : reading_(reading), format_(format) {}
  std::variant<Request, LineError> read(std::string_view text, int64_t line);
  // Fields seen so far that were accepted and have no effect.
  const std::set<std::string>& without_effect() const { return without_effect_; }

 private:
  using Element = FieldReader::Element;

  const RequestForm* read_envelope(std::string_view text);
  bool is_left_out(Field field, Element value) const;
  void read_field(Field field, std::string_view name, Element value);
  bool read_sampling(Field field, std::string_view name, Element value);
  void read_batch_prompt(std::string_view name, Element value);
  void read_messages(Element value);
  void read_content(Element content);
  void read_prompt();
  void render();
  void check_tokens();
  void check_together();

  JobReading reading_;
  JobFormat format_;
  FieldReader fields_;
  Request request_;
  std::set<std::string> without_effect_;

  // Of the line being read.
  std::string_view text_;  // of "prompt", inside fields_
  std::string messages_;   // of "messages", as JSON
  int prompts_ = 0;        // fields that give a prompt
  bool has_tokens_ = false, has_messages_ = false;
  bool want_logprobs_ = false;
  int64_t top_logprobs_ = -1;
};

}  // namespace transload::engine
