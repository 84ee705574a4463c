// Text to token ids and back, with the model's own rules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace transload::engine {

// Threads: encode and decode are const and may run on several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Ids of a text. Added and special tokens in the text are recognised; with `add_special` the
  // model's own prefix (BOS, where its tokenizer says so) is put in front.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special) const = 0;
  // The bytes a token stands for; special tokens give their text. Sequences of byte-level tokens
  // may split a UTF-8 character. Errors: kBadInput for an id outside the vocabulary.
  virtual std::string_view token_bytes(int32_t token) const = 0;
  virtual bool is_special(int32_t token) const = 0;
  virtual int64_t vocab_size() const = 0;
  // Bytes -> UTF-8: each maximal invalid part becomes U+FFFD, as Python's errors="replace".
  // (Whole-sequence decode = concatenated token_bytes through this.)
  std::string decode(std::span<const int32_t> tokens) const;
};

// Decodes a growing sequence without ever showing half a character.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // Adds a token and returns the text that is certain now; the rest is kept for later.
  std::string add(int32_t token);
  // The text of what is left (invalid bytes as U+FFFD).
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

// From tokenizer.json, or vocab.json + merges.txt beside the checkpoint, or the GGUF's own vocab.
// Null where the checkpoint has none (such models run on token ids).
// Errors: kUnsupported naming the model kind or rule that is not implemented, kBadInput for damage.
std::unique_ptr<Tokenizer> load_tokenizer(const Checkpoint& checkpoint);

}  // namespace transload::engine
