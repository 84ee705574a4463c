// The steps of a tokenizer.json beside its model. Errors: as read_tokenizer_json.
#pragma once

#include "engine/tokenizer/json_node.h"
#include "engine/tokenizer/rules.h"

namespace transload::engine {

void read_normalizer(const JsonNode& node, TokenizerRules& rules);
// Sets rules.kind to kByteLevel where the last step is ByteLevel.
void read_pre_tokenizer(const JsonNode& node, TokenizerRules& rules);
void read_post_processor(const JsonNode& node, TokenizerRules& rules);
// Requires: rules.kind is known.
void read_decoder(const JsonNode& node, TokenizerRules& rules);

}  // namespace transload::engine
