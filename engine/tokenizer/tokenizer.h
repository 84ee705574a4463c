// Text to token ids and back, with the model's own rules.
#pragma once

#include <cstdint>
#include <memory>
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
  // model's own prefix and suffix (BOS, EOS, where its tokenizer says so) are put around it. What
  // the vocabulary has no token for becomes its unknown token, or is left out where it has none
  // (SmolLM2 lacks some control characters), as in the model's own tokenizer.
  // Errors: kBadInput for a text that is not UTF-8, naming the byte, or of 2 GiB and more.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special) const = 0;
  // The bytes a token stands for; special tokens give their text. Sequences of byte-level tokens
  // may split a UTF-8 character. None for an id beyond the vocabulary: models have more rows than
  // their tokenizers have tokens, so that rows are a round number.
  virtual std::string_view token_bytes(int32_t token) const = 0;
  virtual bool is_special(int32_t token) const = 0;
  virtual int64_t vocab_size() const = 0;
  // True for models that put a space in front of a text when encoding (SentencePiece): decode drops
  // one space at the front.
  virtual bool strips_leading_space() const { return false; }
  // Bytes -> UTF-8: each maximal invalid part becomes U+FFFD, as Python's errors="replace".
  // (Whole-sequence decode = concatenated token_bytes, less a stripped space, through this.)
  std::string decode(std::span<const int32_t> tokens) const;
  // A token as text of its own, repaired alike; no space is stripped.
  std::string token_text(int32_t token) const;
};

// Decodes a growing sequence without ever showing half a character. All that add and finish return,
// put together, equals decode of the whole sequence.
// Threads: single-threaded.
class IncrementalDecoder {
 public:
  // Where the sequence stands: at the begin of a text, as decode takes it, or after one (what
  // follows a prompt keeps its leading space; text = decode(prompt) + what is returned here).
  enum class Place { kTextBegin, kContinuation };
  explicit IncrementalDecoder(const Tokenizer& tokenizer, Place place = Place::kTextBegin);
  // Adds a token and returns the text that is certain now; the rest is kept for later.
  std::string add(int32_t token);
  // The text of what is left (invalid bytes as U+FFFD).
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool strip_next_;
  std::string pending_;
};

// From tokenizer.json, or vocab.json + merges.txt beside the checkpoint, or the GGUF's own vocab.
// Null where the checkpoint has none (such models run on token ids).
// Errors: kUnsupported naming the model kind or rule that is not implemented, kBadInput for damage.
std::unique_ptr<Tokenizer> load_tokenizer(const Checkpoint& checkpoint);

// The files beside the checkpoint that load_tokenizer reads, as far as they are there; none for a
// GGUF.
std::vector<std::string> tokenizer_files(const Checkpoint& checkpoint);

}  // namespace transload::engine
