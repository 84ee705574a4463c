// Reads a model configuration and notices what nobody read.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "layout/decoder_spec.h"

namespace transload::engine {

// One JSON object, values by key. Every key asked for counts as read; refuse_unread then names a
// key that was not read and may change the arithmetic. A key whose value is null counts as absent.
// `where` begins error texts. Threads: one.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string where);

  // The value, or null where the key is absent.
  const nlohmann::json* find(std::string_view key);
  bool has(std::string_view key) { return find(key) != nullptr; }

  // Errors (all): kBadInput naming the key where the value has another type, or is absent and no
  // default is given. Counts are from 1 to `kCountLimit`.
  int64_t count(std::string_view key);
  int64_t count_or(std::string_view key, int64_t absent);
  double number(std::string_view key);
  double number_or(std::string_view key, double absent);
  bool flag_or(std::string_view key, bool absent);
  std::string text_or(std::string_view key, std::string_view absent);
  // A positive finite number.
  double positive_or(std::string_view key, double absent);
  layout::Activation activation_or(std::string_view key, std::string_view absent);

  // Errors: kUnsupported where the key has another value than `only`.
  void require(std::string_view key, const nlohmann::json& only);

  // Errors: kUnsupported naming a key that was not read, is no known harmless one, and whose name
  // speaks of arithmetic, unless its value says "no" (null, false, empty).
  void refuse_unread() const;
  // Errors: kUnsupported naming any key below `prefix` that was not read.
  void refuse_unread_below(std::string_view prefix) const;

  const std::string& where() const { return where_; }
  [[noreturn]] void refuse(std::string_view key, std::string_view what) const;
  [[noreturn]] void refuse_value(std::string_view key, std::string_view supported) const;

  static constexpr int64_t kCountLimit = int64_t{1} << 28;

 private:
  const nlohmann::json* object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

// A value as it is printed in error texts.
std::string printed(const nlohmann::json& value);

}  // namespace transload::engine
