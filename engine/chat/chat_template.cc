#include "engine/chat/chat_template.h"

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/checkpoint/input_file.h"
#include "engine/checkpoint/nesting.h"
#include "engine/tokenizer/utf8.h"

namespace transload::engine {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLimitBytes = 64 * kMiB;
constexpr std::array<const char*, 7> kSpecialTokens{
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
// GGUF's names ("seperator" is its spelling).
constexpr std::array<std::pair<const char*, const char*>, 6> kGgufTokens{
    {{"bos_token", "tokenizer.ggml.bos_token_id"},
     {"eos_token", "tokenizer.ggml.eos_token_id"},
     {"unk_token", "tokenizer.ggml.unknown_token_id"},
     {"sep_token", "tokenizer.ggml.seperator_token_id"},
     {"pad_token", "tokenizer.ggml.padding_token_id"},
     {"mask_token", "tokenizer.ggml.mask_token_id"}}};

void check_utf8(std::string_view text, const std::string& what) {
  if (find_invalid_utf8(text) == std::string_view::npos) return;
  throw Error(Kind::kBadInput, what + " is not UTF-8; bring it again");
}

std::optional<std::string> read_if_there(const Checkpoint& checkpoint, const char* name) {
  const std::string path = (std::filesystem::path(checkpoint.folder) / name).string();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  std::string text = read_text(path, kLimitBytes);
  check_utf8(text, path);
  return text;
}

Json read_json_if_there(const Checkpoint& checkpoint, const char* name) {
  const std::optional<std::string> text = read_if_there(checkpoint, name);
  if (!text) return Json::object();
  const std::string path = (std::filesystem::path(checkpoint.folder) / name).string();
  Json json = parse_model_json(*text, path);
  if (json.is_object()) return json;
  throw Error(Kind::kBadInput, path + ": is no JSON object; bring the file again");
}

// A token is written as its text, or as an object with its "content"; null leaves it out.
void take_token(const Json& config, const char* name, Json& variables) {
  const auto token = config.find(name);
  if (token == config.end()) return;
  if (token->is_null()) variables.erase(name);
  if (token->is_string()) variables[name] = *token;
  if (!token->is_object()) return;
  const auto content = token->find("content");
  if (content != token->end() && content->is_string()) variables[name] = *content;
}

// The one that is used without tools.
void take_default(const Json& named, ChatTemplate& chat) {
  std::string names;
  for (const Json& entry : named) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) continue;
    if (!entry["name"].is_string() || !entry["template"].is_string()) continue;
    if (entry["name"] == "default") chat.text = entry["template"];
    names += (names.empty() ? "" : ", ") + entry["name"].get<std::string>();
  }
  if (chat.text.empty()) {
    chat.why_none = "the model's chat templates have none named \"default\" (there: " + names + ")";
  }
}

void take_config(const Json& config, ChatTemplate& chat) {
  for (const char* name : kSpecialTokens) take_token(config, name, chat.variables);
  const auto found = config.find("chat_template");
  if (found == config.end()) return;
  if (found->is_string()) chat.text = *found;
  if (found->is_array()) take_default(*found, chat);
}

// As transformers: the older special_tokens_map.json counts, before the configuration, where that
// has no "added_tokens_decoder".
void read_folder(const Checkpoint& checkpoint, ChatTemplate& chat) {
  const Json config = read_json_if_there(checkpoint, "tokenizer_config.json");
  take_config(config, chat);
  if (!config.contains("added_tokens_decoder")) {
    take_config(read_json_if_there(checkpoint, "special_tokens_map.json"), chat);
  }
  if (const auto text = read_if_there(checkpoint, "chat_template.jinja")) {
    chat.text = *text;
    chat.why_none.clear();
  }
}

void read_gguf(const Checkpoint& checkpoint, ChatTemplate& chat) {
  const auto found = checkpoint.metadata.find("tokenizer.chat_template");
  if (found != checkpoint.metadata.end() && found->is_string()) chat.text = *found;
  check_utf8(chat.text, checkpoint.path + ": tokenizer.chat_template");
  const auto tokens = checkpoint.string_arrays.find("tokenizer.ggml.tokens");
  if (tokens == checkpoint.string_arrays.end()) return;
  for (const auto& [name, key] : kGgufTokens) {
    const auto id = checkpoint.metadata.find(key);
    if (id == checkpoint.metadata.end() || !id->is_number_integer()) continue;
    const auto index = id->get<int64_t>();
    if (index < 0 || index >= tokens->second.size()) continue;
    chat.variables[name] = std::string(tokens->second[index]);
  }
}

}  // namespace

ChatTemplate find_chat_template(const Checkpoint& checkpoint) {
  ChatTemplate chat;
  chat.variables = Json::object();
  try {
    checkpoint.kind == Checkpoint::Kind::kGguf ? read_gguf(checkpoint, chat)
                                               : read_folder(checkpoint, chat);
  } catch (const Error& error) {
    chat.text.clear();
    chat.why_none = error.what();
  }
  if (chat.text.empty() && chat.why_none.empty()) chat.why_none = "the model has no chat template";
  return chat;
}

}  // namespace transload::engine
