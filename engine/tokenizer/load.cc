#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/error.h"
#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/gguf_rules.h"
#include "engine/tokenizer/model_tables.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "engine/tokenizer/vocab_files.h"

namespace transload::engine {
namespace {

namespace fs = std::filesystem;

std::string path_of(const Checkpoint& checkpoint, const char* name) {
  return (fs::path(checkpoint.folder) / name).string();
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::ifstream open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(Kind::kIo, path + ": cannot be opened; check its permissions");
  return file;
}

nlohmann::json read_if_there(const std::string& path) {
  if (!exists(path)) return nullptr;
  std::ifstream file = open(path);
  return read_json(file, path);
}

TokenizerRules from_tokenizer_json(const Checkpoint& checkpoint, const std::string& path) {
  std::ifstream file = open(path);
  TokenizerRules rules = read_tokenizer_json(file, path);
  const std::string config_path = path_of(checkpoint, "tokenizer_config.json");
  const nlohmann::json config = read_if_there(config_path);
  if (!config.is_null()) apply_llama_config(config, config_path, rules);
  return rules;
}

TokenizerRules from_vocab_files(const Checkpoint& checkpoint) {
  const VocabFilesNames names{path_of(checkpoint, "vocab.json"), path_of(checkpoint, "merges.txt"),
                              path_of(checkpoint, "tokenizer_config.json"),
                              path_of(checkpoint, "special_tokens_map.json"),
                              path_of(checkpoint, "added_tokens.json")};
  VocabFilesExtra extra;
  extra.tokenizer_config = read_if_there(names.tokenizer_config);
  extra.special_tokens_map = read_if_there(names.special_tokens_map);
  extra.added_tokens = read_if_there(names.added_tokens);
  const auto type = checkpoint.config.find("model_type");
  if (type != checkpoint.config.end() && type->is_string()) extra.model_type = *type;
  std::ifstream vocabulary = open(names.vocabulary), merges = open(names.merges);
  return read_vocab_files(vocabulary, merges, extra, names);
}

std::optional<TokenizerRules> find_rules(const Checkpoint& checkpoint) {
  if (checkpoint.kind == Checkpoint::Kind::kGguf) {
    const auto model = checkpoint.metadata.find("tokenizer.ggml.model");
    const bool none =
        model == checkpoint.metadata.end() || *model == "no_vocab" || *model == "none";
    if (none) return std::nullopt;
    return read_gguf_tokenizer(
        {checkpoint.metadata, checkpoint.string_arrays, checkpoint.number_arrays, checkpoint.path});
  }
  const std::string whole = path_of(checkpoint, "tokenizer.json");
  if (exists(whole)) return from_tokenizer_json(checkpoint, whole);
  if (exists(path_of(checkpoint, "vocab.json")) && exists(path_of(checkpoint, "merges.txt"))) {
    return from_vocab_files(checkpoint);
  }
  // A tokenizer that is there but cannot be read must not pass for a model without one.
  for (const char* other : {"tokenizer.model", "spiece.model", "vocab.json", "merges.txt"}) {
    if (!exists(path_of(checkpoint, other))) continue;
    throw Error(Kind::kUnsupported, path_of(checkpoint, other) +
                                        ": not implemented alone; add the model's tokenizer.json");
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> tokenizer_files(const Checkpoint& checkpoint) {
  std::vector<std::string> paths;
  if (checkpoint.kind == Checkpoint::Kind::kGguf) return paths;
  const auto add = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const std::string path = path_of(checkpoint, name);
      if (exists(path)) paths.push_back(path);
    }
  };
  add({"tokenizer.json"});
  if (paths.empty()) {
    add({"vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json"});
  }
  if (!paths.empty()) add({"tokenizer_config.json"});
  return paths;
}

std::unique_ptr<Tokenizer> load_tokenizer(const Checkpoint& checkpoint) {
  const std::optional<TokenizerRules> rules = find_rules(checkpoint);
  if (!rules) return nullptr;
  return std::make_unique<BpeTokenizer>(*rules);
}

}  // namespace transload::engine
