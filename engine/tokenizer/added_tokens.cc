#include "engine/tokenizer/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "engine/tokenizer/utf8.h"

namespace transload::engine {
namespace {

bool is_word(char32_t character) {
  const auto c = static_cast<UChar32>(character);
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool is_space(char32_t character) {
  return u_hasBinaryProperty(static_cast<UChar32>(character), UCHAR_WHITE_SPACE);
}

// Requires: text is UTF-8 and not empty.
char32_t last_character(std::string_view text, size_t& begin) {
  begin = text.size() - 1;
  while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return next_utf8(text.substr(begin)).code_point;
}

size_t begin_of_trailing_space(std::string_view text) {
  size_t begin = 0;
  while (!text.empty() && is_space(last_character(text, begin))) text = text.substr(0, begin);
  return text.size();
}

size_t end_of_leading_space(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const Utf8Part part = next_utf8(text.substr(end));
    if (!is_space(part.code_point)) break;
    end += part.bytes;
  }
  return end;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  size_t unused = 0;
  return (begin == 0 || !is_word(last_character(text.substr(0, begin), unused))) &&
         (end == text.size() || !is_word(next_utf8(text.substr(end)).code_point));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.text.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  for (const AddedToken& token : tokens_) begins_[static_cast<uint8_t>(token.text[0])] = true;
}

// Narrows the sorted tokens byte by byte to those that the text could still be; the shortest of
// these stands first.
const AddedToken* AddedTokenFinder::longest_at(std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();
  for (size_t i = 0; first != last; ++i) {
    if (first->text.size() == i) longest = &*first++;
    while (first != last && first->text.size() == i) ++first;
    if (i == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto byte_at = [i](const AddedToken& token) {
      return static_cast<uint8_t>(token.text[i]);
    };
    first = std::partition_point(first, last, [&](const auto& t) { return byte_at(t) < byte; });
    last = std::partition_point(first, last, [&](const auto& t) { return byte_at(t) == byte; });
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text,
                             const std::function<void(std::string_view, int32_t id)>& part) const {
  size_t done = 0, at = 0;  // handed over up to done; searched up to at
  while (at < text.size()) {
    const AddedToken* token =
        begins_[static_cast<uint8_t>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->text.size();
    at = end;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->left_strip) begin = std::max(done, begin_of_trailing_space(text.substr(0, begin)));
    if (token->right_strip) end += end_of_leading_space(text.substr(end));
    if (done < begin) part(text.substr(done, begin - done), kNoToken);
    part({}, token->id);
    done = end;
  }
  if (done < text.size()) part(text.substr(done), kNoToken);
}

}  // namespace transload::engine
