// LLaMA: pre-norm RMS, rotary positions, grouped-query attention, gated MLP.
// Source: transformers LlamaForCausalLM; llama.cpp's "llama" architecture.
#include <fmt/format.h>

#include <cmath>

#include "engine/families/family.h"
#include "engine/families/gguf_rotary.h"
#include "engine/families/rotary.h"

namespace transload::engine {
namespace {

using layout::DecoderSpec;
using layout::Role;

struct Biases {
  bool attention = false;
  bool mlp = false;
};

void read_dimensions(ConfigReader& config, DecoderSpec& spec) {
  spec.family = "llama";
  spec.hidden = spec.embed_dim = config.count("hidden_size");
  spec.layers = config.count("num_hidden_layers");
  spec.heads = config.count("num_attention_heads");
  spec.kv_heads = config.count_or("num_key_value_heads", spec.heads);
  spec.ffn = config.count("intermediate_size");
  spec.vocab = config.count("vocab_size");
  spec.max_positions = config.count("max_position_embeddings");
  if (!config.has("head_dim") && spec.hidden % spec.heads != 0)
    config.refuse("hidden_size", "is no multiple of num_attention_heads");
  spec.head_dim = config.count_or("head_dim", spec.hidden / spec.heads);
  if (spec.heads % spec.kv_heads != 0)
    config.refuse("num_attention_heads", "is no multiple of num_key_value_heads");
}

std::vector<TensorName> config_tensors(const DecoderSpec& spec, const Biases& biases) {
  const std::string layer = "model.layers.{}.";
  std::vector<TensorName> names = {{Role::kEmbedding, "model.embed_tokens.weight"},
                                   {Role::kQ, layer + "self_attn.q_proj.weight"},
                                   {Role::kK, layer + "self_attn.k_proj.weight"},
                                   {Role::kV, layer + "self_attn.v_proj.weight"},
                                   {Role::kO, layer + "self_attn.o_proj.weight"},
                                   {Role::kGate, layer + "mlp.gate_proj.weight"},
                                   {Role::kUp, layer + "mlp.up_proj.weight"},
                                   {Role::kDown, layer + "mlp.down_proj.weight"},
                                   {Role::kNorm1, layer + "input_layernorm.weight"},
                                   {Role::kNorm2, layer + "post_attention_layernorm.weight"},
                                   {Role::kFinalNorm, "model.norm.weight"}};
  if (!spec.tied_head) names.push_back({Role::kHead, "lm_head.weight"});
  if (biases.attention) {
    names.push_back({Role::kQBias, layer + "self_attn.q_proj.bias"});
    names.push_back({Role::kKBias, layer + "self_attn.k_proj.bias"});
    names.push_back({Role::kVBias, layer + "self_attn.v_proj.bias"});
    names.push_back({Role::kOBias, layer + "self_attn.o_proj.bias"});
  }
  if (biases.mlp) {
    names.push_back({Role::kGateBias, layer + "mlp.gate_proj.bias"});
    names.push_back({Role::kUpBias, layer + "mlp.up_proj.bias"});
    names.push_back({Role::kDownBias, layer + "mlp.down_proj.bias"});
  }
  return names;
}

Blueprint from_config(ConfigReader& config) {
  Blueprint blueprint;
  DecoderSpec& spec = blueprint.spec;
  read_dimensions(config, spec);
  spec.norm_eps = static_cast<float>(config.positive_or("rms_norm_eps", 1e-6));
  spec.activation = config.activation_or("hidden_act", "silu");
  spec.tied_head = config.flag_or("tie_word_embeddings", false);
  const Rotary rotary = read_rotary(config, {}, spec);
  if (rotary.fraction != 1.0)
    config.refuse_value("partial_rotary_factor", "a llama model rotates whole heads");
  apply_rotary(rotary, spec);
  const Biases biases = {config.flag_or("attention_bias", false),
                         config.flag_or("mlp_bias", false)};
  blueprint.tensors = config_tensors(spec, biases);
  return blueprint;
}

int64_t gguf_vocab(ConfigReader& config, const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors) {
    if (tensor.name != "token_embd.weight") continue;
    const int64_t rows = tensor.shape.front();
    if (config.count_or("llama.vocab_size", rows) != rows)
      config.refuse("llama.vocab_size",
                    fmt::format("is not the {} rows of token_embd.weight", rows));
    return rows;
  }
  throw Error(Kind::kBadInput, config.where() + ": has no tensor 'token_embd.weight'");
}

void read_gguf_dimensions(ConfigReader& config, const Checkpoint& checkpoint, DecoderSpec& spec) {
  spec.family = "llama";
  spec.hidden = spec.embed_dim = config.count("llama.embedding_length");
  spec.layers = config.count("llama.block_count");
  spec.heads = config.count("llama.attention.head_count");
  spec.kv_heads = config.count_or("llama.attention.head_count_kv", spec.heads);
  spec.ffn = config.count("llama.feed_forward_length");
  spec.max_positions = config.count("llama.context_length");
  spec.vocab = gguf_vocab(config, checkpoint);
  if (!config.has("llama.attention.key_length") && spec.hidden % spec.heads != 0)
    config.refuse("llama.embedding_length", "is no multiple of llama.attention.head_count");
  spec.head_dim = config.count_or("llama.attention.key_length", spec.hidden / spec.heads);
  config.require("llama.attention.value_length", spec.head_dim);
  config.require("llama.rope.dimension_count", spec.head_dim);
  if (spec.heads % spec.kv_heads != 0)
    config.refuse("llama.attention.head_count", "is no multiple of llama.attention.head_count_kv");
}

std::vector<TensorName> gguf_tensors(const DecoderSpec& spec) {
  const std::string layer = "blk.{}.";
  std::vector<TensorName> names = {{Role::kEmbedding, "token_embd.weight"},
                                   {Role::kQ, layer + "attn_q.weight"},
                                   {Role::kK, layer + "attn_k.weight"},
                                   {Role::kV, layer + "attn_v.weight"},
                                   {Role::kO, layer + "attn_output.weight"},
                                   {Role::kGate, layer + "ffn_gate.weight"},
                                   {Role::kUp, layer + "ffn_up.weight"},
                                   {Role::kDown, layer + "ffn_down.weight"},
                                   {Role::kNorm1, layer + "attn_norm.weight"},
                                   {Role::kNorm2, layer + "ffn_norm.weight"},
                                   {Role::kFinalNorm, "output_norm.weight"},
                                   {Role::kQBias, layer + "attn_q.bias", true},
                                   {Role::kKBias, layer + "attn_k.bias", true},
                                   {Role::kVBias, layer + "attn_v.bias", true},
                                   {Role::kOBias, layer + "attn_output.bias", true},
                                   {Role::kGateBias, layer + "ffn_gate.bias", true},
                                   {Role::kUpBias, layer + "ffn_up.bias", true},
                                   {Role::kDownBias, layer + "ffn_down.bias", true}};
  if (!spec.tied_head) names.push_back({Role::kHead, "output.weight"});
  return names;
}

// llama.cpp's converter stores the rows of attn_q and attn_k so that pairs of neighbours rotate.
Blueprint from_gguf(ConfigReader& config, const Checkpoint& checkpoint) {
  Blueprint blueprint;
  DecoderSpec& spec = blueprint.spec;
  read_gguf_dimensions(config, checkpoint, spec);
  spec.norm_eps = static_cast<float>(config.number("llama.attention.layer_norm_rms_epsilon"));
  config.require("llama.expert_count", 0);
  config.require("llama.expert_used_count", 0);
  config.find("llama.tensor_data_layout");
  spec.rotary_style = layout::RotaryStyle::kNeighbours;
  apply_rotary(read_gguf_rotary(config, "llama.", spec), spec);
  divide_by_rope_factors(checkpoint, spec);
  spec.tied_head = true;
  for (const TensorInfo& tensor : checkpoint.tensors)
    if (tensor.name == "output.weight") spec.tied_head = false;
  blueprint.tensors = gguf_tensors(spec);
  return blueprint;
}

}  // namespace

Family llama_family() {
  return {"llama",          "LlamaForCausalLM", "llama",  {"model."},
          "lm_head.weight", from_config,        from_gguf};
}

}  // namespace transload::engine
