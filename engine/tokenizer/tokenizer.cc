#include "engine/tokenizer/tokenizer.h"

#include "engine/tokenizer/utf8.h"

namespace transload::engine {

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string bytes;
  for (const int32_t token : tokens) bytes += token_bytes(token);
  std::string_view rest = bytes;
  if (strips_leading_space() && rest.starts_with(' ')) rest.remove_prefix(1);
  std::string text;
  append_repaired(text, rest, /*keep_cut_off=*/false);
  return text;
}

std::string Tokenizer::token_text(int32_t token) const {
  std::string text;
  append_repaired(text, token_bytes(token), /*keep_cut_off=*/false);
  return text;
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, Place place)
    : tokenizer_(&tokenizer),
      strip_next_(place == Place::kTextBegin && tokenizer.strips_leading_space()) {}

std::string IncrementalDecoder::add(int32_t token) {
  std::string_view bytes = tokenizer_->token_bytes(token);
  if (strip_next_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.remove_prefix(1);
    strip_next_ = false;
  }
  pending_ += bytes;
  std::string text;
  pending_.erase(0, append_repaired(text, pending_, /*keep_cut_off=*/true));
  return text;
}

std::string IncrementalDecoder::finish() {
  std::string text;
  append_repaired(text, pending_, /*keep_cut_off=*/false);
  pending_.clear();
  return text;
}

}  // namespace transload::engine
