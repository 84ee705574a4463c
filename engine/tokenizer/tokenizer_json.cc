#include "engine/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include "engine/tokenizer/json_node.h"
#include "engine/tokenizer/model_tables.h"
#include "engine/tokenizer/shown.h"
#include "engine/tokenizer/tokenizer_json_steps.h"

namespace transload::engine {
namespace {

void read_added(const JsonNode& added, TokenizerRules& rules) {
  for (const JsonNode& node : added.elements()) {
    node.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const int64_t id = node["id"].integer();
    if (id < 0 || id >= kMaxVocabulary) node["id"].damaged(fmt::format("{} is out of range", id));
    AddedToken token{node["content"].string(), static_cast<int32_t>(id)};
    token.special = node.boolean_or("special", false);
    token.left_strip = node.boolean_or("lstrip", false);
    token.right_strip = node.boolean_or("rstrip", false);
    token.single_word = node.boolean_or("single_word", false);
    token.normalized = node.boolean_or("normalized", !token.special);
    rules.added.push_back(token);
  }
}

void require_empty(const JsonNode& model, std::string_view key) {
  const auto found = model.find(key);
  if (!found || found->value() == "" || found->value() == 0 || found->value() == 0.0) return;
  found->refuse(fmt::format("a {} of {}", key, shown_json(found->value())));
}

int32_t find_token(const StringTable& tokens, std::string_view text) {
  for (int64_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id] == text) return static_cast<int32_t>(id);
  }
  return kNoToken;
}

void read_model(const JsonNode& model, TokenizerRules& rules) {
  model.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                    "merges"});
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    require_empty(model, key);
  }
  model["vocab"];
  model["merges"];
  rules.fuse_unknown = model.boolean_or("fuse_unk", false);
  rules.byte_fallback = model.boolean_or("byte_fallback", false);
  rules.ignore_merges = model.boolean_or("ignore_merges", false);
  if (const auto unknown = model.find("unk_token")) {
    rules.unknown = find_token(rules.tokens, unknown->string());
    if (rules.unknown == kNoToken) unknown->damaged("the token is not in the vocabulary");
  }
}

}  // namespace

TokenizerRules read_tokenizer_json(std::istream& in, const std::string& source) {
  TokenizerJson read = read_tokenizer_tables(in, source);
  const JsonNode file(read.rest, source);
  file.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  TokenizerRules rules;
  rules.kind = TokenizerRules::Kind::kText;  // unless the pre-tokenizer says otherwise
  rules.source = source;
  rules.tokens = std::move(read.tokens);
  rules.merges = std::move(read.merges);
  read_model(file["model"], rules);
  if (const auto added = file.find("added_tokens")) read_added(*added, rules);
  if (const auto normalizer = file.find("normalizer")) read_normalizer(*normalizer, rules);
  if (const auto splits = file.find("pre_tokenizer")) read_pre_tokenizer(*splits, rules);
  if (const auto around = file.find("post_processor")) read_post_processor(*around, rules);
  const auto decoder = file.find("decoder");
  if (!decoder) file.refuse("a null decoder");
  read_decoder(*decoder, rules);
  return rules;
}

}  // namespace transload::engine
