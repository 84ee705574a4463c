#include "engine/tokenizer/vocab_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "engine/tokenizer/json_node.h"
#include "engine/tokenizer/model_tables.h"
#include "engine/tokenizer/shown.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace transload::engine {
namespace {

int32_t find_id(const TokenizerRules& rules, std::string_view text) {
  for (const AddedToken& token : rules.added) {
    if (token.text == text) return token.id;
  }
  for (int64_t id = 0; id < rules.tokens.size(); ++id) {
    if (rules.tokens[id] == text) return static_cast<int32_t>(id);
  }
  return kNoToken;
}

// A token given as its text or as {"content": text, "lstrip": ...}.
AddedToken read_token(const JsonNode& node, bool special) {
  AddedToken token;
  token.special = special;
  if (node.value().is_string()) {
    token.text = node.string();
    return token;
  }
  token.text = node["content"].string();
  token.left_strip = node.boolean_or("lstrip", false);
  token.right_strip = node.boolean_or("rstrip", false);
  token.single_word = node.boolean_or("single_word", false);
  token.special = node.boolean_or("special", special);
  token.normalized = !token.special && node.boolean_or("normalized", false);
  return token;
}

void add_token(AddedToken token, TokenizerRules& rules) {
  const auto same = std::find_if(rules.added.begin(), rules.added.end(),
                                 [&](const AddedToken& other) { return other.text == token.text; });
  if (same == rules.added.end()) {
    rules.added.push_back(std::move(token));
  } else {
    same->special = same->special || token.special;
  }
}

int32_t checked_id(const JsonNode& node, int64_t id) {
  if (id < 0 || id >= kMaxVocabulary) node.damaged(fmt::format("id {} is out of range", id));
  return static_cast<int32_t>(id);
}

// tokenizer_config.json's {"added_tokens_decoder": {"7": {"content": ...}}}.
void read_added_decoder(const JsonNode& decoder, TokenizerRules& rules) {
  for (const std::string& key : decoder.keys()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) decoder.damaged("a key is no id");
    AddedToken token = read_token(decoder[key], false);
    token.id = checked_id(decoder[key], id);
    add_token(std::move(token), rules);
  }
}

// The named special tokens (bos_token, ...) of tokenizer_config or special_tokens_map.
void read_named_tokens(const JsonNode& node, TokenizerRules& rules) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const auto found = node.find(name);
    if (!found) continue;
    AddedToken token = read_token(*found, true);
    token.id = find_id(rules, token.text);
    if (token.id == kNoToken)
      found->damaged(fmt::format("{} is not in the vocabulary", shown(token.text)));
    add_token(std::move(token), rules);
  }
  const auto more = node.find("additional_special_tokens");
  if (!more) return;
  for (const JsonNode& element : more->elements()) {
    AddedToken token = read_token(element, true);
    token.id = find_id(rules, token.text);
    if (token.id == kNoToken) element.damaged("the token is not in the vocabulary");
    add_token(std::move(token), rules);
  }
}

void check_class(const JsonNode& config) {
  const auto name = config.find("tokenizer_class");
  if (!name) return;
  const std::string text = name->string();
  for (const char* known : {"GPT2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizer",
                            "GPTNeoXTokenizerFast", "PreTrainedTokenizerFast"}) {
    if (text == known) return;
  }
  name->refuse(fmt::format("{} from vocab.json and merges.txt", shown(text)));
}

int32_t named_token(const JsonNode& config, const char* name, const TokenizerRules& rules) {
  const int32_t id = find_id(rules, read_token(config[name], true).text);
  if (id == kNoToken) config[name].damaged("the token is not in the vocabulary");
  return id;
}

void read_config(const JsonNode& config, TokenizerRules& rules) {
  check_class(config);
  if (const auto added = config.find("added_tokens_decoder")) read_added_decoder(*added, rules);
  read_named_tokens(config, rules);
  if (config.boolean_or("add_prefix_space", false)) {
    rules.split.insert(rules.split.begin(), {SplitRule::Kind::kPrefixSpace, {}, true, true});
  }
  if (config.boolean_or("add_bos_token", false)) {
    rules.prefix.push_back(named_token(config, "bos_token", rules));
  }
  if (config.boolean_or("add_eos_token", false)) {
    rules.suffix.push_back(named_token(config, "eos_token", rules));
  }
}

void read_added_map(const JsonNode& map, TokenizerRules& rules) {
  for (const std::string& text : map.keys()) {
    AddedToken token{text};
    token.id = checked_id(map[text], map[text].integer());
    add_token(std::move(token), rules);
  }
}

}  // namespace

TokenizerRules read_vocab_files(std::istream& vocabulary, std::istream& merges,
                                const VocabFilesExtra& extra, const VocabFilesNames& names) {
  TokenizerRules rules;
  rules.kind = TokenizerRules::Kind::kByteLevel;
  rules.source = names.merges;
  rules.tokens = read_vocabulary_json(vocabulary, names.vocabulary);
  rules.merges = read_merges_text(merges, names.merges);
  rules.split.push_back({SplitRule::Kind::kPattern, kGpt2Pattern, true, true});
  if (!extra.added_tokens.is_null()) {
    read_added_map(JsonNode(extra.added_tokens, names.added_tokens), rules);
  }
  if (!extra.tokenizer_config.is_null()) {
    read_config(JsonNode(extra.tokenizer_config, names.tokenizer_config), rules);
  }
  if (!extra.special_tokens_map.is_null()) {
    read_named_tokens(JsonNode(extra.special_tokens_map, names.special_tokens_map), rules);
  }
  if (extra.model_type == "opt" && extra.tokenizer_config.is_null()) {
    AddedToken begin{"</s>", find_id(rules, "</s>")};
    begin.special = true;
    if (begin.id == kNoToken) {
      throw Error(Kind::kBadInput, fmt::format("{}: OPT's </s> is not in the vocabulary; the file "
                                               "is damaged or of another model",
                                               names.vocabulary));
    }
    rules.prefix.push_back(begin.id);
    add_token(std::move(begin), rules);
  }
  return rules;
}

void apply_llama_config(const nlohmann::json& tokenizer_config, const std::string& source,
                        TokenizerRules& rules) {
  const JsonNode config(tokenizer_config, source);
  const auto name = config.find("tokenizer_class");
  const auto add = config.find("add_bos_token");
  if (!name || !name->string().starts_with("Llama") || !add) return;
  const int32_t begin = named_token(config, "bos_token", rules);
  std::erase(rules.prefix, begin);
  if (add->boolean()) rules.prefix.insert(rules.prefix.begin(), begin);
}

}  // namespace transload::engine
