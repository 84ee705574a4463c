// Model families: each is one small file that turns a configuration into a DecoderSpec and names
// the tensors; all share one decoder.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/families/config_reader.h"
#include "layout/weights.h"

namespace transload::engine {

// A tensor's name; "{}" stands for the layer's number.
struct TensorName {
  layout::Role role{};
  std::string pattern;
  bool optional = false;  // taken if the checkpoint has it (GGUF does not say which biases exist)
};

// What a configuration asks for.
struct Blueprint {
  layout::DecoderSpec spec;
  std::vector<TensorName> tensors;
};

struct Family {
  std::string_view model_type;             // in config.json
  std::string_view architecture;           // in config.json's list
  std::string_view gguf_architecture;      // general.architecture; empty: GGUF is not read
  std::vector<std::string_view> prefixes;  // that tensor names may lack, longest first
  std::string_view unused_head;            // a second copy of a tied embedding
  Blueprint (*from_config)(ConfigReader& config);
  // `config` holds the metadata. Null where gguf_architecture is empty.
  Blueprint (*from_gguf)(ConfigReader& config, const Checkpoint& checkpoint);
};

Family llama_family();
Family opt_family();
Family gpt_neox_family();

// All of them. Adding a family: its file, a line above, an entry in families.cc.
std::span<const Family> families();

// The family of a config.json, of a GGUF's metadata. `where` begins error texts.
// Errors: kUnsupported naming the family and those supported, kBadInput where none is named.
const Family& find_family(const nlohmann::json& config, const std::string& where);
const Family& find_gguf_family(const nlohmann::json& metadata, const std::string& where);

// The blueprint of a configuration. Every key that changes the arithmetic is read, or refused.
// Errors: kUnsupported naming the family or the key, kBadInput naming a key.
Blueprint read_blueprint(const nlohmann::json& config, const std::string& where);
Blueprint read_gguf_blueprint(const Checkpoint& checkpoint);

// A tensor that a blueprint asks for.
struct NamedTensor {
  layout::Role role{};
  int32_t layer = -1;
  std::string name;
  bool optional = false;
};

// The tensors in the order of layout::Model::weights.
std::vector<NamedTensor> execution_order(const Blueprint& blueprint);

}  // namespace transload::engine
