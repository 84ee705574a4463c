#include "layout/weights.h"

#include <array>

namespace transload::layout {

std::string_view name(Role role) {
  static constexpr std::array<std::string_view, kRoles> kNames = {
      "embedding", "positions",  "project_in",
      "q",         "k",          "v",
      "qkv",       "o",          "gate",
      "up",        "down",       "project_out",
      "head",      "norm1",      "norm1_bias",
      "norm2",     "norm2_bias", "q_bias",
      "k_bias",    "v_bias",     "qkv_bias",
      "o_bias",    "gate_bias",  "up_bias",
      "down_bias", "final_norm", "final_norm_bias",
      "head_bias"};
  return kNames[static_cast<size_t>(role)];
}

// NOLINTNEXTLINE(readability-function-size): one case a role
Shape shape_of(const DecoderSpec& spec, Role role) {
  const int64_t q = spec.q_width(), kv = spec.kv_width();
  switch (role) {
    case Role::kEmbedding:
    case Role::kHead:
      return {spec.vocab, spec.embed_dim};
    case Role::kPositions:
      return {spec.max_positions + spec.position_offset, spec.hidden};
    case Role::kProjectIn:
      return {spec.hidden, spec.embed_dim};
    case Role::kProjectOut:
      return {spec.embed_dim, spec.hidden};
    case Role::kQ:
      return {q, spec.hidden};
    case Role::kK:
    case Role::kV:
      return {kv, spec.hidden};
    case Role::kQkv:
      return {spec.qkv_width(), spec.hidden};
    case Role::kO:
      return {spec.hidden, q};
    case Role::kGate:
    case Role::kUp:
      return {spec.ffn, spec.hidden};
    case Role::kDown:
      return {spec.hidden, spec.ffn};
    case Role::kQBias:
      return {1, q};
    case Role::kKBias:
    case Role::kVBias:
      return {1, kv};
    case Role::kQkvBias:
      return {1, spec.qkv_width()};
    case Role::kGateBias:
    case Role::kUpBias:
      return {1, spec.ffn};
    case Role::kHeadBias:
      return {1, spec.vocab};
    case Role::kNorm1:
    case Role::kNorm1Bias:
    case Role::kNorm2:
    case Role::kNorm2Bias:
    case Role::kOBias:
    case Role::kDownBias:
    case Role::kFinalNorm:
    case Role::kFinalNormBias:
      return {1, spec.hidden};
  }
  return {};
}

const Weight* Model::find(Role role, int32_t layer) const {
  for (const Weight& weight : weights)
    if (weight.role == role && weight.layer == layer) return &weight;
  return nullptr;
}

int64_t Model::weight_bytes() const {
  int64_t bytes = 0;
  for (const Weight& weight : weights) bytes += weight.extent.bytes;
  return bytes;
}

}  // namespace transload::layout
