#include "engine/tokenizer/byte_level.h"

#include <array>

#include "engine/tokenizer/utf8.h"

namespace transload::engine {
namespace {

constexpr bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr uint32_t kCharacters = 0x144;
constexpr int16_t kNoByte = -1;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(kNoByte);
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char32_t character = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Part part = next_utf8(spelling);
    if (part.kind != Utf8Part::Kind::kCharacter || part.code_point >= kCharacters) return {};
    const int16_t byte = kAlphabet.byte[part.code_point];
    if (byte == kNoByte) return {};
    bytes += static_cast<char>(static_cast<uint8_t>(byte));
    spelling.remove_prefix(part.bytes);
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    append_utf8(spelling, kAlphabet.character[static_cast<uint8_t>(byte)]);
  }
  return spelling;
}

}  // namespace transload::engine
