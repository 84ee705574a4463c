#include "engine/job/request_fields.h"

#include <initializer_list>
#include <utility>

namespace transload::engine {
namespace {

using Named = std::pair<std::string_view, Field>;

void add(RequestForm& form, std::initializer_list<Named> fields) {
  for (const auto& [name, field] : fields) {
    form.names.push_back(name);
    form.fields.push_back(field);
  }
}

void add_sampling(RequestForm& form) {
  add(form, {{"n", Field::kSamples},
             {"max_tokens", Field::kMaxTokens},
             {"temperature", Field::kTemperature},
             {"top_p", Field::kTopP},
             {"top_k", Field::kTopK},
             {"min_p", Field::kMinP},
             {"repetition_penalty", Field::kRepetitionPenalty},
             {"presence_penalty", Field::kPresencePenalty},
             {"frequency_penalty", Field::kFrequencyPenalty},
             {"seed", Field::kSeed},
             {"stop", Field::kStop},
             {"stop_token_ids", Field::kStopTokenIds},
             {"min_tokens", Field::kMinTokens},
             {"ignore_eos", Field::kIgnoreEos}});
}

// What a client's body carries besides.
void add_client_fields(RequestForm& form) {
  add(form, {{"model", Field::kModel},
             {"user", Field::kNoEffect},
             {"metadata", Field::kNoEffect},
             {"stream", Field::kMustBeOff}});
}

RequestForm make_line_form() {
  RequestForm form;
  add(form, {{"id", Field::kId},
             {"prompt", Field::kPrompt},
             {"prompt_token_ids", Field::kPromptTokenIds},
             {"messages", Field::kMessages}});
  add_sampling(form);
  add(form, {{"logprobs", Field::kLogprobs}});
  return form;
}

RequestForm make_completion_form() {
  RequestForm form;
  add(form, {{"prompt", Field::kBatchPrompt}});
  add_sampling(form);
  add(form, {{"logprobs", Field::kLogprobs}, {"echo", Field::kMustBeOff}});
  add_client_fields(form);
  return form;
}

RequestForm make_chat_completion_form() {
  RequestForm form;
  add(form, {{"messages", Field::kMessages}});
  add_sampling(form);
  add(form, {{"max_completion_tokens", Field::kMaxTokens},
             {"logprobs", Field::kWantLogprobs},
             {"top_logprobs", Field::kTopLogprobs},
             {"store", Field::kMustBeOff}});
  add_client_fields(form);
  return form;
}

}  // namespace

const RequestForm& line_form() {
  static const RequestForm form = make_line_form();
  return form;
}

const RequestForm& completion_form() {
  static const RequestForm form = make_completion_form();
  return form;
}

const RequestForm& chat_completion_form() {
  static const RequestForm form = make_chat_completion_form();
  return form;
}

}  // namespace transload::engine
