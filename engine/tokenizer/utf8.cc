#include "engine/tokenizer/utf8.h"

#include <cstring>

namespace transload::engine {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What a leading byte asks for: length, and the range of the second byte (Unicode table 3-7).
struct Lead {
  size_t bytes = 0;
  uint8_t low = 0x80, high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

bool eight_ascii(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Part next_utf8(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const Lead lead = lead_of(first);
  if (lead.bytes == 1) return {Utf8Part::Kind::kCharacter, 1, first};
  if (lead.bytes == 0) return {Utf8Part::Kind::kInvalid, 1, 0};
  char32_t code_point = first & (0x7Fu >> lead.bytes);
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Utf8Part::Kind::kCutOff, i, 0};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Part::Kind::kInvalid, i, 0};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {Utf8Part::Kind::kCharacter, lead.bytes, code_point};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && eight_ascii(text.data() + at)) {
      at += 8;
      continue;
    }
    const Utf8Part part = next_utf8(text.substr(at));
    if (part.kind != Utf8Part::Kind::kCharacter) return at;
    at += part.bytes;
  }
  return std::string_view::npos;
}

size_t append_repaired(std::string& out, std::string_view bytes, bool keep_cut_off) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Part part = next_utf8(bytes.substr(at));
    if (part.kind == Utf8Part::Kind::kCutOff && keep_cut_off) break;
    out += part.kind == Utf8Part::Kind::kCharacter ? bytes.substr(at, part.bytes) : kReplacement;
    at += part.bytes;
  }
  return at;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto c = static_cast<uint32_t>(code_point);
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(static_cast<uint8_t>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace transload::engine
