// A tokenizer as its files describe it: plain data, the same whichever files it came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tokenizer/vocabulary.h"

namespace transload::engine {

// Token ids are below this everywhere, so that a damaged file cannot ask for all of memory.
inline constexpr int32_t kMaxVocabulary = 1 << 24;

// A token that is found in the text before anything else is done to it.
struct AddedToken {
  std::string text;
  int32_t id = kNoToken;
  bool special = false;      // a control token, not part of the text's meaning
  bool left_strip = false;   // takes the white space before it along
  bool right_strip = false;  // and the white space after it
  bool single_word = false;  // only where no word character touches it
  bool normalized = false;   // looked for in the normalized text, itself normalized
};

struct NormalizeRule {
  enum class Kind { kNfc, kPrepend, kReplace };
  Kind kind{};
  std::string text;  // kPrepend: what is put in front; kReplace: what is looked for
  std::string with;  // kReplace
};

// Cuts each piece of text at the matches of a pattern, or puts a space in front of it.
struct SplitRule {
  enum class Kind { kPattern, kPrefixSpace };
  Kind kind{};
  std::string pattern;       // in Oniguruma's syntax, as tokenizer.json has it
  bool keep_matches = true;  // as pieces of their own
  bool keep_gaps = true;
};

struct TokenizerRules {
  // How tokens are spelled and words begin. kByteLevel: bytes in GPT-2's alphabet. kText: UTF-8,
  // spaces as U+2581. kScores: as kText, but instead of a list of merges any two neighbours whose
  // text together is a token merge, the one with the best score first (SentencePiece).
  enum class Kind { kByteLevel, kText, kScores };

  Kind kind{};
  std::string source;  // the file, for errors
  StringTable tokens;  // of the model by id; an empty string where there is none
  StringTable merges;  // two strings a merge, in order of rank
  std::vector<AddedToken> added;
  std::vector<NormalizeRule> normalize;
  std::vector<SplitRule> split;
  std::vector<int32_t> prefix, suffix;  // put around a text when asked for

  int32_t unknown = kNoToken;  // for what has no token; none: left out, as tokenizers does
  bool fuse_unknown = false;   // neighbouring unknown characters are one token
  bool ignore_merges = false;  // a word that is a token is not merged from its bytes
  bool byte_fallback = false;  // kText, kScores: characters without a token become <0xXX> tokens
  bool decode_bytes = false;   // <0xXX> tokens stand for their byte
  bool decode_spaces = false;  // U+2581 stands for a space
  bool strip_leading_space = false;

  // kScores, by id.
  std::vector<float> scores;
  std::vector<bool> mergeable;  // normal, user-defined and unused tokens
  std::vector<bool> unused;     // taken apart again where merging ends in one
};

}  // namespace transload::engine
