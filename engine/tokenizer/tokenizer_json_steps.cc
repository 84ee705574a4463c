#include "engine/tokenizer/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <cctype>

#include "engine/tokenizer/shown.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace transload::engine {
namespace {

// The steps of a node in order, those of a Sequence (under `key`) in its place.
std::vector<JsonNode> flatten(const JsonNode& node, std::string_view key, int depth = 0) {
  if (node["type"].string() != "Sequence") return {node};
  constexpr int kDeepest = 8;
  if (depth == kDeepest) node.refuse("a Sequence this deep");
  node.allow_only({"type", key});
  std::vector<JsonNode> steps;
  for (const JsonNode& element : node[key].elements()) {
    for (const JsonNode& step : flatten(element, key, depth + 1)) steps.push_back(step);
  }
  return steps;
}

// A pattern given as {"String": text}.
std::string literal(const JsonNode& pattern) {
  pattern.allow_only({"String", "Regex"});
  if (pattern.find("Regex")) pattern.refuse("a Regex here");
  std::string text = pattern["String"].string();
  if (text.empty()) pattern.damaged("an empty pattern");
  return text;
}

std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

SplitRule pattern_rule(std::string pattern) {
  return {SplitRule::Kind::kPattern, std::move(pattern), true, true};
}

SplitRule read_split(const JsonNode& node) {
  node.allow_only({"type", "pattern", "behavior", "invert"});
  const JsonNode pattern = node["pattern"];
  const auto regex = pattern.find("Regex");
  SplitRule rule = pattern_rule(regex ? regex->string() : escaped(literal(pattern)));
  const std::string behavior = node["behavior"].string();
  const bool invert = node.boolean_or("invert", false);
  if (behavior == "Removed") {
    rule.keep_matches = invert;
    rule.keep_gaps = !invert;
  } else if (behavior != "Isolated") {
    node["behavior"].refuse(shown(behavior));
  }
  return rule;
}

void read_byte_level(const JsonNode& node, TokenizerRules& rules) {
  node.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  rules.kind = TokenizerRules::Kind::kByteLevel;
  if (node.boolean_or("add_prefix_space", true)) {
    rules.split.push_back({SplitRule::Kind::kPrefixSpace, {}, true, true});
  }
  if (node.boolean_or("use_regex", true)) rules.split.push_back(pattern_rule(kGpt2Pattern));
}

// The ids of one template's special tokens before or after its text.
void read_template(const JsonNode& node, TokenizerRules& rules) {
  node.allow_only({"type", "single", "pair", "special_tokens"});
  std::vector<int32_t> prefix;
  bool behind_text = false;
  for (const JsonNode& item : node["single"].elements()) {
    item.allow_only({"SpecialToken", "Sequence"});
    const auto special = item.find("SpecialToken");
    if (!special) {
      if (behind_text || item["Sequence"]["id"].string() != "A") item.refuse("a second text");
      behind_text = true;
      continue;
    }
    const std::string name = (*special)["id"].string();
    for (const JsonNode& id : node["special_tokens"][name]["ids"].elements()) {
      if (id.integer() < 0 || id.integer() >= kMaxVocabulary) id.damaged("out of range");
      (behind_text ? rules.suffix : prefix).push_back(static_cast<int32_t>(id.integer()));
    }
  }
  if (!behind_text) node.damaged("single has no text");
  rules.prefix.insert(rules.prefix.begin(), prefix.begin(), prefix.end());
}

void read_strip(const JsonNode& node, TokenizerRules& rules) {
  node.allow_only({"type", "content", "start", "stop"});
  const int64_t start = node["start"].integer();
  if (node["content"].string() != " " || (start != 0 && start != 1) ||
      node["stop"].integer() != 0) {
    node.refuse("stripping anything but one space in front");
  }
  rules.strip_leading_space = start == 1;
}

}  // namespace

void read_normalizer(const JsonNode& node, TokenizerRules& rules) {
  for (const JsonNode& step : flatten(node, "normalizers")) {
    const std::string type = step["type"].string();
    if (type == "NFC") {
      step.allow_only({"type"});
      rules.normalize.push_back({NormalizeRule::Kind::kNfc, {}, {}});
    } else if (type == "Prepend") {
      step.allow_only({"type", "prepend"});
      rules.normalize.push_back({NormalizeRule::Kind::kPrepend, step["prepend"].string(), {}});
    } else if (type == "Replace") {
      step.allow_only({"type", "pattern", "content"});
      rules.normalize.push_back(
          {NormalizeRule::Kind::kReplace, literal(step["pattern"]), step["content"].string()});
    } else {
      step.refuse(fmt::format("the normalizer {}", shown(type)));
    }
  }
}

void read_pre_tokenizer(const JsonNode& node, TokenizerRules& rules) {
  for (const JsonNode& step : flatten(node, "pretokenizers")) {
    if (rules.kind == TokenizerRules::Kind::kByteLevel) step.refuse("a step behind ByteLevel");
    const std::string type = step["type"].string();
    if (type == "ByteLevel") {
      read_byte_level(step, rules);
    } else if (type == "Digits") {
      step.allow_only({"type", "individual_digits"});
      const bool each = step.boolean_or("individual_digits", false);
      rules.split.push_back(pattern_rule(each ? R"(\p{N})" : R"(\p{N}+)"));
    } else if (type == "Split") {
      rules.split.push_back(read_split(step));
    } else {
      step.refuse(fmt::format("the pre-tokenizer {}", shown(type)));
    }
  }
}

void read_post_processor(const JsonNode& node, TokenizerRules& rules) {
  for (const JsonNode& step : flatten(node, "processors")) {
    const std::string type = step["type"].string();
    if (type == "TemplateProcessing") {
      read_template(step, rules);
    } else if (type != "ByteLevel") {  // which only moves offsets
      step.refuse(fmt::format("the post-processor {}", shown(type)));
    }
  }
}

void read_decoder(const JsonNode& node, TokenizerRules& rules) {
  const bool byte_level = rules.kind == TokenizerRules::Kind::kByteLevel;
  const std::vector<JsonNode> steps = flatten(node, "decoders");
  bool fused = false;
  for (const JsonNode& step : steps) {
    const std::string type = step["type"].string();
    if (byte_level ? type == "ByteLevel" && steps.size() == 1 : type == "Fuse") {
      fused = true;
    } else if (!byte_level && type == "Replace" && !fused && !rules.decode_bytes) {
      if (literal(step["pattern"]) != "\xE2\x96\x81" || step["content"].string() != " ") {
        step.refuse("replacing anything but U+2581 by a space");
      }
      rules.decode_spaces = true;
    } else if (!byte_level && type == "ByteFallback" && !fused) {
      rules.decode_bytes = true;
    } else if (!byte_level && type == "Strip" && fused) {
      read_strip(step, rules);
    } else {
      step.refuse(fmt::format("the decoder {} here", shown(type)));
    }
  }
  if (!fused) node.refuse("a decoder that joins tokens by spaces");
}

}  // namespace transload::engine
