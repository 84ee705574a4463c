// One JSON object a line, field by field, with errors that name field, value and what to do.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/job/line.h"

namespace transload::engine {

// Buffers are kept from line to line (up to 1 MiB). The first failure stands; after it every
// reading function returns an empty value. Threads: single-threaded.
class FieldReader {
 public:
  using Element = simdjson::dom::element;
  struct Range {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    const char* rule = "";  // "must be 0 or more"
  };

  // Parses a line and checks its UTF-8. False on failure; where a number of the line is too large,
  // the failure names its field and has the id.
  bool parse_object(std::string_view text);
  // Reads the id of the object: "id", a string or an integer, or "custom_id", a string. False on
  // failure.
  bool read_id(std::string_view name = "id");
  // Goes on with the object that is a field of this one. False on failure.
  bool enter(std::string_view name);
  bool parse(std::string_view text) { return parse_object(text) && read_id(); }
  // Calls visit(i, value) for each field in turn, where names[i] is the field's name. Fails for a
  // name that is not there, one that comes twice, and stops at the first failure.
  void for_each_field(std::span<const std::string_view> names,
                      const std::function<void(size_t, Element)>& visit);
  bool has_field(std::string_view name) const;
  bool has_value(std::string_view name) const;  // there, and not null

  const std::string& id_json() const { return id_json_; }
  bool failed() const { return !code_.empty(); }
  void fail(std::string_view code, std::string message);
  // Fails with `field "name" is VALUE: rule`.
  void fail_value(std::string_view name, Element value, std::string_view rule);
  LineError error(int64_t line) const { return {line, id_json_, code_, message_}; }

  double number(std::string_view name, Element value, const Range& range);
  int64_t integer(std::string_view name, Element value, const Range& range);
  uint64_t seed(std::string_view name, Element value);  // any 64-bit integer, signed or not
  bool boolean(std::string_view name, Element value);
  std::string_view string(std::string_view name, Element value);
  // A list of integers in [0, below).
  std::vector<int32_t> tokens(std::string_view name, Element value, int64_t below);
  // A string or a list of strings, none empty.
  std::vector<std::string> strings(std::string_view name, Element value);

 private:
  void fail_unknown(std::string_view key, std::span<const std::string_view> names);
  void fail_syntax(simdjson::error_code error);

  simdjson::dom::parser parser_;
  std::string padded_;
  simdjson::dom::object object_;
  std::string id_json_;
  std::string code_;
  std::string message_;
};

}  // namespace transload::engine
