// OPT: learned positions from row 2 on, layer norms before or after, biases, an embedding that may
// be narrower than the model. Source: transformers OPTForCausalLM.
#include "engine/families/family.h"

namespace transload::engine {
namespace {

using layout::DecoderSpec;
using layout::Role;

void read_dimensions(ConfigReader& config, DecoderSpec& spec) {
  spec.family = "opt";
  spec.hidden = config.count("hidden_size");
  spec.layers = config.count("num_hidden_layers");
  spec.heads = spec.kv_heads = config.count("num_attention_heads");
  spec.ffn = config.count("ffn_dim");
  spec.vocab = config.count("vocab_size");
  spec.embed_dim = config.count_or("word_embed_proj_dim", spec.hidden);
  spec.max_positions = config.count("max_position_embeddings");
  spec.position = layout::PositionKind::kLearned;
  spec.position_offset = 2;
  if (spec.hidden % spec.heads != 0)
    config.refuse("hidden_size", "is no multiple of num_attention_heads");
  spec.head_dim = spec.hidden / spec.heads;
}

std::vector<TensorName> tensors(const DecoderSpec& spec, bool biases) {
  const std::string decoder = "model.decoder.", layer = decoder + "layers.{}.";
  std::vector<TensorName> names = {{Role::kEmbedding, decoder + "embed_tokens.weight"},
                                   {Role::kPositions, decoder + "embed_positions.weight"}};
  const auto add = [&](Role weight, Role bias, const std::string& name, bool has_bias) {
    names.push_back({weight, name + ".weight"});
    if (has_bias) names.push_back({bias, name + ".bias"});
  };
  add(Role::kQ, Role::kQBias, layer + "self_attn.q_proj", biases);
  add(Role::kK, Role::kKBias, layer + "self_attn.k_proj", biases);
  add(Role::kV, Role::kVBias, layer + "self_attn.v_proj", biases);
  add(Role::kO, Role::kOBias, layer + "self_attn.out_proj", biases);
  add(Role::kUp, Role::kUpBias, layer + "fc1", biases);
  add(Role::kDown, Role::kDownBias, layer + "fc2", biases);
  add(Role::kNorm1, Role::kNorm1Bias, layer + "self_attn_layer_norm", true);
  add(Role::kNorm2, Role::kNorm2Bias, layer + "final_layer_norm", true);
  if (spec.final_norm)
    add(Role::kFinalNorm, Role::kFinalNormBias, decoder + "final_layer_norm", true);
  if (spec.embed_dim != spec.hidden) {
    names.push_back({Role::kProjectIn, decoder + "project_in.weight"});
    names.push_back({Role::kProjectOut, decoder + "project_out.weight"});
  }
  if (!spec.tied_head) names.push_back({Role::kHead, "lm_head.weight"});
  return names;
}

Blueprint from_config(ConfigReader& config) {
  Blueprint blueprint;
  DecoderSpec& spec = blueprint.spec;
  read_dimensions(config, spec);
  spec.norm = layout::NormKind::kLayer;
  spec.norm_eps = 1e-5F;  // of the class; no key changes it
  spec.pre_norm = config.flag_or("do_layer_norm_before", true);
  const bool removed = config.flag_or("_remove_final_layer_norm", false);
  spec.final_norm = spec.pre_norm && !removed;
  spec.activation = config.activation_or("activation_function", "relu");
  spec.gated = false;
  spec.tied_head = config.flag_or("tie_word_embeddings", true);
  config.require("layer_norm_elementwise_affine", true);
  config.require("scale_embeddings", false);
  config.require("learned_embeddings", true);
  blueprint.tensors = tensors(spec, config.flag_or("enable_bias", true));
  return blueprint;
}

}  // namespace

Family opt_family() {
  return {"opt",       "OPTForCausalLM", "", {"model.decoder.", "decoder."}, "lm_head.weight",
          from_config, nullptr};
}

}  // namespace transload::engine
