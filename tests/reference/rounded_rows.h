// Specification of what Compute::kFast makes of rows of x before it multiplies them.
#pragma once

#include <cmath>
#include <vector>

#include "quant/format.h"

namespace transload::reference {

// What 8-bit codes say, in groups of 32: scale = largest magnitude / 127, codes to nearest even.
inline std::vector<float> round_to_codes(const std::vector<float>& x) {
  std::vector<float> rounded(x.size());
  for (size_t g = 0; g < x.size(); g += 32) {
    float largest = 0;
    for (size_t i = g; i < g + 32; ++i) largest = std::fmax(largest, std::fabs(x[i]));
    if (largest < 0x1p-100F) continue;
    const float inverse = 127 / largest;
    const float scale = largest / 127;
    for (size_t i = g; i < g + 32; ++i) rounded[i] = std::nearbyint(x[i] * inverse) * scale;
  }
  return rounded;
}

inline std::vector<float> round_to_bfloat16(const std::vector<float>& x) {
  std::vector<float> rounded;
  for (const float value : x)
    rounded.push_back(quant::bfloat16_to_float(quant::float_to_bfloat16(value)));
  return rounded;
}

}  // namespace transload::reference
