// OpenAI's batch output objects. Source: its API reference ("The request output object",
// completion and chat completion objects).
#include <charconv>
#include <set>

#include "engine/job/json_text.h"
#include "engine/job/records.h"
#include "engine/tokenizer/utf8.h"

namespace transload::engine {
namespace {

constexpr std::string_view kIdPrefix = "batch_req_";

void append_text(std::string& out, std::string_view text) { append_json(out, text); }

std::string numbered(std::string_view prefix, int64_t line) {
  return std::string(prefix) + std::to_string(line);
}

// A token as a key, where half a character must not be one with another half: "bytes:\xe2\x80".
std::string key_of(const Request& request, int32_t token) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::string_view bytes = request.names->token_bytes(token);
  if (find_invalid_utf8(bytes) == std::string_view::npos) return std::string(bytes);
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

template <class Append>
void append_each(std::string& out, size_t count, const Append& append) {
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    append(i);
  }
}

// Keys differ: where another token is spelled alike (a byte's and a character's), the sampled one,
// else the first, has its spelling and the others have "token_id:29".
void append_top_logprobs(std::string& out, const Request& request, const Sampled& sampled) {
  std::set<std::string> taken{key_of(request, sampled.token)};
  out += '{';
  append_each(out, sampled.top.size(), [&](size_t i) {
    const auto& [token, logprob] = sampled.top[i];
    std::string key = key_of(request, token);
    if (token != sampled.token) {
      if (taken.contains(key)) key = "token_id:" + std::to_string(token);
      while (!taken.insert(key).second) key += '\'';
    }
    append_text(out, key);
    out += ':';
    append_json(out, logprob);
  });
  out += '}';
}

// text_offset counts characters from the begin of the completion.
void append_completion_logprobs(std::string& out, const Request& request,
                                const std::vector<Sampled>& tokens) {
  const auto each = [&](const char* name, const auto& append) {
    out += name;
    append_each(out, tokens.size(), append);
    out += ']';
  };
  each("{\"tokens\":[", [&](size_t i) { append_text(out, key_of(request, tokens[i].token)); });
  each(",\"token_logprobs\":[", [&](size_t i) { append_json(out, tokens[i].logprob); });
  each(",\"top_logprobs\":[", [&](size_t i) { append_top_logprobs(out, request, tokens[i]); });
  int64_t offset = 0;
  each(",\"text_offset\":[", [&](size_t i) {
    append_json(out, offset);
    for (const char c : request.names->token_bytes(tokens[i].token)) {
      offset += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    }
  });
  out += '}';
}

void append_chat_token(std::string& out, const Request& request, int32_t token, float logprob) {
  out += "{\"token\":";
  append_text(out, request.names->token_text(token));
  out += ",\"logprob\":";
  append_json(out, logprob);
  out += ",\"bytes\":[";
  const std::string_view bytes = request.names->token_bytes(token);
  append_each(out, bytes.size(),
              [&](size_t i) { append_json(out, int64_t{static_cast<unsigned char>(bytes[i])}); });
  out += ']';
}

void append_chat_logprobs(std::string& out, const Request& request,
                          const std::vector<Sampled>& tokens) {
  out += "{\"content\":[";
  append_each(out, tokens.size(), [&](size_t i) {
    append_chat_token(out, request, tokens[i].token, tokens[i].logprob);
    out += ",\"top_logprobs\":[";
    append_each(out, tokens[i].top.size(), [&](size_t j) {
      append_chat_token(out, request, tokens[i].top[j].token, tokens[i].top[j].logprob);
      out += '}';
    });
    out += "]}";
  });
  out += "],\"refusal\":null}";
}

void append_choice(std::string& out, const Request& request, const Completion& sample) {
  if (request.is_chat) {
    out += "\"message\":{\"role\":\"assistant\",\"content\":";
    append_text(out, sample.text);
    out += ",\"refusal\":null}";
  } else {
    out += "\"text\":";
    append_text(out, sample.text);
  }
  out += ",\"logprobs\":";
  if (request.sampling.logprobs < 0) {
    out += "null";
  } else if (request.is_chat) {
    append_chat_logprobs(out, request, sample.logprobs);
  } else {
    append_completion_logprobs(out, request, sample.logprobs);
  }
  out += ",\"finish_reason\":";
  append_text(out, sample.finish_reason);
}

void append_body(std::string& out, const Request& request, std::span<const Completion> samples) {
  out += "{\"id\":";
  append_text(out, numbered(request.is_chat ? "chatcmpl-" : "cmpl-", request.line));
  out += request.is_chat ? ",\"object\":\"chat.completion\"" : ",\"object\":\"text_completion\"";
  out += ",\"created\":0,\"model\":";
  append_text(out, request.model);
  out += ",\"choices\":[";
  append_each(out, samples.size(), [&](size_t i) {
    out += "{\"index\":" + std::to_string(i) + ",";
    append_choice(out, request, samples[i]);
    out += '}';
  });
  int64_t tokens = 0;
  for (const Completion& sample : samples) tokens += static_cast<int64_t>(sample.tokens.size());
  const int64_t prompt_tokens = samples.front().prompt_tokens;
  out += "],\"usage\":{\"prompt_tokens\":" + std::to_string(prompt_tokens) +
         ",\"completion_tokens\":" + std::to_string(tokens) +
         ",\"total_tokens\":" + std::to_string(prompt_tokens + tokens) + "}}";
}

// Up to the body.
void append_head(std::string& out, int64_t line, const std::string& id_json, int status) {
  out += "{\"id\":";
  append_text(out, numbered(kIdPrefix, line));
  out += ",\"custom_id\":" + id_json + ",\"response\":{\"status_code\":" + std::to_string(status) +
         ",\"request_id\":";
  append_text(out, numbered("req_", line));
  out += ",\"body\":";
}

}  // namespace

void append_batch_record(std::string& out, const Request& request,
                         std::span<const Completion> samples) {
  append_head(out, request.line, request.id_json, 200);
  append_body(out, request, samples);
  out += "},\"error\":null}";
}

void append_batch_record(std::string& out, const LineError& error) {
  const bool ours = error.code == "internal" || error.code == kChatUnavailable;
  append_head(out, error.line, error.id_json, ours ? 500 : 400);
  out += "{\"error\":{\"message\":";
  append_text(out, error.message);
  out += ours ? ",\"type\":\"server_error\"" : ",\"type\":\"invalid_request_error\"";
  out += ",\"param\":null,\"code\":";
  append_text(out, error.code);
  out += "}}},\"error\":null}";
}

int64_t batch_line(std::string_view id) {
  if (!id.starts_with(kIdPrefix)) return 0;
  id.remove_prefix(kIdPrefix.size());
  int64_t line = 0;
  const auto end = std::from_chars(id.data(), id.data() + id.size(), line);
  return end.ec == std::errc() && end.ptr == id.data() + id.size() ? line : 0;
}

}  // namespace transload::engine
