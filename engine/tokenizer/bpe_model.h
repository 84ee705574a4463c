// The tables of byte-pair encoding, and words to token ids by them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "engine/tokenizer/merge_symbols.h"
#include "engine/tokenizer/merges.h"
#include "engine/tokenizer/rules.h"
#include "engine/tokenizer/vocabulary.h"

namespace transload::engine {

// The bytes that each of the model's tokens stands for, by id (`rules.tokens` decoded).
StringTable decoded_tokens(const TokenizerRules& rules);
// The bytes that one spelling stands for.
std::string decoded_token(const TokenizerRules& rules, std::string_view spelling);

// Invariant: each merge's three tokens exist.
// Memory: the strings, 6 bytes or so a token to find it, 16 to 40 a merge.
// Threads: encode is const and may run on several threads, each with its own Scratch.
class BpeModel {
 public:
  struct Scratch {
    MergeScratch merge;
    std::vector<Symbol> symbols;
    // kScores: how an unused token came about: bytes of its left part.
    std::map<int32_t, uint32_t> unused_left_bytes;
  };

  // Reads the fields of `rules` but added, normalize and split. Errors: kBadInput naming the file
  // and the token or merge that contradicts the others, kUnsupported for byte_fallback over a
  // byte-level vocabulary that lacks bytes.
  explicit BpeModel(const TokenizerRules& rules);

  // Appends the ids of a word. Requires: word is UTF-8 and below 4 GiB.
  void encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const;

 private:
  void fill_byte_tokens(const TokenizerRules& rules);
  void fill_merges(const TokenizerRules& rules);
  void fill_score_ranks(const TokenizerRules& rules);
  void encode_by_bytes(std::string_view word, Scratch& scratch) const;
  void encode_by_characters(std::string_view word, Scratch& scratch) const;
  void encode_by_scores(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const;
  void emit_scored(std::string_view text, std::vector<int32_t>& ids, const Scratch& scratch) const;
  void add_unknown(std::vector<Symbol>& symbols, uint32_t begin, uint32_t end) const;
  bool has_byte_tokens(std::string_view text) const;
  int32_t byte_token(char byte) const { return byte_tokens_[static_cast<uint8_t>(byte)]; }

  TokenizerRules::Kind kind_;
  int32_t unknown_;
  bool fuse_unknown_, ignore_merges_, byte_fallback_;
  Vocabulary vocabulary_;  // kByteLevel: bytes; else spellings
  MergeTable merges_;
  std::array<int32_t, 256> byte_tokens_{};  // of a byte, or of <0xXX>
  std::vector<uint32_t> score_ranks_;       // kScores, by id; equal for equal scores
  std::vector<bool> unused_;                // kScores, by id
};

}  // namespace transload::engine
