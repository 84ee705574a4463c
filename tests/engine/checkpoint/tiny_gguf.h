// A whole model as GGUF, a few kilobytes.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/checkpoint/gguf_builder.h"

namespace transload::testing {

// A whole LLaMA of one layer: 2 heads of 4, hidden 8, ffn 16, vocabulary 10. `keep` chooses
// tensors.
template <class Keep>
GgufBuilder tiny_llama_gguf(const Keep& keep) {
  GgufBuilder builder;
  builder.text("general.architecture", "llama").text("general.name", "tiny");
  builder.u32("llama.block_count", 1).u32("llama.embedding_length", 8);
  builder.u32("llama.feed_forward_length", 16).u32("llama.attention.head_count", 2);
  builder.u32("llama.attention.head_count_kv", 1).u32("llama.context_length", 64);
  builder.u32("llama.rope.dimension_count", 4).f32("llama.rope.freq_base", 10000.0F);
  builder.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F).u32("llama.vocab_size", 10);
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    if (keep(name)) builder.floats(name, shape, 0.5F);
  };
  add("token_embd.weight", {10, 8});
  add("blk.0.attn_norm.weight", {8});
  add("blk.0.attn_q.weight", {8, 8});
  add("blk.0.attn_k.weight", {4, 8});
  add("blk.0.attn_v.weight", {4, 8});
  add("blk.0.attn_output.weight", {8, 8});
  add("blk.0.ffn_norm.weight", {8});
  add("blk.0.ffn_gate.weight", {16, 8});
  add("blk.0.ffn_up.weight", {16, 8});
  add("blk.0.ffn_down.weight", {8, 16});
  add("output_norm.weight", {8});
  add("output.weight", {10, 8});
  return builder;
}

inline GgufBuilder tiny_llama_gguf() {
  return tiny_llama_gguf([](const std::string&) { return true; });
}

}  // namespace transload::testing
