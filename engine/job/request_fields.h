// The fields that each form of a request may have.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace transload::engine {

enum class Field {
  kId,
  kPrompt,
  kPromptTokenIds,
  kBatchPrompt,  // a string, or a list of token ids
  kMessages,
  kSamples,
  kMaxTokens,
  kTemperature,
  kTopP,
  kTopK,
  kMinP,
  kRepetitionPenalty,
  kPresencePenalty,
  kFrequencyPenalty,
  kSeed,
  kStop,
  kStopTokenIds,
  kMinTokens,
  kIgnoreEos,
  kLogprobs,
  kWantLogprobs,  // chat: whether there are logprobs at all
  kTopLogprobs,
  kModel,
  kNoEffect,  // accepted, and said so
  kMustBeOff,
};

// names[i] stands for fields[i].
struct RequestForm {
  std::vector<std::string_view> names;
  std::vector<Field> fields;
};

const RequestForm& line_form();             // {"id", "prompt", ...}
const RequestForm& completion_form();       // the body of a batch line for /v1/completions
const RequestForm& chat_completion_form();  // and for /v1/chat/completions

}  // namespace transload::engine
