#include "engine/job/field_reader.h"

#include <cmath>

#include "engine/job/json_text.h"
#include "engine/job/wide_number.h"

namespace transload::engine {
namespace {

using Element = FieldReader::Element;

constexpr size_t kKeptBytes = 1024 * 1024;  // of the buffers between lines
constexpr size_t kShownBytes = 60;          // of a value in a message

int hex_value(std::string_view four) {
  int value = 0;
  for (const char c : four) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return four.size() == 4 ? value : -1;
}

// Whether JSON text escapes half of a surrogate pair.
bool has_lone_surrogate(std::string_view text) {
  const auto unit = [&](size_t at) {  // of an escape \uXXXX at `at`, or -1
    return text.substr(std::min(at, text.size()), 2) == "\\u" ? hex_value(text.substr(at + 2, 4))
                                                              : -1;
  };
  const auto is_low = [](int value) { return value >= 0xDC00 && value <= 0xDFFF; };
  for (size_t i = text.find('\\'); i != std::string_view::npos; i = text.find('\\', i)) {
    const int value = unit(i);
    if (is_low(value)) return true;
    const bool is_high = value >= 0xD800 && value <= 0xDBFF;
    if (is_high && !is_low(unit(i + 6))) return true;
    i += is_high ? 12 : 2;
  }
  return false;
}

// A value as it stands in a message: short, whole characters.
std::string shown(Element value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = simdjson::minify(value);
  if (!value.is_string() || text.size() <= kShownBytes) return text;
  size_t end = kShownBytes;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...\"";
}

}  // namespace

void FieldReader::fail(std::string_view code, std::string message) {
  if (failed()) return;
  code_ = code;
  message_ = std::move(message);
}

void FieldReader::fail_value(std::string_view name, Element value, std::string_view rule) {
  fail("invalid_value",
       "field \"" + std::string(name) + "\" is " + shown(value) + ": " + std::string(rule));
}

void FieldReader::fail_syntax(simdjson::error_code error) {
  if (error == simdjson::STRING_ERROR && has_lone_surrogate(padded_)) {
    return fail("invalid_utf8",
                "a string holds half of a surrogate pair (\\ud800 to \\udfff); write both halves "
                "or remove it");
  }
  if (error == simdjson::NUMBER_ERROR) {
    if (const auto wide = find_wide_number(padded_)) {
      id_json_ = wide->id_json;
      return fail("invalid_value", "field \"" + wide->field + "\" is " +
                                       wide->text.substr(0, kShownBytes) +
                                       ": no number of 64 bits holds it; give a smaller one");
    }
  }
  fail("invalid_json", std::string("not JSON (") + simdjson::error_message(error) +
                           "); write one JSON object a line");
}

bool FieldReader::parse_object(std::string_view text) {
  code_.clear();
  message_.clear();
  id_json_ = "null";
  if (parser_.capacity() > kKeptBytes) parser_ = simdjson::dom::parser();
  if (padded_.capacity() > kKeptBytes) std::string().swap(padded_);
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    fail("invalid_utf8", "the line is not valid UTF-8; save the file as UTF-8");
    return false;
  }
  padded_.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  padded_ = text;
  Element root;
  auto error = parser_.parse(padded_.data(), padded_.size(), false).get(root);
  if (error != simdjson::SUCCESS) {
    fail_syntax(error);
  } else if (root.get(object_) != simdjson::SUCCESS) {
    fail("invalid_json", "the line is " + shown(root) + "; write one JSON object a line");
  }
  return !failed();
}

bool FieldReader::read_id(std::string_view name) {
  const bool integers = name == "id";
  const char* const kinds = integers ? "a string or an integer" : "a string";
  Element id;
  if (object_[name].get(id) != simdjson::SUCCESS) {
    fail("missing_id",
         "no field \"" + std::string(name) + "\"; add one, " + kinds + ", of its own");
    return false;
  }
  int64_t small = 0;
  uint64_t large = 0;
  if (id.is_string()) {
    const std::string_view text = string(name, id);
    if (failed()) return false;
    id_json_.clear();
    append_json(id_json_, text);
  } else if (integers && id.get(small) == simdjson::SUCCESS) {
    id_json_ = std::to_string(small);
  } else if (integers && id.get(large) == simdjson::SUCCESS) {
    id_json_ = std::to_string(large);
  } else {
    fail_value(name, id, std::string("must be ") + kinds);
  }
  return !failed();
}

bool FieldReader::enter(std::string_view name) {
  Element value;
  if (object_[name].get(value) != simdjson::SUCCESS) {
    fail("invalid_value", "no field \"" + std::string(name) + "\"; add it, an object");
  } else if (value.get(object_) != simdjson::SUCCESS) {
    fail_value(name, value, "must be an object");
  }
  return !failed();
}

bool FieldReader::has_field(std::string_view name) const {
  return object_[name].error() == simdjson::SUCCESS;
}

bool FieldReader::has_value(std::string_view name) const {
  Element value;
  return object_[name].get(value) == simdjson::SUCCESS && !value.is_null();
}

void FieldReader::fail_unknown(std::string_view key, std::span<const std::string_view> names) {
  std::string known;
  for (const std::string_view name : names) {
    known += known.empty() ? "" : ", ";
    known += name;
  }
  const bool is_shown = key.size() <= kShownBytes;
  fail("unknown_field", "field \"" + std::string(is_shown ? key : "...") +
                            "\" is not known; remove it (known: " + known + ")");
}

void FieldReader::for_each_field(std::span<const std::string_view> names,
                                 const std::function<void(size_t, Element)>& visit) {
  std::vector<bool> seen(names.size(), false);
  for (const auto& [key, value] : object_) {
    size_t i = 0;
    while (i < names.size() && names[i] != key) ++i;
    if (i == names.size()) {
      fail_unknown(key, names);
    } else if (seen[i]) {
      fail_value(key, value, "the field is there twice; keep one");
    } else {
      seen[i] = true;
      visit(i, value);
    }
    if (failed()) return;
  }
}

double FieldReader::number(std::string_view name, Element value, const Range& range) {
  double result = 0;
  if (!value.is_number() || value.get(result) != simdjson::SUCCESS || !(result >= range.low) ||
      !(result <= range.high)) {
    fail_value(name, value, range.rule);
    return 0;
  }
  return result;
}

int64_t FieldReader::integer(std::string_view name, Element value, const Range& range) {
  int64_t result = 0;
  if (value.get(result) != simdjson::SUCCESS || static_cast<double>(result) < range.low ||
      static_cast<double>(result) > range.high) {
    fail_value(name, value, range.rule);
    return 0;
  }
  return result;
}

uint64_t FieldReader::seed(std::string_view name, Element value) {
  int64_t small = 0;
  uint64_t large = 0;
  if (value.get(small) == simdjson::SUCCESS) return static_cast<uint64_t>(small);
  if (value.get(large) != simdjson::SUCCESS) {
    fail_value(name, value, "must be an integer of 64 bits");
  }
  return large;
}

bool FieldReader::boolean(std::string_view name, Element value) {
  bool result = false;
  if (value.get(result) != simdjson::SUCCESS) fail_value(name, value, "must be true or false");
  return result;
}

std::string_view FieldReader::string(std::string_view name, Element value) {
  std::string_view result;
  if (value.get(result) != simdjson::SUCCESS) {
    fail_value(name, value, "must be a string");
    return {};
  }
  return result;
}

std::vector<int32_t> FieldReader::tokens(std::string_view name, Element value, int64_t below) {
  simdjson::dom::array list;
  std::vector<int32_t> result;
  if (value.get(list) != simdjson::SUCCESS) {
    fail_value(name, value, "must be a list of token ids");
    return result;
  }
  const std::string rule = "must hold token ids from 0 to " + std::to_string(below - 1);
  const Range range{0, static_cast<double>(below - 1), rule.c_str()};
  for (const Element item : list) {
    result.push_back(static_cast<int32_t>(integer(name, item, range)));
    if (failed()) return {};
  }
  return result;
}

std::vector<std::string> FieldReader::strings(std::string_view name, Element value) {
  simdjson::dom::array list;
  std::vector<std::string> result;
  const auto add = [&](Element item) {
    if (!item.is_string()) return fail_value(name, item, "must be a string or a list of strings");
    result.emplace_back(string(name, item));
    if (result.back().empty()) fail_value(name, item, "must not be empty");
  };
  if (value.get(list) != simdjson::SUCCESS) {
    add(value);
    return result;
  }
  for (const Element item : list) {
    add(item);
    if (failed()) return {};
  }
  return result;
}

}  // namespace transload::engine
