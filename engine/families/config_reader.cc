#include "engine/families/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace transload::engine {
namespace {

using nlohmann::json;

// Keys that never change what is computed at inference.
constexpr auto kHarmless = std::to_array<std::string_view>({"_attn_implementation",
                                                            "_attn_implementation_autoset",
                                                            "_attn_implementation_internal",
                                                            "_experts_implementation",
                                                            "_flash_attn_2_enabled",
                                                            "activation_dropout",
                                                            "architectures",
                                                            "attention_dropout",
                                                            "attention_probs_dropout_prob",
                                                            "attention_softmax_in_fp32",
                                                            "attn_implementation",
                                                            "attn_pdrop",
                                                            "auto_map",
                                                            "chunk_size_feed_forward",
                                                            "classifier_dropout",
                                                            "classifier_dropout_prob",
                                                            "embd_pdrop",
                                                            "hidden_dropout",
                                                            "hidden_dropout_prob",
                                                            "layerdrop",
                                                            "output_attentions",
                                                            "use_flash_attention",
                                                            "use_flash_attention_2",
                                                            "use_flash_attn"});

// Parts of names that speak of what is computed.
constexpr auto kArithmetic = std::to_array<std::string_view>(
    {"activation", "adapter",  "alibi", "attention",       "attn",   "bias",       "clip",
     "conv",       "cross",    "embed", "encoder_decoder", "expert", "hidden_act", "head",
     "layer",      "logit",    "lora",  "mamba",           "mlp",    "moe",        "multiplier",
     "norm",       "position", "quant", "residual",        "rope",   "rotary",     "scal",
     "softcap",    "sparse",   "window"});

bool says_no(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

bool speaks_of_arithmetic(std::string key) {
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(kArithmetic.begin(), kArithmetic.end(),
                     [&](std::string_view part) { return key.find(part) != std::string::npos; });
}

}  // namespace

std::string printed(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

ConfigReader::ConfigReader(const json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) throw Error(Kind::kBadInput, where_ + ": is no JSON object");
}

void ConfigReader::refuse(std::string_view key, std::string_view what) const {
  throw Error(Kind::kBadInput, fmt::format("{}: '{}' {}", where_, key, what));
}

void ConfigReader::refuse_value(std::string_view key, std::string_view supported) const {
  const auto at = object_->find(key);
  throw Error(Kind::kUnsupported,
              fmt::format("{}: '{}' is {}, which is not supported; {}", where_, key,
                          at == object_->end() ? "absent" : printed(*at), supported));
}

const json* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  const auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

int64_t ConfigReader::count(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr) refuse(key, "is missing, which a model needs");
  if (!value->is_number_integer() || *value < 1 || *value > kCountLimit)
    refuse(key, fmt::format("is {} where a count from 1 to {} is expected", printed(*value),
                            kCountLimit));
  return value->get<int64_t>();
}

int64_t ConfigReader::count_or(std::string_view key, int64_t absent) {
  return has(key) ? count(key) : absent;
}

double ConfigReader::number(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr) refuse(key, "is missing, which a model needs");
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    refuse(key, fmt::format("is {} where a number is expected", printed(*value)));
  return value->get<double>();
}

double ConfigReader::number_or(std::string_view key, double absent) {
  return has(key) ? number(key) : absent;
}

double ConfigReader::positive_or(std::string_view key, double absent) {
  const double value = number_or(key, absent);
  if (!(value > 0)) refuse(key, fmt::format("is {} where more than 0 is expected", value));
  return value;
}

bool ConfigReader::flag_or(std::string_view key, bool absent) {
  const json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean())
    refuse(key, fmt::format("is {} where true or false is expected", printed(*value)));
  return value->get<bool>();
}

std::string ConfigReader::text_or(std::string_view key, std::string_view absent) {
  const json* value = find(key);
  if (value == nullptr) return std::string(absent);
  if (!value->is_string())
    refuse(key, fmt::format("is {} where a text is expected", printed(*value)));
  return value->get<std::string>();
}

layout::Activation ConfigReader::activation_or(std::string_view key, std::string_view absent) {
  using layout::Activation;
  const std::string name = text_or(key, absent);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu" || name == "gelu_python") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  // One formula; gelu_fast writes sqrt(2 / pi) with ten digits, the same float32.
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh" ||
      name == "gelu_python_tanh")
    return Activation::kGeluTanh;
  refuse_value(key, "silu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh and relu are");
}

void ConfigReader::require(std::string_view key, const json& only) {
  const json* value = find(key);
  if (value != nullptr && *value != only)
    refuse_value(key, fmt::format("only {} is", printed(only)));
}

void ConfigReader::refuse_unread() const {
  for (const auto& [key, value] : object_->items()) {
    const bool known = read_.contains(key) || says_no(value) ||
                       std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end();
    if (!known && speaks_of_arithmetic(key))
      throw Error(Kind::kUnsupported,
                  fmt::format("{}: '{}' ({}) is not known for this family and may change what the "
                              "model computes; a model that needs it cannot run",
                              where_, key, printed(value)));
  }
}

void ConfigReader::refuse_unread_below(std::string_view prefix) const {
  for (const auto& [key, value] : object_->items())
    if (key.starts_with(prefix) && !read_.contains(key) && !value.is_null())
      throw Error(Kind::kUnsupported,
                  fmt::format("{}: '{}' ({}) is not supported and may change what the model "
                              "computes",
                              where_, key, printed(value)));
}

}  // namespace transload::engine
