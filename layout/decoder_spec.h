// What a decoder-only transformer computes, as numbers. One spec drives one decoder for all
// families; a family's file fills it from a checkpoint's configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace transload::layout {

enum class NormKind { kRms, kLayer };
enum class PositionKind { kRotary, kLearned };
enum class RotaryStyle { kHalves, kNeighbours };  // rotates (i, i + d/2) or (2i, 2i + 1)
enum class Activation { kSilu, kGelu, kGeluTanh, kRelu };
enum class QkvLayout { kSeparate, kFusedByHead };  // GPT-NeoX: rows are [head][q, k, v][head_dim]

struct DecoderSpec {
  std::string family;  // "llama", "opt", "gpt_neox"
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t embed_dim = 0;  // width of the embedding; differs from hidden where it is projected
  int64_t max_positions = 0;

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5F;
  bool pre_norm = true;    // norm before attention and MLP; false: after the residual sum
  bool final_norm = true;  // a norm before the head

  PositionKind position = PositionKind::kRotary;
  int64_t position_offset = 0;  // learned: row of position 0 (OPT: 2)
  int64_t rotary_dim = 0;       // leading dimensions of a head that rotate
  RotaryStyle rotary_style = RotaryStyle::kHalves;
  std::vector<float> inverse_frequencies;  // [rotary_dim / 2], scaling applied
  float rotary_magnitude = 1.0F;           // factor on cos and sin (YaRN)

  Activation activation = Activation::kSilu;
  bool gated = true;               // down(act(gate(x)) * up(x)), else down(act(up(x)))
  bool parallel_residual = false;  // x + attention(norm1(x)) + mlp(norm2(x))
  QkvLayout qkv = QkvLayout::kSeparate;
  bool tied_head = false;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

}  // namespace transload::layout
