#include <cmath>

#include "kernels/cpu/ops.h"

namespace transload::kernels::cpu {

void rotate_row(const RotaryArgs& args, int64_t row) {
  const auto position = static_cast<float>(args.positions[row]);
  const int64_t half = args.rotary_dim / 2;
  const bool halves = args.style == layout::RotaryStyle::kHalves;
  const int64_t step = halves ? 1 : 2;         // of the first of a pair
  const int64_t distance = halves ? half : 1;  // from the first to the second
  for (int64_t i = 0; i < half; ++i) {
    const float angle = position * args.inverse_frequencies[i];
    const float cosine = std::cos(angle) * args.magnitude;
    const float sine = std::sin(angle) * args.magnitude;
    float* x = args.x + row * args.ld + i * step;
    for (int64_t head = 0; head < args.heads; ++head, x += args.head_dim) {
      const float first = x[0];
      const float second = x[distance];
      x[0] = first * cosine - second * sine;
      x[distance] = second * cosine + first * sine;
    }
  }
}

}  // namespace transload::kernels::cpu
