// The chat template that a checkpoint carries.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoint/checkpoint.h"

namespace transload::engine {

struct ChatTemplate {
  std::string text;          // Jinja; empty: there is none
  std::string why_none;      // set where there is none
  nlohmann::json variables;  // "bos_token", "eos_token" and the like, as far as the model has them
};

// Of chat_template.jinja, else tokenizer_config.json's chat_template (a string, or a list of named
// ones of which "default" is taken), else a GGUF's tokenizer.chat_template. A file that cannot be
// read or is not JSON or UTF-8 is no error here, for prompts need none: why_none names it.
ChatTemplate find_chat_template(const Checkpoint& checkpoint);

}  // namespace transload::engine
