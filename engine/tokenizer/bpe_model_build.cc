// How the tables of BpeModel are made from a model's rules.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/shown.h"

namespace transload::engine {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte of a spelling <0xXX>, or -1.
int named_byte(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  const int high = hex_digit(spelling[3]), low = hex_digit(spelling[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool is_byte_level(const TokenizerRules& rules) {
  return rules.kind == TokenizerRules::Kind::kByteLevel;
}

// The tokens that words can become, under the strings that find them.
Vocabulary make_vocabulary(const TokenizerRules& rules) {
  Vocabulary vocabulary(is_byte_level(rules) ? decoded_tokens(rules) : rules.tokens);
  for (int32_t id = 0; id < rules.tokens.size(); ++id) {
    const std::string_view spelling = rules.tokens[id];
    if (spelling.empty()) continue;
    // A spelling outside the byte alphabet cannot come from bytes: an added token, or one out of
    // use.
    if (is_byte_level(rules) && !bytes_of_spelling(spelling)) continue;
    if (!rules.mergeable.empty() && !rules.mergeable[static_cast<size_t>(id)]) continue;
    if (!vocabulary.insert(id)) {
      throw Error(Kind::kBadInput,
                  fmt::format("{}: token {} ({}) is in the vocabulary twice; the file is damaged",
                              rules.source, id, shown(spelling)));
    }
  }
  return vocabulary;
}

}  // namespace

std::string decoded_token(const TokenizerRules& rules, std::string_view spelling) {
  if (is_byte_level(rules)) {
    return bytes_of_spelling(spelling).value_or(std::string(spelling));
  }
  const int byte = rules.decode_bytes ? named_byte(spelling) : -1;
  if (byte >= 0) return std::string(1, static_cast<char>(static_cast<uint8_t>(byte)));
  return rules.decode_spaces ? replace_all(spelling, kSpaceMark, " ") : std::string(spelling);
}

StringTable decoded_tokens(const TokenizerRules& rules) {
  StringTable decoded;
  decoded.bytes.reserve(rules.tokens.bytes.size());
  decoded.ends.reserve(rules.tokens.ends.size());
  for (int64_t id = 0; id < rules.tokens.size(); ++id) {
    append(decoded, decoded_token(rules, rules.tokens[id]));
  }
  return decoded;
}

BpeModel::BpeModel(const TokenizerRules& rules)
    : kind_(rules.kind),
      unknown_(rules.unknown),
      fuse_unknown_(rules.fuse_unknown),
      ignore_merges_(rules.ignore_merges),
      byte_fallback_(rules.byte_fallback),
      vocabulary_(make_vocabulary(rules)),
      merges_(rules.merges.size() / 2),
      unused_(rules.unused) {
  fill_byte_tokens(rules);
  if (kind_ == TokenizerRules::Kind::kScores) {
    fill_score_ranks(rules);
  } else {
    fill_merges(rules);
  }
}

void BpeModel::fill_byte_tokens(const TokenizerRules& rules) {
  byte_tokens_.fill(kNoToken);
  if (is_byte_level(rules)) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(static_cast<uint8_t>(byte));
      byte_tokens_[byte] = vocabulary_.find({&text, 1});
      if (byte_tokens_[byte] == kNoToken && byte_fallback_) {
        throw Error(Kind::kUnsupported,
                    fmt::format("{}: model.byte_fallback is not implemented for a byte-level "
                                "vocabulary without byte {:#04x}",
                                rules.source, byte));
      }
    }
    return;
  }
  for (int32_t id = 0; id < rules.tokens.size(); ++id) {
    const int byte = named_byte(rules.tokens[id]);
    if (byte < 0 || rules.tokens[id] != fmt::format("<0x{:02X}>", byte)) continue;
    byte_tokens_[static_cast<size_t>(byte)] = id;
  }
}

void BpeModel::fill_merges(const TokenizerRules& rules) {
  const auto spelled = [&](int64_t index) -> std::string {
    const std::string_view part = rules.merges[index];
    if (!is_byte_level(rules)) return std::string(part);
    // An empty string, which is no token, where the spelling is outside the alphabet.
    return bytes_of_spelling(part).value_or("");
  };
  for (int64_t i = 0; i < rules.merges.size() / 2; ++i) {
    const std::string left = spelled(2 * i), right = spelled(2 * i + 1);
    const int32_t left_token = vocabulary_.find(left), right_token = vocabulary_.find(right);
    const int32_t token = vocabulary_.find(left + right);
    if (left_token == kNoToken || right_token == kNoToken || token == kNoToken) {
      throw Error(
          Kind::kBadInput,
          fmt::format("{}: merge {} ({}, {}) names or makes a token that is not in the "
                      "vocabulary; vocabulary and merges are not of one model",
                      rules.source, i, shown(rules.merges[2 * i]), shown(rules.merges[2 * i + 1])));
    }
    merges_.insert(left_token, right_token, {static_cast<uint32_t>(i), token});
  }
}

void BpeModel::fill_score_ranks(const TokenizerRules& rules) {
  std::vector<float> best_first = rules.scores;
  for (size_t id = 0; id < best_first.size(); ++id) {
    if (!std::isnan(best_first[id])) continue;
    throw Error(Kind::kBadInput,
                fmt::format("{}: the score of token {} is not a number", rules.source, id));
  }
  std::sort(best_first.begin(), best_first.end(), std::greater<>());
  best_first.erase(std::unique(best_first.begin(), best_first.end()), best_first.end());
  for (const float score : rules.scores) {
    const auto at = std::lower_bound(best_first.begin(), best_first.end(), score, std::greater<>());
    score_ranks_.push_back(static_cast<uint32_t>(at - best_first.begin()));
  }
}

}  // namespace transload::engine
