// The byte alphabet of byte-level BPE: each byte is spelled as one printable character.
// Source: GPT-2's bytes_to_unicode: printable Latin-1 stands for itself, the other 68 bytes are
// U+0100 to U+0143 in order (so a space is U+0120).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace transload::engine {

// The bytes a spelling stands for; nothing if a character is outside the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

// Requires: nothing; any bytes can be spelled.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace transload::engine
