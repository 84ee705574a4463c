#include "engine/tokenizer/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/shown.h"
#include "engine/tokenizer/utf8.h"

namespace transload::engine {
namespace {

std::vector<AddedToken> raw_tokens(const TokenizerRules& rules) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : rules.added) {
    if (!token.normalized) tokens.push_back(token);
  }
  return tokens;
}

std::vector<AddedToken> normalized_tokens(const TokenizerRules& rules) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : rules.added) {
    if (!token.normalized) continue;
    tokens.push_back(token);
    tokens.back().text = normalize(rules.normalize, token.text);
  }
  return tokens;
}

[[noreturn]] void refuse_added(const TokenizerRules& rules, const AddedToken& token,
                               const std::string& why) {
  throw Error(Kind::kBadInput, fmt::format("{}: added token {} with id {} {}; the file is damaged",
                                           rules.source, shown(token.text), token.id, why));
}

// Added tokens by id, as the vocabulary's own spellings are.
std::vector<std::string_view> added_by_id(const TokenizerRules& rules) {
  auto count = static_cast<size_t>(rules.tokens.size());
  for (const AddedToken& token : rules.added) {
    if (token.id < 0 || token.id >= kMaxVocabulary) refuse_added(rules, token, "is out of range");
    count = std::max(count, static_cast<size_t>(token.id) + 1);
  }
  std::vector<std::string_view> texts(count);
  for (const AddedToken& token : rules.added) {
    std::string_view& text = texts[static_cast<size_t>(token.id)];
    const bool in_model = token.id < rules.tokens.size() && !rules.tokens[token.id].empty();
    if (in_model && rules.tokens[token.id] != token.text) {
      refuse_added(rules, token,
                   fmt::format("is {} in the vocabulary", shown(rules.tokens[token.id])));
    }
    if (!text.empty() && text != token.text) {
      refuse_added(rules, token, fmt::format("shares it with {}", shown(text)));
    }
    text = token.text;
  }
  return texts;
}

}  // namespace

// The state of one call of encode.
struct BpeTokenizer::Run {
  const BpeTokenizer& self;
  std::vector<int32_t> ids{};
  BpeModel::Scratch scratch{};
  Splitter::Scratch split_scratch = self.splitter_.scratch();

  void text(std::string_view text) {
    self.raw_added_.split(text, [this](std::string_view part, int32_t id) {
      if (id != kNoToken) return ids.push_back(id);
      if (self.normalize_.empty()) return normalized(part);
      normalized(normalize(self.normalize_, part));
    });
  }

  void normalized(std::string_view text) {
    self.normalized_added_.split(text, [this](std::string_view part, int32_t id) {
      if (id != kNoToken) return ids.push_back(id);
      self.splitter_.split(part, split_scratch, [this](std::string_view word) {
        self.model_.encode(word, ids, scratch);
      });
    });
  }
};

BpeTokenizer::BpeTokenizer(const TokenizerRules& rules)
    : source_(rules.source),
      strip_leading_space_(rules.strip_leading_space),
      prefix_(rules.prefix),
      suffix_(rules.suffix),
      normalize_(rules.normalize),
      model_(rules),
      raw_added_(raw_tokens(rules)),
      normalized_added_(normalized_tokens(rules)),
      splitter_(rules.split, rules.source) {
  fill_bytes(rules);
  for (const auto& around : {prefix_, suffix_}) {
    for (const int32_t token : around) check_id(token);
  }
  special_.resize(static_cast<size_t>(vocab_size()));
  for (const AddedToken& token : rules.added) {
    if (token.special) special_[static_cast<size_t>(token.id)] = true;
  }
}

void BpeTokenizer::fill_bytes(const TokenizerRules& rules) {
  const std::vector<std::string_view> added = added_by_id(rules);
  for (size_t id = 0; id < added.size(); ++id) {
    const auto in_model = static_cast<int64_t>(id);
    const bool has_spelling = in_model < rules.tokens.size() && !rules.tokens[in_model].empty();
    append(bytes_, decoded_token(rules, has_spelling ? rules.tokens[in_model] : added[id]));
  }
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool add_special) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(Kind::kBadInput,
                fmt::format("a text of {} bytes is too long; split it below 2 GiB", text.size()));
  }
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    throw Error(Kind::kBadInput,
                fmt::format("the text is not valid UTF-8 at byte {}; convert it", invalid));
  }
  Run run{*this};
  if (add_special) run.ids = prefix_;
  run.text(text);
  if (add_special) run.ids.insert(run.ids.end(), suffix_.begin(), suffix_.end());
  return std::move(run.ids);
}

void BpeTokenizer::check_id(int32_t token) const {
  if (token >= 0 && token < vocab_size()) return;
  throw Error(Kind::kBadInput, fmt::format("{}: token id {} is outside the vocabulary of {}",
                                           source_, token, vocab_size()));
}

std::string_view BpeTokenizer::token_bytes(int32_t token) const {
  check(token >= 0, "a token id is not negative");
  return token < vocab_size() ? bytes_[token] : std::string_view();
}

bool BpeTokenizer::is_special(int32_t token) const {
  check(token >= 0, "a token id is not negative");
  return token < vocab_size() && special_[static_cast<size_t>(token)];
}

}  // namespace transload::engine
