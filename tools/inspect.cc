// transload inspect: what a checkpoint holds.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "engine/chat/chat_template.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/command.h"

namespace transload::tools {
namespace {

using engine::Checkpoint;
using engine::TensorInfo;
using nlohmann::json;

struct Options {
  std::string path;
  bool as_json = false;
  bool tensors = false;
};

// The model, or why it cannot run here.
struct Loaded {
  std::optional<layout::Model> model;
  std::string reason;
};

Loaded try_load(const Checkpoint& checkpoint) {
  try {
    return {engine::load_model(checkpoint), ""};
  } catch (const Error& error) {
    if (error.kind() != Kind::kUnsupported) throw;
    return {std::nullopt, error.what()};
  }
}

json describe_model(const layout::Model& model) {
  const layout::DecoderSpec& spec = model.spec;
  int64_t parameters = 0;
  for (const layout::Weight& weight : model.weights) parameters += weight.rows * weight.cols;
  return {{"name", model.name},
          {"family", spec.family},
          {"layers", spec.layers},
          {"hidden", spec.hidden},
          {"heads", spec.heads},
          {"kv_heads", spec.kv_heads},
          {"head_dim", spec.head_dim},
          {"ffn", spec.ffn},
          {"vocab", spec.vocab},
          {"embed_dim", spec.embed_dim},
          {"context", spec.max_positions},
          {"tied_head", spec.tied_head},
          {"parameters", parameters},
          {"weight_bytes", model.weight_bytes()}};
}

// An id that the files give, or null.
json id_of(const json& object, const std::string& key) {
  const auto id = object.find(key);
  const bool sound = id != object.end() && id->is_number_integer() && *id >= 0 && *id <= INT32_MAX;
  return sound ? *id : json();
}

// `name`, "bos_token" or "eos_token", as transformers knows it: the tokenizer's files say its text
// (or that there is none); config.json says its id where a checkpoint has no tokenizer.
json token_of(const Checkpoint& checkpoint, const engine::ChatTemplate& chat,
              const engine::Tokenizer* tokenizer, const char* name) {
  if (checkpoint.kind == Checkpoint::Kind::kGguf)
    return id_of(checkpoint.metadata, fmt::format("tokenizer.ggml.{}_id", name));
  if (chat.variables.empty()) return id_of(checkpoint.config, fmt::format("{}_id", name));
  const auto text = chat.variables.find(name);
  if (text == chat.variables.end() || !text->is_string()) return {};
  if (tokenizer == nullptr) return id_of(checkpoint.config, fmt::format("{}_id", name));
  const auto ids = tokenizer->encode(text->get<std::string>(), /*add_special=*/false);
  return ids.size() == 1 ? json(ids[0]) : json();
}

// Null where it is not needed, or cannot be read.
std::unique_ptr<engine::Tokenizer> tokenizer_of(const Checkpoint& checkpoint) try {
  return checkpoint.kind == Checkpoint::Kind::kGguf ? nullptr : engine::load_tokenizer(checkpoint);
} catch (const Error&) {
  return nullptr;
}

void describe_tokens(const Checkpoint& checkpoint, json& out) {
  const engine::ChatTemplate chat = engine::find_chat_template(checkpoint);
  out["end_tokens"] = engine::end_tokens(checkpoint);
  const auto tokenizer = tokenizer_of(checkpoint);
  for (const char* name : {"bos_token", "eos_token"})
    out[name] = token_of(checkpoint, chat, tokenizer.get(), name);
  if (chat.text.empty()) return;
  out["chat_template"] = {{"text", chat.text}, {"variables", chat.variables}};
}

json describe(const Checkpoint& checkpoint, const Options& options) {
  json out = {{"path", checkpoint.path},
              {"kind", checkpoint.kind == Checkpoint::Kind::kGguf ? "gguf" : "safetensors"},
              {"files", checkpoint.files},
              {"tensors", checkpoint.tensors.size()}};
  describe_tokens(checkpoint, out);
  const Loaded loaded = try_load(checkpoint);
  out["supported"] = loaded.model.has_value();
  if (loaded.model)
    out["model"] = describe_model(*loaded.model);
  else
    out["reason"] = loaded.reason;
  std::map<std::string, int64_t> formats;
  for (const TensorInfo& tensor : checkpoint.tensors)
    formats[std::string(quant::name(tensor.format))] += tensor.extent.bytes;
  out["bytes_by_format"] = formats;
  if (!options.tensors) return out;
  out["tensor_list"] = json::array();
  for (const TensorInfo& tensor : checkpoint.tensors)
    out["tensor_list"].push_back({{"name", tensor.name},
                                  {"format", quant::name(tensor.format)},
                                  {"shape", tensor.shape},
                                  {"file", tensor.extent.file},
                                  {"offset", tensor.extent.offset},
                                  {"bytes", tensor.extent.bytes}});
  return out;
}

std::string count_of(const json& value) { return value.dump(); }

void print_model(const json& model) {
  const auto at = [&](const char* key) { return count_of(model[key]); };
  fmt::print("  model        {} ({})\n", model["name"].get<std::string>(),
             model["family"].get<std::string>());
  fmt::print(
      "  shape        {} layers, hidden {}, {} heads of {}, {} KV heads, ffn {}, vocabulary {}\n",
      at("layers"), at("hidden"), at("heads"), at("head_dim"), at("kv_heads"), at("ffn"),
      at("vocab"));
  if (model["embed_dim"] != model["hidden"])
    fmt::print("  embedding    {} wide, projected\n", at("embed_dim"));
  fmt::print("  context      {} tokens\n", at("context"));
  fmt::print("  head         {}\n",
             model["tied_head"].get<bool>() ? "tied to the embedding" : "separate");
  fmt::print("  parameters   {} in {}\n", at("parameters"),
             format_bytes(model["weight_bytes"].get<int64_t>()));
}

void print_text(const json& out) {
  fmt::print("{}\n  kind         {}, {} tensors\n", out["path"].get<std::string>(),
             out["kind"].get<std::string>(), count_of(out["tensors"]));
  for (const json& file : out["files"]) fmt::print("  file         {}\n", file.get<std::string>());
  if (out["supported"].get<bool>())
    print_model(out["model"]);
  else
    fmt::print("  cannot run   {}\n", out["reason"].get<std::string>());
  for (const auto& [format, bytes] : out["bytes_by_format"].items())
    fmt::print("  {:<12} {}\n", format, format_bytes(bytes.get<int64_t>()));
  fmt::print("  BOS token    {}\n", out["bos_token"].is_null() ? "none" : out["bos_token"].dump());
  fmt::print("  end tokens   {}\n", out["end_tokens"].empty() ? "none" : out["end_tokens"].dump());
  fmt::print("  chat         {}\n",
             out.contains("chat_template") ? "has a template" : "no template");
  if (!out.contains("tensor_list")) return;
  for (const json& tensor : out["tensor_list"])
    fmt::print("  {:<6} {:>12}  {}  {}\n", tensor["format"].get<std::string>(),
               format_bytes(tensor["bytes"].get<int64_t>()), tensor["name"].get<std::string>(),
               tensor["shape"].dump());
}

void run(const Options& options) {
  const json out = describe(engine::open_checkpoint(options.path), options);
  if (options.as_json)
    fmt::print("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace));
  else
    print_text(out);
}

}  // namespace

void add_inspect(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("inspect", "Says what a checkpoint holds.");
  const auto options = std::make_shared<Options>();
  command->add_option("path", options->path, "A folder with safetensors, or a .gguf file")
      ->required();
  command->add_flag("--json", options->as_json, "As JSON");
  command->add_flag("--tensors", options->tensors, "Also every tensor");
  command->callback([options, &status] {
    run(*options);
    status = 0;
  });
}

}  // namespace transload::tools
