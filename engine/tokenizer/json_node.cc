#include "engine/tokenizer/json_node.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/tokenizer/shown.h"

namespace transload::engine {
namespace {

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_[]";

}  // namespace

JsonNode::JsonNode(const nlohmann::json& value, const JsonNode& parent, std::string_view step)
    : value_(&value), file_(parent.file_), path_(parent.path_) {
  if (!path_.empty() && !step.starts_with('[')) path_ += '.';
  // Keys that are no plain names (a map of tokens) are quoted.
  const bool plain = step.find_first_not_of(kNameCharacters) == std::string_view::npos;
  path_ += plain ? std::string(step) : shown(step);
}

std::string JsonNode::place() const {
  return path_.empty() ? file_ : fmt::format("{}: {}", file_, path_);
}

void JsonNode::refuse(std::string_view what) const {
  throw Error(Kind::kUnsupported, fmt::format("{}: {} is not implemented", place(), what));
}

void JsonNode::damaged(std::string_view what) const {
  throw Error(Kind::kBadInput, fmt::format("{}: {}; the file is damaged", place(), what));
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) damaged("expected an object");
  const auto at = value_->find(key);
  if (at == value_->end() || at->is_null()) return std::nullopt;
  return JsonNode(*at, *this, key);
}

JsonNode JsonNode::operator[](std::string_view key) const {
  const auto found = find(key);
  if (!found) damaged(fmt::format("{} is missing", shown(key)));
  return *found;
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) damaged("expected an array");
  std::vector<JsonNode> elements;
  for (size_t i = 0; i < value_->size(); ++i) {
    elements.push_back(JsonNode((*value_)[i], *this, fmt::format("[{}]", i)));
  }
  return elements;
}

std::vector<std::string> JsonNode::keys() const {
  if (!value_->is_object()) damaged("expected an object");
  std::vector<std::string> keys;
  for (const auto& item : value_->items()) keys.push_back(item.key());
  return keys;
}

std::string JsonNode::string() const {
  if (!value_->is_string()) damaged("expected a string");
  return value_->get<std::string>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) damaged("expected true or false");
  return value_->get<bool>();
}

int64_t JsonNode::integer() const {
  if (!value_->is_number_integer()) damaged("expected an integer");
  return value_->get<int64_t>();
}

bool JsonNode::boolean_or(std::string_view key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->boolean() : otherwise;
}

void JsonNode::allow_only(std::initializer_list<std::string_view> allowed) const {
  for (const std::string& key : keys()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      refuse(fmt::format("the key {}", shown(key)));
    }
  }
}

}  // namespace transload::engine
