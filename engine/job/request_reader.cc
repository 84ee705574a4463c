#include "engine/job/request_reader.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace transload::engine {
namespace {

using Element = FieldReader::Element;
using Range = FieldReader::Range;

constexpr double kInt = 2147483647;
constexpr double kLogprobsLimit = 1000;

enum Field : size_t {
  kId,
  kPrompt,
  kPromptTokenIds,
  kMessages,
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
  kFields
};

constexpr std::array<std::string_view, kFields> kNames{"id",
                                                       "prompt",
                                                       "prompt_token_ids",
                                                       "messages",
                                                       "max_tokens",
                                                       "temperature",
                                                       "top_p",
                                                       "top_k",
                                                       "min_p",
                                                       "repetition_penalty",
                                                       "presence_penalty",
                                                       "frequency_penalty",
                                                       "seed",
                                                       "stop",
                                                       "stop_token_ids",
                                                       "min_tokens",
                                                       "ignore_eos",
                                                       "logprobs"};

// The smallest number above 0 that is accepted where 0 is not.
constexpr double kAboveZero = 1e-300;
constexpr Range kPenalty{-2, 2, "must be from -2 to 2"};

}  // namespace

std::variant<Request, LineError> RequestReader::read(std::string_view text, int64_t line) {
  request_ = Request{};
  request_.line = line;
  request_.sampling = reading_.defaults;
  text_ = {};
  messages_.clear();
  if (fields_.parse(text)) {
    request_.id_json = fields_.id_json();
    request_.stream = id_hash(request_.id_json);
    fields_.for_each_field(kNames, [&](size_t field, Element value) { read_field(field, value); });
  }
  if (!fields_.failed()) read_prompt();
  if (!fields_.failed()) check_together();
  if (fields_.failed()) return fields_.error(line);
  return std::move(request_);
}

void RequestReader::read_field(size_t field, Element value) {
  SamplingOptions& to = request_.sampling;
  const std::string_view name = kNames[field];
  const auto number = [&](const Range& range) { return fields_.number(name, value, range); };
  const auto integer = [&](const Range& range) { return fields_.integer(name, value, range); };
  if (field > kMessages && value.is_null()) return;
  switch (field) {
    case kPrompt:
      text_ = fields_.string(name, value);
      return;
    case kPromptTokenIds:
      request_.prompt = fields_.tokens(name, value, reading_.limits.vocab);
      return;
    case kMessages:
      return read_messages(value);
    case kMaxTokens:
      to.max_tokens = integer({1, kInt, "must be an integer from 1 up"});
      return;
    case kTemperature:
      to.temperature = number({0, 1e300, "must be a number from 0 up"});
      return;
    case kTopP:
      to.top_p = number({kAboveZero, 1, "must be above 0 and at most 1"});
      return;
    case kTopK:
      to.top_k = integer({0, kInt, "must be an integer from 0 up (0: all)"});
      return;
    case kMinP:
      to.min_p = number({0, 1, "must be from 0 to 1"});
      return;
    case kRepetitionPenalty:
      to.repetition_penalty = number({kAboveZero, 1e300, "must be a number above 0"});
      return;
    case kPresencePenalty:
      to.presence_penalty = number(kPenalty);
      return;
    case kFrequencyPenalty:
      to.frequency_penalty = number(kPenalty);
      return;
    case kSeed:
      to.seed = fields_.seed(name, value);
      return;
    case kStop:
      request_.stop = fields_.strings(name, value);
      return;
    case kStopTokenIds:
      request_.stop_tokens = fields_.tokens(name, value, reading_.limits.vocab);
      return;
    case kMinTokens:
      to.min_tokens = integer({0, kInt, "must be an integer from 0 up"});
      return;
    case kIgnoreEos:
      to.ignore_eos = fields_.boolean(name, value);
      return;
    case kLogprobs:
      to.logprobs = integer({0, kLogprobsLimit, "must be an integer from 0 to 1000"});
      return;
    default:
      return;  // the id
  }
}

// What a template gets: text only, and what it needs to know who says it.
void RequestReader::read_messages(Element value) {
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS || list.size() == 0) {
    return fields_.fail_value("messages", value, "must be a list with a message or more");
  }
  for (const Element message : list) {
    Element role;
    Element content;
    if (message["role"].get(role) != simdjson::SUCCESS || !role.is_string()) {
      return fields_.fail_value("messages", message, "each must be an object with a \"role\"");
    }
    const bool has_content = message["content"].get(content) == simdjson::SUCCESS;
    if (has_content && !content.is_string() && !content.is_null()) {
      return fields_.fail_value("content", content, "must be a string; join its parts");
    }
  }
  messages_ = simdjson::minify(value);
}

// The template writes all special tokens itself: none is added.
void RequestReader::render() {
  if (reading_.chat == nullptr) {
    return fields_.fail("chat_template", "chat templates are not used here; give \"prompt\"");
  }
  const ChatRenderer::Result result = reading_.chat->render(messages_);
  if (!result.error.empty()) return fields_.fail("chat_template", result.error);
  request_.prompt = reading_.tokenizer->encode(result.text, false);
}

void RequestReader::read_prompt() {
  const bool has_text = fields_.has_field("prompt");
  const bool has_tokens = fields_.has_field("prompt_token_ids");
  const bool has_messages = fields_.has_field("messages");
  const int given = int{has_text} + int{has_tokens} + int{has_messages};
  if (given == 0) {
    return fields_.fail("missing_prompt",
                        "no prompt; give \"prompt\", \"prompt_token_ids\" or \"messages\"");
  }
  if (given > 1) {
    return fields_.fail("invalid_value",
                        "more than one of \"prompt\", \"prompt_token_ids\" and \"messages\" is "
                        "given; keep one");
  }
  if (!has_tokens && reading_.tokenizer == nullptr) {
    return fields_.fail("invalid_value",
                        std::string("field \"") + (has_text ? "prompt" : "messages") +
                            "\": the model has no tokenizer; give \"prompt_token_ids\"");
  }
  if (has_text) request_.prompt = reading_.tokenizer->encode(text_, true);
  if (has_messages) render();
  if (fields_.failed()) return;
  const auto tokens = static_cast<int64_t>(request_.prompt.size());
  const int64_t room = reading_.limits.max_positions;
  if (tokens == 0) {
    return fields_.fail("invalid_value", "the prompt is empty; give at least one token");
  }
  if (tokens >= room) {
    return fields_.fail("prompt_too_long", "the prompt has " + std::to_string(tokens) +
                                               " tokens and the model's context " +
                                               std::to_string(room) + "; shorten it to at most " +
                                               std::to_string(room - 1));
  }
}

void RequestReader::check_together() {
  SamplingOptions& sampling = request_.sampling;
  if (!request_.stop.empty() && reading_.tokenizer == nullptr) {
    return fields_.fail("invalid_value",
                        "field \"stop\": the model has no tokenizer; give \"stop_token_ids\"");
  }
  if (sampling.min_tokens > sampling.max_tokens) {
    return fields_.fail("invalid_value", "min_tokens " + std::to_string(sampling.min_tokens) +
                                             " is above max_tokens " +
                                             std::to_string(sampling.max_tokens) +
                                             "; lower it or raise max_tokens");
  }
  const int64_t room = reading_.limits.max_positions - static_cast<int64_t>(request_.prompt.size());
  sampling.max_tokens = std::min(sampling.max_tokens, room);
}

}  // namespace transload::engine
