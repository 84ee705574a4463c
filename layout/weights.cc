#include "layout/weights.h"

#include <array>

namespace transload::layout {

std::string_view name(Role role) {
  static constexpr std::array<std::string_view, kRoles> kNames = {
      "embedding", "positions", "project_in", "q", "k", "v", "qkv", "o", "gate", "up", "down",
      "project_out", "head", "norm1", "norm1_bias", "norm2", "norm2_bias", "q_bias", "k_bias",
      "v_bias", "qkv_bias", "o_bias", "gate_bias", "up_bias", "down_bias", "final_norm",
      "final_norm_bias", "head_bias"};
  return kNames[static_cast<size_t>(role)];
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
