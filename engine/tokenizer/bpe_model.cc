#include "engine/tokenizer/bpe_model.h"

#include "engine/tokenizer/utf8.h"

namespace transload::engine {

void BpeModel::encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const {
  if (ignore_merges_) {
    const int32_t whole = vocabulary_.find(word);
    if (whole != kNoToken) return ids.push_back(whole);
  }
  if (kind_ == TokenizerRules::Kind::kScores) return encode_by_scores(word, ids, scratch);
  scratch.symbols.clear();
  if (kind_ == TokenizerRules::Kind::kByteLevel) {
    encode_by_bytes(word, scratch);
  } else {
    encode_by_characters(word, scratch);
  }
  merge_symbols(scratch.symbols, scratch.merge, [this](const Symbol& left, const Symbol& right) {
    return merges_.find(left.token, right.token);
  });
  for (const Symbol& symbol : scratch.symbols) ids.push_back(symbol.token);
}

// What has no token is the unknown token; without one it is left out.
void BpeModel::add_unknown(std::vector<Symbol>& symbols, uint32_t begin, uint32_t end) const {
  if (unknown_ == kNoToken) return;
  if (fuse_unknown_ && !symbols.empty() && symbols.back().token == unknown_) {
    symbols.back().end = end;
  } else {
    symbols.push_back({unknown_, begin, end});
  }
}

void BpeModel::encode_by_bytes(std::string_view word, Scratch& scratch) const {
  for (uint32_t at = 0; at < word.size(); ++at) {
    const int32_t token = byte_token(word[at]);
    if (token == kNoToken) {
      add_unknown(scratch.symbols, at, at + 1);
    } else {
      scratch.symbols.push_back({token, at, at + 1});
    }
  }
}

bool BpeModel::has_byte_tokens(std::string_view text) const {
  for (const char byte : text) {
    if (byte_token(byte) == kNoToken) return false;
  }
  return byte_fallback_;
}

void BpeModel::encode_by_characters(std::string_view word, Scratch& scratch) const {
  for (uint32_t at = 0; at < word.size();) {
    const auto end = at + static_cast<uint32_t>(next_utf8(word.substr(at)).bytes);
    const std::string_view character = word.substr(at, end - at);
    const int32_t token = vocabulary_.find(character);
    if (token != kNoToken) {
      scratch.symbols.push_back({token, at, end});
    } else if (has_byte_tokens(character)) {
      for (uint32_t i = at; i < end; ++i) {
        scratch.symbols.push_back({byte_token(word[i]), i, i + 1});
      }
    } else {
      add_unknown(scratch.symbols, at, end);
    }
    at = end;
  }
}

// Source: SentencePiece, bpe_model.cc (SampleEncode with alpha 0), also for unused tokens.
void BpeModel::encode_by_scores(std::string_view word, std::vector<int32_t>& ids,
                                Scratch& scratch) const {
  scratch.symbols.clear();
  scratch.unused_left_bytes.clear();
  for (uint32_t at = 0; at < word.size();) {
    const auto bytes = static_cast<uint32_t>(next_utf8(word.substr(at)).bytes);
    scratch.symbols.push_back({vocabulary_.find(word.substr(at, bytes)), at, at + bytes});
    at += bytes;
  }
  const auto lookup = [&](const Symbol& left, const Symbol& right) -> Merge {
    const uint32_t bytes = right.end - left.begin;
    if (bytes > vocabulary_.longest_bytes()) return {};
    const int32_t token = vocabulary_.find(word.substr(left.begin, bytes));
    if (token == kNoToken) return {};
    if (unused_[static_cast<size_t>(token)]) {
      scratch.unused_left_bytes[token] = left.end - left.begin;
    }
    return {score_ranks_[static_cast<size_t>(token)], token};
  };
  HeapMerging(scratch.symbols, scratch.merge, lookup).run();
  for (const Symbol& symbol : scratch.symbols) {
    emit_scored(word.substr(symbol.begin, symbol.end - symbol.begin), ids, scratch);
  }
}

// Requires: text is a token, or one character.
void BpeModel::emit_scored(std::string_view text, std::vector<int32_t>& ids,
                           const Scratch& scratch) const {
  const int32_t token = vocabulary_.find(text);
  if (token != kNoToken) {
    const auto split = scratch.unused_left_bytes.find(token);
    if (split == scratch.unused_left_bytes.end()) return ids.push_back(token);
    emit_scored(text.substr(0, split->second), ids, scratch);
    return emit_scored(text.substr(split->second), ids, scratch);
  }
  if (has_byte_tokens(text)) {
    for (const char byte : text) ids.push_back(byte_token(byte));
  } else if (unknown_ != kNoToken && (!fuse_unknown_ || ids.empty() || ids.back() != unknown_)) {
    ids.push_back(unknown_);
  }
}

}  // namespace transload::engine
