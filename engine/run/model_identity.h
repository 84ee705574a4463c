// What of a model decides the answers of a job, as short texts for OUT.state.
#pragma once

#include <string>
#include <vector>

#include "engine/chat/chat_template.h"
#include "engine/checkpoint/checkpoint.h"

namespace transload::engine {

struct ModelIdentity {
  std::string weights;        // names, formats and places, and the files' sizes and times
  std::string config;         // config.json
  std::string tokenizer;      // contents of its files, without the chat templates in them
  std::string chat_template;  // text and variables, or why there is none
  std::string end_tokens;     // the ids, or a hash of many
};

// Shapes, extents and the files' sizes and times: cheap, and different for different weights.
// Errors: kIo.
std::string weights_identity(const layout::Model& model);

// Reads all of the tokenizer's files. Errors: kIo, kBadInput.
ModelIdentity identify(const Checkpoint& checkpoint, const layout::Model& model,
                       const ChatTemplate& chat, const std::vector<int32_t>& end_tokens);

}  // namespace transload::engine
