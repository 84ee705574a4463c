// UTF-8 as the tokenizers need it: checking, reading, and repair as Python's errors="replace".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace transload::engine {

// How the bytes at the front of a text read: a whole character, the beginning of one that the text
// ends in, or bytes that begin none. `bytes` is its length, for invalid ones that of the maximal
// invalid part (Unicode 3.9, "U+FFFD substitution of maximal subparts").
struct Utf8Part {
  enum class Kind { kCharacter, kCutOff, kInvalid };
  Kind kind{};
  size_t bytes = 0;
  char32_t code_point = 0;  // of a whole character
};

// Requires: text is not empty.
Utf8Part next_utf8(std::string_view text);

// Position of the first byte that is not valid UTF-8 (a cut-off end included), or npos.
size_t find_invalid_utf8(std::string_view text);

// Appends bytes, each maximal invalid part as U+FFFD, and returns how many were taken: all, or with
// `keep_cut_off` all but the beginning of a character at the end.
size_t append_repaired(std::string& out, std::string_view bytes, bool keep_cut_off);

// Requires: a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace transload::engine
