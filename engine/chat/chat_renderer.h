// Chat messages to a prompt, by the model's own template.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/chat/chat_template.h"
#include "engine/chat/helper_process.h"

namespace transload::engine {

// Renders as transformers' apply_chat_template with add_generation_prompt=True. The template runs
// in real Jinja2, in a Python process of its own that is started at the first call; a process that
// ends on its own is started once more. Without a template, Python or Jinja2 each call says so.
// Threads: single-threaded.
class ChatRenderer {
 public:
  struct Result {
    std::string text;
    std::string error;  // empty: `text` is the prompt; else one line with the template's line
    bool is_unavailable = false;  // the error is of Python, Jinja2 or their process
  };
  // `now` as "2024-07-26T10:00:00" is what strftime_now prints. Requires: it is a date.
  ChatRenderer(ChatTemplate chat, std::string now);

  // `messages_json`: a JSON list of objects on one line.
  Result render(std::string_view messages_json);
  // What renders: interpreter and Jinja2's version. Empty before the first call.
  const std::string& description() const { return description_; }
  // Whether render() was called.
  bool used() const { return used_; }

 private:
  void start();
  bool start_with(const std::string& python);
  Result render_once(std::string_view messages_json);

  ChatTemplate chat_;
  std::string now_;
  bool used_ = false;
  std::string description_;
  std::string why_none_;     // no template can be used, whatever this machine has
  std::string unavailable_;  // why there is no helper, and will be none
  HelperProcess helper_;
};

// Now, as ChatRenderer takes it (local time).
std::string chat_now();
// Whether a text is such a moment: "2024-07-26" or "2024-07-26T10:00:00".
bool is_chat_moment(const std::string& text);

}  // namespace transload::engine
