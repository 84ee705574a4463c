#include "engine/job/records.h"

#include <type_traits>

#include "engine/job/json_text.h"

namespace transload::engine {
namespace {

void append_logprob(std::string& out, int32_t token, float logprob) {
  out += "{\"token_id\":";
  append_json(out, int64_t{token});
  out += ",\"logprob\":";
  append_json(out, logprob);
}

void append_logprobs(std::string& out, const std::vector<Sampled>& tokens) {
  out += ",\"logprobs\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_logprob(out, tokens[i].token, tokens[i].logprob);
    out += ",\"top\":[";
    for (size_t j = 0; j < tokens[i].top.size(); ++j) {
      if (j > 0) out += ',';
      append_logprob(out, tokens[i].top[j].token, tokens[i].top[j].logprob);
      out += '}';
    }
    out += "]}";
  }
  out += ']';
}

template <class Value>
void append_list(std::string& out, const std::vector<Value>& values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    if constexpr (std::is_integral_v<Value>) {
      append_json(out, int64_t{values[i]});
    } else {
      append_json(out, values[i]);
    }
  }
  out += ']';
}

// "text", "token_ids" and "finish_reason" of a sample.
void append_sample(std::string& out, const Completion& sample) {
  out += "\"text\":";
  if (sample.has_text) {
    append_json(out, std::string_view(sample.text));
  } else {
    out += "null";
  }
  out += ",\"token_ids\":";
  append_list(out, sample.tokens);
  out += ",\"finish_reason\":";
  append_json(out, std::string_view(sample.finish_reason));
}

void append_usage(std::string& out, std::span<const Completion> samples) {
  int64_t tokens = 0;
  for (const Completion& sample : samples) tokens += static_cast<int64_t>(sample.tokens.size());
  out += ",\"usage\":{\"prompt_tokens\":";
  append_json(out, samples.front().prompt_tokens);
  out += ",\"completion_tokens\":";
  append_json(out, tokens);
  out += '}';
}

void append_choices(std::string& out, const Request& request, std::span<const Completion> samples) {
  out += "\"choices\":[";
  for (size_t i = 0; i < samples.size(); ++i) {
    out += i > 0 ? ",{\"index\":" : "{\"index\":";
    append_json(out, static_cast<int64_t>(i));
    out += ',';
    append_sample(out, samples[i]);
    if (request.sampling.logprobs >= 0) append_logprobs(out, samples[i].logprobs);
    out += '}';
  }
  out += ']';
}

}  // namespace

void append_record(std::string& out, const Request& request, std::span<const Completion> samples) {
  if (request.format == JobFormat::kBatch) return append_batch_record(out, request, samples);
  out += "{\"id\":" + request.id_json + ",";
  if (request.samples > 1) {
    append_choices(out, request, samples);
    append_usage(out, samples);
  } else {
    append_sample(out, samples.front());
    append_usage(out, samples);
    if (request.sampling.logprobs >= 0) append_logprobs(out, samples.front().logprobs);
  }
  out += '}';
}

void append_record(std::string& out, const std::string& id_json, const Score& score) {
  out += "{\"id\":" + id_json + ",\"logprob_sum\":";
  append_json(out, score.logprob_sum);
  out += ",\"count\":";
  append_json(out, score.count);
  out += score.is_greedy ? ",\"is_greedy\":true" : ",\"is_greedy\":false";
  if (score.write_token_logprobs) {
    out += ",\"token_logprobs\":";
    append_list(out, score.token_logprobs);
  }
  out += '}';
}

void append_record(std::string& out, const LineError& error) {
  if (error.format == JobFormat::kBatch) return append_batch_record(out, error);
  out += "{\"id\":" + error.id_json + ",\"line\":";
  append_json(out, error.line);
  out += ",\"error\":{\"code\":";
  append_json(out, std::string_view(error.code));
  out += ",\"message\":";
  append_json(out, std::string_view(error.message));
  out += "}}";
}

}  // namespace transload::engine
