#include "engine/tokenizer/gguf_rules.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "engine/tokenizer/model_tables.h"
#include "engine/tokenizer/shown.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace transload::engine {
namespace {

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// How the models of one tokenizer.ggml.pre cut words.
struct PreKind {
  std::string_view name;
  const char* pattern;
  bool digits_first = false;  // each digit is a word of its own
  bool nfc = false;
  bool ignore_merges = false;
  bool begin_token = false;  // unless add_bos_token says otherwise
};

constexpr auto kPreKinds = std::to_array<PreKind>({
    {"default", kGpt2Pattern},
    {"gpt-2", kGpt2Pattern},
    {"phi-2", kGpt2Pattern},
    {"mpt", kGpt2Pattern, false, true},
    {"olmo", kGpt2Pattern, false, true},
    {"smollm", kGpt2Pattern, true},
    {"starcoder", kGpt2Pattern, true},
    {"refact", kGpt2Pattern, true},
    {"codeshell", kGpt2Pattern, true},
    {"command-r", kGpt2Pattern, true, true},
    {"llama-bpe", kLlama3Pattern, false, false, true, true},
    {"llama3", kLlama3Pattern, false, false, true, true},
    {"llama-v3", kLlama3Pattern, false, false, true, true},
    {"qwen2", kQwen2Pattern, false, true},
    {"deepseek-r1-qwen", kQwen2Pattern, false, true},
});

// tokenizer.ggml.token_type.
enum class TokenType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

[[noreturn]] void refuse(const GgufTokenizer& gguf, const std::string& what) {
  throw Error(Kind::kUnsupported, fmt::format("{}: {} is not implemented", gguf.source, what));
}

[[noreturn]] void damaged(const GgufTokenizer& gguf, const std::string& what) {
  throw Error(Kind::kBadInput, fmt::format("{}: {}; the file is damaged", gguf.source, what));
}

const nlohmann::json* find(const GgufTokenizer& gguf, const std::string& key) {
  const auto at = gguf.metadata.find("tokenizer.ggml." + key);
  return at == gguf.metadata.end() ? nullptr : &*at;
}

bool flag(const GgufTokenizer& gguf, const std::string& key, bool otherwise) {
  const nlohmann::json* value = find(gguf, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) damaged(gguf, fmt::format("tokenizer.ggml.{} is no boolean", key));
  return value->get<bool>();
}

std::string text(const GgufTokenizer& gguf, const std::string& key) {
  const nlohmann::json* value = find(gguf, key);
  if (value == nullptr || !value->is_string()) {
    damaged(gguf, fmt::format("tokenizer.ggml.{} is no string", key));
  }
  return value->get<std::string>();
}

int32_t token(const GgufTokenizer& gguf, const std::string& key, const TokenizerRules& rules) {
  const nlohmann::json* value = find(gguf, key);
  if (value == nullptr) return kNoToken;
  const bool good = value->is_number_integer() && value->get<int64_t>() >= 0 &&
                    value->get<int64_t>() < rules.tokens.size();
  if (!good)
    damaged(gguf, fmt::format("tokenizer.ggml.{} {} is no token", key, shown_json(*value)));
  return static_cast<int32_t>(value->get<int64_t>());
}

const StringTable& strings(const GgufTokenizer& gguf, const std::string& key) {
  const auto at = gguf.string_arrays.find("tokenizer.ggml." + key);
  if (at == gguf.string_arrays.end()) {
    damaged(gguf, fmt::format("tokenizer.ggml.{} is missing", key));
  }
  return at->second;
}

// An array of a number a token.
const std::vector<double>& numbers(const GgufTokenizer& gguf, const std::string& key,
                                   int64_t tokens) {
  const auto at = gguf.number_arrays.find("tokenizer.ggml." + key);
  const int64_t size = at == gguf.number_arrays.end() ? 0 : static_cast<int64_t>(at->second.size());
  if (size != tokens) {
    damaged(gguf, fmt::format("tokenizer.ggml.{} has {} entries for {} tokens", key, size, tokens));
  }
  return at->second;
}

void read_tokens(const GgufTokenizer& gguf, TokenizerRules& rules) {
  rules.tokens = strings(gguf, "tokens");
  if (rules.tokens.size() > kMaxVocabulary) damaged(gguf, "tokenizer.ggml.tokens has too many");
  const std::vector<double>& types = numbers(gguf, "token_type", rules.tokens.size());
  const bool scored = rules.kind == TokenizerRules::Kind::kScores;
  for (int32_t id = 0; id < rules.tokens.size(); ++id) {
    const double number = types[static_cast<size_t>(id)];
    if (!(number >= 1 && number <= 6)) {
      damaged(gguf, fmt::format("tokenizer.ggml.token_type[{}] is {}", id, number));
    }
    const auto type = static_cast<TokenType>(static_cast<int>(number));
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (special || type == TokenType::kUserDefined) {
      AddedToken added{std::string(rules.tokens[id]), id};
      added.special = special;
      rules.added.push_back(std::move(added));
    }
    if (!scored) continue;
    rules.mergeable.push_back(!special && type != TokenType::kByte);
    rules.unused.push_back(type == TokenType::kUnused);
  }
}

void read_byte_level(const GgufTokenizer& gguf, TokenizerRules& rules) {
  const std::string name = text(gguf, "pre");
  const PreKind* kind = nullptr;
  for (const PreKind& known : kPreKinds) {
    if (known.name == name) kind = &known;
  }
  if (kind == nullptr) refuse(gguf, fmt::format("tokenizer.ggml.pre {}", shown(name)));
  if (kind->nfc) rules.normalize.push_back({NormalizeRule::Kind::kNfc, {}, {}});
  if (kind->digits_first) {
    rules.split.push_back({SplitRule::Kind::kPattern, R"(\p{N})", true, true});
  }
  if (flag(gguf, "add_space_prefix", false)) {
    rules.split.push_back({SplitRule::Kind::kPrefixSpace, {}, true, true});
  }
  rules.split.push_back({SplitRule::Kind::kPattern, kind->pattern, true, true});
  rules.ignore_merges = kind->ignore_merges;
  const StringTable& merges = strings(gguf, "merges");
  for (int64_t i = 0; i < merges.size(); ++i) append_merge(rules.merges, merges[i], gguf.source);
  if (flag(gguf, "add_bos_token", kind->begin_token)) {
    rules.prefix.push_back(token(gguf, "bos_token_id", rules));
  }
}

void read_scored(const GgufTokenizer& gguf, TokenizerRules& rules) {
  if (find(gguf, "precompiled_charsmap") != nullptr ||
      gguf.number_arrays.contains("tokenizer.ggml.precompiled_charsmap")) {
    refuse(gguf, "tokenizer.ggml.precompiled_charsmap");
  }
  if (flag(gguf, "remove_extra_whitespaces", false)) {
    refuse(gguf, "tokenizer.ggml.remove_extra_whitespaces");
  }
  for (const double score : numbers(gguf, "scores", rules.tokens.size())) {
    rules.scores.push_back(static_cast<float>(score));
  }
  rules.strip_leading_space = flag(gguf, "add_space_prefix", true);
  if (rules.strip_leading_space) {
    rules.normalize.push_back({NormalizeRule::Kind::kPrepend, " ", {}});
  }
  rules.normalize.push_back({NormalizeRule::Kind::kReplace, " ", "\xE2\x96\x81"});
  rules.byte_fallback = rules.decode_bytes = rules.decode_spaces = true;
  rules.unknown = token(gguf, "unknown_token_id", rules);
  rules.fuse_unknown = true;
  if (flag(gguf, "add_bos_token", true)) rules.prefix.push_back(token(gguf, "bos_token_id", rules));
}

}  // namespace

TokenizerRules read_gguf_tokenizer(const GgufTokenizer& gguf) {
  const std::string model = text(gguf, "model");
  TokenizerRules rules;
  rules.source = gguf.source;
  if (model == "gpt2") {
    rules.kind = TokenizerRules::Kind::kByteLevel;
    read_tokens(gguf, rules);
    read_byte_level(gguf, rules);
  } else if (model == "llama") {
    rules.kind = TokenizerRules::Kind::kScores;
    read_tokens(gguf, rules);
    read_scored(gguf, rules);
  } else {
    refuse(gguf, fmt::format("tokenizer.ggml.model {}", shown(model)));
  }
  if (flag(gguf, "add_eos_token", false))
    rules.suffix.push_back(token(gguf, "eos_token_id", rules));
  for (const auto& around : {rules.prefix, rules.suffix}) {
    for (const int32_t id : around) {
      if (id == kNoToken)
        damaged(gguf, "add_bos_token or add_eos_token asks for a token not given");
    }
  }
  return rules;
}

}  // namespace transload::engine
