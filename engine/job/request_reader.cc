#include "engine/job/request_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace transload::engine {
namespace {

using Range = FieldReader::Range;

constexpr double kInt = 2147483647;
constexpr double kLogprobsLimit = 1000;
// The smallest number above 0 that is accepted where 0 is not.
constexpr double kAboveZero = 1e-300;
constexpr Range kPenalty{-2, 2, "must be from -2 to 2"};

constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kChatCompletions = "/v1/chat/completions";

}  // namespace

std::variant<Request, LineError> RequestReader::read(std::string_view text, int64_t line) {
  request_ = Request{};
  request_.line = line;
  request_.format = format_;
  request_.sampling = reading_.defaults;
  request_.names = reading_.tokenizer;
  request_.model = reading_.model_name;
  text_ = {};
  messages_.clear();
  prompts_ = 0;
  has_tokens_ = has_messages_ = want_logprobs_ = false;
  top_logprobs_ = -1;
  if (const RequestForm* form = read_envelope(text)) {
    request_.id_json = fields_.id_json();
    request_.stream = id_hash(request_.id_json);
    fields_.for_each_field(form->names, [&](size_t i, Element value) {
      read_field(form->fields[i], form->names[i], value);
    });
  }
  if (!fields_.failed()) read_prompt();
  if (!fields_.failed()) check_together();
  if (fields_.failed()) {
    LineError error = fields_.error(line);
    error.format = format_;
    return error;
  }
  return std::move(request_);
}

// Enters the body of a batch line. Returns the form of what is to be read next; null on failure.
const RequestForm* RequestReader::read_envelope(std::string_view text) {
  constexpr std::array<std::string_view, 4> kNames{"custom_id", "method", "url", "body"};
  if (format_ == JobFormat::kLines) return fields_.parse(text) ? &line_form() : nullptr;
  if (!fields_.parse_object(text) || !fields_.read_id("custom_id")) return nullptr;
  std::string_view method, url;
  fields_.for_each_field(kNames, [&](size_t field, Element value) {
    if (field == 1) method = fields_.string("method", value);
    if (field == 2) url = fields_.string("url", value);
    if (field == 1 && method != "POST") fields_.fail_value("method", value, "must be \"POST\"");
    if (field == 2 && url != kCompletions && url != kChatCompletions) {
      fields_.fail_value("url", value, "must be \"/v1/completions\" or \"/v1/chat/completions\"");
    }
  });
  if (!fields_.failed() && (method.empty() || url.empty())) {
    fields_.fail("invalid_value", std::string("no field \"") + (method.empty() ? "method" : "url") +
                                      "\"; a line of a batch file has custom_id, method, url and "
                                      "body");
  }
  if (fields_.failed() || !fields_.enter("body")) return nullptr;
  request_.is_chat = url == kChatCompletions;
  return request_.is_chat ? &chat_completion_form() : &completion_form();
}

// Null leaves a field out; a prompt, where another field gives it.
bool RequestReader::is_left_out(Field field, Element value) const {
  if (field == Field::kId || !value.is_null()) return false;
  constexpr std::array<std::string_view, 3> kPrompts{"prompt", "prompt_token_ids", "messages"};
  return field > Field::kMessages || std::ranges::any_of(kPrompts, [&](std::string_view name) {
           return fields_.has_value(name);
         });
}

// NOLINTNEXTLINE(readability-function-size): one case a field
void RequestReader::read_field(Field field, std::string_view name, Element value) {
  if (is_left_out(field, value)) return;
  prompts_ += field > Field::kId && field <= Field::kMessages ? 1 : 0;
  if (read_sampling(field, name, value)) return;
  switch (field) {
    case Field::kPrompt:
      text_ = fields_.string(name, value);
      return;
    case Field::kPromptTokenIds:
      has_tokens_ = true;
      request_.prompt = fields_.tokens(name, value, reading_.limits.vocab);
      return;
    case Field::kBatchPrompt:
      return read_batch_prompt(name, value);
    case Field::kMessages:
      return read_messages(value);
    case Field::kSamples:
      request_.samples = static_cast<int32_t>(
          fields_.integer(name, value, {1, kMaxSamples, "must be an integer from 1 to 128"}));
      return;
    case Field::kStop:
      request_.stop = fields_.strings(name, value);
      return;
    case Field::kStopTokenIds:
      request_.stop_tokens = fields_.tokens(name, value, reading_.limits.vocab);
      return;
    case Field::kWantLogprobs:
      want_logprobs_ = fields_.boolean(name, value);
      return;
    case Field::kTopLogprobs:
      top_logprobs_ =
          fields_.integer(name, value, {0, kLogprobsLimit, "must be an integer from 0 to 1000"});
      return;
    case Field::kModel:
      request_.model = fields_.string(name, value);
      without_effect_.emplace(name);
      return;
    case Field::kNoEffect:
      without_effect_.emplace(name);
      return;
    case Field::kMustBeOff:
      if (fields_.boolean(name, value)) fields_.fail_value(name, value, "must be false here");
      return;
    default:
      return;  // the id
  }
}

// False where the field is none of these.
// NOLINTNEXTLINE(readability-function-size): one case a field
bool RequestReader::read_sampling(Field field, std::string_view name, Element value) {
  SamplingOptions& to = request_.sampling;
  const auto number = [&](const Range& range) { return fields_.number(name, value, range); };
  const auto integer = [&](const Range& range) { return fields_.integer(name, value, range); };
  switch (field) {
    case Field::kMaxTokens:
      if (name != "max_tokens" && fields_.has_value("max_tokens")) {
        fields_.fail_value(name, value, "max_tokens is there too; keep one");
      }
      to.max_tokens = integer({1, kInt, "must be an integer from 1 up"});
      return true;
    case Field::kTemperature:
      to.temperature = number({0, 1e300, "must be a number from 0 up"});
      return true;
    case Field::kTopP:
      to.top_p = number({kAboveZero, 1, "must be above 0 and at most 1"});
      return true;
    case Field::kTopK:
      to.top_k = integer({0, kInt, "must be an integer from 0 up (0: all)"});
      return true;
    case Field::kMinP:
      to.min_p = number({0, 1, "must be from 0 to 1"});
      return true;
    case Field::kRepetitionPenalty:
      to.repetition_penalty = number({kAboveZero, 1e300, "must be a number above 0"});
      return true;
    case Field::kPresencePenalty:
      to.presence_penalty = number(kPenalty);
      return true;
    case Field::kFrequencyPenalty:
      to.frequency_penalty = number(kPenalty);
      return true;
    case Field::kSeed:
      to.seed = fields_.seed(name, value);
      return true;
    case Field::kMinTokens:
      to.min_tokens = integer({0, kInt, "must be an integer from 0 up"});
      return true;
    case Field::kIgnoreEos:
      to.ignore_eos = fields_.boolean(name, value);
      return true;
    case Field::kLogprobs:
      to.logprobs = integer({0, kLogprobsLimit, "must be an integer from 0 to 1000"});
      return true;
    default:
      return false;
  }
}

// OpenAI's "prompt": a string or token ids; a list of one string is that string.
void RequestReader::read_batch_prompt(std::string_view name, Element value) {
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS) {
    text_ = fields_.string(name, value);
    return;
  }
  const size_t size = list.size();
  if (size == 1 && list.at(0).is_string()) {
    text_ = fields_.string(name, list.at(0).value_unsafe());
  } else if (size > 0 && !list.at(0).is_string() && !list.at(0).is_array()) {
    has_tokens_ = true;
    request_.prompt = fields_.tokens(name, value, reading_.limits.vocab);
  } else {
    fields_.fail_value(name, value, "must be a string or token ids; write one prompt a line");
  }
}

// A string, null, or a list of text parts; the template gets it as it is.
void RequestReader::read_content(Element content) {
  simdjson::dom::array parts;
  if (content.is_string() || content.is_null()) return;
  if (content.get(parts) != simdjson::SUCCESS) {
    return fields_.fail_value("content", content, "must be a string or a list of text parts");
  }
  for (const Element part : parts) {
    Element type;
    Element text;
    if (part["type"].get(type) != simdjson::SUCCESS || !type.is_string()) {
      return fields_.fail("invalid_value",
                          "field \"content\": each part must be an object with a string \"type\"");
    }
    if (type.get_string().value_unsafe() != "text") {
      return fields_.fail_value("type", type, "a part of \"content\" must be \"text\" here");
    }
    if (part["text"].get(text) != simdjson::SUCCESS || !text.is_string()) {
      return fields_.fail("invalid_value",
                          "field \"content\": a part of type \"text\" needs a string \"text\"");
    }
  }
}

// What a template gets: text only, and what it needs to know who says it.
void RequestReader::read_messages(Element value) {
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS) {
    return fields_.fail_value("messages", value, "must be a list with a message or more");
  }
  if (list.size() == 0) {
    return fields_.fail("invalid_value", "field \"messages\" is empty; give a message or more");
  }
  size_t index = 0;
  for (const Element message : list) {
    Element role;
    Element content;
    const std::string name = "messages[" + std::to_string(index++) + "]";
    if (!message.is_object()) return fields_.fail_value(name, message, "must be an object");
    if (message["role"].get(role) != simdjson::SUCCESS || !role.is_string()) {
      return fields_.fail("invalid_value",
                          "field \"" + name + "\": no string \"role\"; add who says it");
    }
    if (message["content"].get(content) == simdjson::SUCCESS) read_content(content);
    if (fields_.failed()) return;
  }
  has_messages_ = true;
  messages_ = simdjson::minify(value);
}

// The template writes all special tokens itself: none is added.
void RequestReader::render() {
  if (reading_.chat == nullptr) {
    return fields_.fail("chat_template", "chat templates are not used here; give \"prompt\"");
  }
  const ChatRenderer::Result result = reading_.chat->render(messages_);
  if (!result.error.empty()) {
    return fields_.fail(result.is_unavailable ? kChatUnavailable : "chat_template", result.error);
  }
  check(reading_.tokenizer != nullptr, "messages are read with a tokenizer");
  request_.prompt = reading_.tokenizer->encode(result.text, false);
}

void RequestReader::read_prompt() {
  if (prompts_ == 0) {
    const char* const what =
        format_ == JobFormat::kLines
            ? "no prompt; give \"prompt\", \"prompt_token_ids\" or \"messages\""
            : (request_.is_chat ? "no \"messages\"" : "no \"prompt\"");
    return fields_.fail("missing_prompt", what);
  }
  if (prompts_ > 1) {
    return fields_.fail("invalid_value",
                        "more than one of \"prompt\", \"prompt_token_ids\" and \"messages\" is "
                        "given; keep one");
  }
  if (reading_.tokenizer == nullptr && format_ == JobFormat::kBatch) {
    return fields_.fail("invalid_value",
                        "the model has no tokenizer and a batch record is text; write lines "
                        "{\"id\", \"prompt_token_ids\"}");
  }
  if (reading_.tokenizer == nullptr && !has_tokens_) {
    return fields_.fail("invalid_value",
                        std::string("field \"") + (has_messages_ ? "messages" : "prompt") +
                            "\": the model has no tokenizer; give \"prompt_token_ids\"");
  }
  if (has_messages_) {
    render();
  } else if (!has_tokens_) {
    request_.prompt = reading_.tokenizer->encode(text_, true);
  }
  if (!fields_.failed()) check_tokens();
}

void RequestReader::check_tokens() {
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
  if (top_logprobs_ >= 0 && !want_logprobs_) {
    return fields_.fail("invalid_value", "top_logprobs needs \"logprobs\": true");
  }
  if (want_logprobs_) sampling.logprobs = std::max<int64_t>(top_logprobs_, 0);
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
