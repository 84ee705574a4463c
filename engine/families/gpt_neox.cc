// GPT-NeoX: layer norms, rotary positions on a part of each head, fused q/k/v, residuals in
// parallel or in sequence. Source: transformers GPTNeoXForCausalLM.
//
// GGUF: not read, since its metadata does not say which GELU a model was trained with.
#include "engine/families/family.h"
#include "engine/families/rotary.h"

namespace transload::engine {
namespace {

using layout::DecoderSpec;
using layout::Role;

void read_dimensions(ConfigReader& config, DecoderSpec& spec) {
  spec.family = "gpt_neox";
  spec.hidden = spec.embed_dim = config.count("hidden_size");
  spec.layers = config.count("num_hidden_layers");
  spec.heads = spec.kv_heads = config.count("num_attention_heads");
  spec.ffn = config.count("intermediate_size");
  spec.vocab = config.count("vocab_size");
  spec.max_positions = config.count("max_position_embeddings");
  if (spec.hidden % spec.heads != 0)
    config.refuse("hidden_size", "is no multiple of num_attention_heads");
  spec.head_dim = spec.hidden / spec.heads;
}

std::vector<TensorName> tensors(const DecoderSpec& spec, bool attention_biases) {
  const std::string layer = "gpt_neox.layers.{}.";
  std::vector<TensorName> names = {{Role::kEmbedding, "gpt_neox.embed_in.weight"}};
  const auto add = [&](Role weight, Role bias, const std::string& name, bool has_bias) {
    names.push_back({weight, name + ".weight"});
    if (has_bias) names.push_back({bias, name + ".bias"});
  };
  add(Role::kQkv, Role::kQkvBias, layer + "attention.query_key_value", attention_biases);
  add(Role::kO, Role::kOBias, layer + "attention.dense", attention_biases);
  add(Role::kUp, Role::kUpBias, layer + "mlp.dense_h_to_4h", true);
  add(Role::kDown, Role::kDownBias, layer + "mlp.dense_4h_to_h", true);
  add(Role::kNorm1, Role::kNorm1Bias, layer + "input_layernorm", true);
  add(Role::kNorm2, Role::kNorm2Bias, layer + "post_attention_layernorm", true);
  add(Role::kFinalNorm, Role::kFinalNormBias, "gpt_neox.final_layer_norm", true);
  if (!spec.tied_head) names.push_back({Role::kHead, "embed_out.weight"});
  return names;
}

Blueprint from_config(ConfigReader& config) {
  Blueprint blueprint;
  DecoderSpec& spec = blueprint.spec;
  read_dimensions(config, spec);
  spec.norm = layout::NormKind::kLayer;
  spec.norm_eps = static_cast<float>(config.positive_or("layer_norm_eps", 1e-5));
  spec.activation = config.activation_or("hidden_act", "gelu");
  spec.gated = false;
  spec.qkv = layout::QkvLayout::kFusedByHead;
  spec.parallel_residual = config.flag_or("use_parallel_residual", true);
  spec.tied_head = config.flag_or("tie_word_embeddings", false);
  apply_rotary(read_rotary(config, {"rotary_emb_base", "rotary_pct", 0.25}, spec), spec);
  blueprint.tensors = tensors(spec, config.flag_or("attention_bias", true));
  return blueprint;
}

}  // namespace

Family gpt_neox_family() {
  return {"gpt_neox",         "GPTNeoXForCausalLM", "",     {"gpt_neox."},
          "embed_out.weight", from_config,          nullptr};
}

}  // namespace transload::engine
