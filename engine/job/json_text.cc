#include "engine/job/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace transload::engine {
namespace {

template <class Number>
void append_number(std::string& out, Number value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  out.append(text.data(), end.ptr);
}

void append_escape(std::string& out, unsigned char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  out += "\\u00";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

}  // namespace

void append_json(std::string& out, std::string_view text) {
  out += '"';
  size_t plain = 0;  // start of the run that needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, plain, i - plain);
    append_escape(out, c);
    plain = i + 1;
  }
  out.append(text, plain, text.size() - plain);
  out += '"';
}

void append_json(std::string& out, int64_t value) { append_number(out, value); }

void append_json(std::string& out, float value) {
  check(std::isfinite(value), "JSON has no such number");
  append_number(out, value);
}

void append_json(std::string& out, double value) {
  check(std::isfinite(value), "JSON has no such number");
  append_number(out, value);
}

}  // namespace transload::engine
