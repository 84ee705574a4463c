// A JSON value together with where it stands, so that every complaint names file and key.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace transload::engine {

// All errors are "FILE: KEY ...". kBadInput: a key is missing or of another type; kUnsupported: a
// key or value that is not implemented.
class JsonNode {
 public:
  // Requires: `value` outlives the node and all made from it.
  JsonNode(const nlohmann::json& value, std::string file)
      : value_(&value), file_(std::move(file)) {}

  JsonNode operator[](std::string_view key) const;           // a key that must be there
  std::optional<JsonNode> find(std::string_view key) const;  // nothing where absent or null
  std::vector<JsonNode> elements() const;                    // of an array
  std::vector<std::string> keys() const;                     // of an object

  std::string string() const;
  bool boolean() const;
  int64_t integer() const;
  bool boolean_or(std::string_view key, bool otherwise) const;

  // Refuses an object with a key that is not in the list.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  [[noreturn]] void refuse(std::string_view what) const;   // kUnsupported
  [[noreturn]] void damaged(std::string_view what) const;  // kBadInput
  const nlohmann::json& value() const { return *value_; }

 private:
  JsonNode(const nlohmann::json& value, const JsonNode& parent, std::string_view step);
  std::string place() const;

  const nlohmann::json* value_;
  std::string file_, path_;
};

}  // namespace transload::engine
