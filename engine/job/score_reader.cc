#include "engine/job/score_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace transload::engine {
namespace {

enum Field : size_t {
  kId,
  kPrompt,
  kContinuation,
  kPromptTokenIds,
  kContinuationTokenIds,
  kText,
  kTokenIds,
  kFields
};

constexpr std::array<std::string_view, kFields> kNames{
    "id",   "prompt",   "continuation", "prompt_token_ids", "continuation_token_ids",
    "text", "token_ids"};

// Bytes without the white space at the end, as Python's str.rstrip() sees it.
size_t stripped_bytes(std::string_view text) {
  constexpr std::array<std::string_view, 29> kSpaces{" ",
                                                     "\t",
                                                     "\n",
                                                     "\v",
                                                     "\f",
                                                     "\r",
                                                     "\x1c",
                                                     "\x1d",
                                                     "\x1e",
                                                     "\x1f",
                                                     "\xC2\x85",
                                                     "\xC2\xA0",
                                                     "\xE1\x9A\x80",
                                                     "\xE2\x80\x80",
                                                     "\xE2\x80\x81",
                                                     "\xE2\x80\x82",
                                                     "\xE2\x80\x83",
                                                     "\xE2\x80\x84",
                                                     "\xE2\x80\x85",
                                                     "\xE2\x80\x86",
                                                     "\xE2\x80\x87",
                                                     "\xE2\x80\x88",
                                                     "\xE2\x80\x89",
                                                     "\xE2\x80\x8A",
                                                     "\xE2\x80\xA8",
                                                     "\xE2\x80\xA9",
                                                     "\xE2\x80\xAF",
                                                     "\xE2\x81\x9F",
                                                     "\xE3\x80\x80"};
  for (;;) {
    const auto space = std::find_if(kSpaces.begin(), kSpaces.end(),
                                    [&](std::string_view s) { return text.ends_with(s); });
    if (space == kSpaces.end()) return text.size();
    text.remove_suffix(space->size());
  }
}

}  // namespace

std::vector<ScoreWindow> score_windows(int64_t tokens, int64_t window, int64_t stride) {
  if (window < 2 || stride < 1 || stride > window) {
    throw Error(Kind::kUsage, "window " + std::to_string(window) + " and stride " +
                                  std::to_string(stride) +
                                  ": give a window of at least 2 tokens and a stride from 1 to the "
                                  "window");
  }
  std::vector<ScoreWindow> windows;
  int64_t held = 0;  // tokens that a window held already
  for (int64_t begin = 0; held < tokens; begin += stride) {
    const int64_t end = std::min(begin + window, tokens);
    const int64_t first = std::max(begin + 1, held);
    if (first < end) windows.push_back({begin, end, first});
    held = end;
  }
  return windows;
}

PromptAndContinuation encode_pair(const Tokenizer& tokenizer, std::string_view prompt,
                                  std::string_view continuation) {
  const std::string whole = std::string(prompt) + std::string(continuation);
  PromptAndContinuation pair;
  pair.prompt = tokenizer.encode(prompt.substr(0, stripped_bytes(prompt)), true);
  const std::vector<int32_t> tokens = tokenizer.encode(whole, true);
  const size_t from = std::min(pair.prompt.size(), tokens.size());
  pair.continuation.assign(tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.end());
  return pair;
}

ScoreReader::ScoreReader(const ScoreReading& reading) : reading_(reading) {
  if (reading_.window == 0) reading_.window = reading_.limits.max_positions;
  if (reading_.stride == 0) reading_.stride = reading_.window;
  score_windows(0, reading_.window, reading_.stride);
  if (reading_.window > reading_.limits.max_positions) {
    throw Error(Kind::kUsage,
                "window " + std::to_string(reading_.window) + " is above the model's context of " +
                    std::to_string(reading_.limits.max_positions) + " tokens; give a smaller one");
  }
}

std::variant<ScoreRequest, LineError> ScoreReader::read(std::string_view text, int64_t line) {
  request_ = ScoreRequest{};
  request_.line = line;
  prompt_ = continuation_ = text_ = {};
  if (fields_.parse(text)) {
    request_.id_json = fields_.id_json();
    fields_.for_each_field(
        kNames, [&](size_t field, FieldReader::Element value) { read_field(field, value); });
  }
  if (!fields_.failed()) check_form();
  if (!fields_.failed()) {
    if (fields_.has_field("prompt")) {
      take_pair(encode_pair(*reading_.tokenizer, prompt_, continuation_));
    } else if (fields_.has_field("prompt_token_ids")) {
      take_pair({std::move(prompt_tokens_), std::move(continuation_tokens_)});
    } else {
      take_text(fields_.has_field("text") ? reading_.tokenizer->encode(text_, true)
                                          : std::move(text_tokens_));
    }
  }
  if (fields_.failed()) return fields_.error(line);
  return std::move(request_);
}

void ScoreReader::read_field(size_t field, FieldReader::Element value) {
  const std::string_view name = kNames[field];
  const int64_t vocab = reading_.limits.vocab;
  switch (field) {
    case kPrompt:
      prompt_ = fields_.string(name, value);
      return;
    case kContinuation:
      continuation_ = fields_.string(name, value);
      return;
    case kText:
      text_ = fields_.string(name, value);
      return;
    case kPromptTokenIds:
      prompt_tokens_ = fields_.tokens(name, value, vocab);
      return;
    case kContinuationTokenIds:
      continuation_tokens_ = fields_.tokens(name, value, vocab);
      return;
    case kTokenIds:
      text_tokens_ = fields_.tokens(name, value, vocab);
      return;
    default:
      return;  // the id
  }
}

// Exactly one of the four forms.
void ScoreReader::check_form() {
  size_t given = 0;  // a bit a field
  for (size_t field = kPrompt; field < kFields; ++field) {
    if (fields_.has_field(kNames[field])) given |= size_t{1} << field;
  }
  const auto bits = [](size_t a, size_t b) { return size_t{1} << a | size_t{1} << b; };
  const bool is_text = given == bits(kPrompt, kContinuation) || given == bits(kText, kText);
  const bool is_tokens =
      given == bits(kPromptTokenIds, kContinuationTokenIds) || given == bits(kTokenIds, kTokenIds);
  if (!is_text && !is_tokens) {
    fields_.fail(given == 0 ? "missing_prompt" : "invalid_value",
                 "give \"prompt\" and \"continuation\", or \"prompt_token_ids\" and "
                 "\"continuation_token_ids\", or \"text\", or \"token_ids\", and nothing else");
  } else if (is_text && reading_.tokenizer == nullptr) {
    fields_.fail("invalid_value", "the model has no tokenizer; give token ids");
  }
}

void ScoreReader::take_pair(PromptAndContinuation pair) {
  if (pair.prompt.empty() || pair.continuation.empty()) {
    return fields_.fail("invalid_value",
                        "prompt and continuation must have at least one token each; give more");
  }
  const auto first = static_cast<int64_t>(pair.prompt.size());
  request_.tokens = std::move(pair.prompt);
  request_.tokens.insert(request_.tokens.end(), pair.continuation.begin(), pair.continuation.end());
  const auto tokens = static_cast<int64_t>(request_.tokens.size());
  if (tokens > reading_.limits.max_positions) {
    return fields_.fail("prompt_too_long",
                        "prompt and continuation have " + std::to_string(tokens) +
                            " tokens and the model's context " +
                            std::to_string(reading_.limits.max_positions) + "; shorten them");
  }
  request_.windows.push_back({0, tokens, first});
}

void ScoreReader::take_text(std::vector<int32_t> tokens) {
  if (tokens.size() < 2) {
    return fields_.fail("invalid_value", "the text has " + std::to_string(tokens.size()) +
                                             " tokens; give at least 2 (the first is not scored)");
  }
  request_.windows =
      score_windows(static_cast<int64_t>(tokens.size()), reading_.window, reading_.stride);
  request_.tokens = std::move(tokens);
}

}  // namespace transload::engine
