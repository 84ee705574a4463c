// Specification of Backend::matmul: plain loops in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace transload::reference {

struct Product {
  double value = 0;
  double magnitude = 0;  // sum of |x| |w|, for the bound
};

//   x [m, cols], w [rows, cols], bias [rows] or empty  ->  [m, rows]
inline std::vector<Product> matmul(const std::vector<float>& x, const std::vector<float>& w,
                                   const std::vector<float>& bias, int64_t m, int64_t rows,
                                   int64_t cols) {
  std::vector<Product> y(static_cast<size_t>(m * rows));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      Product& of = y[static_cast<size_t>(i * rows + r)];
      for (int64_t c = 0; c < cols; ++c) {
        const double product = static_cast<double>(x[static_cast<size_t>(i * cols + c)]) *
                               static_cast<double>(w[static_cast<size_t>(r * cols + c)]);
        of.value += product;
        of.magnitude += std::fabs(product);
      }
      if (bias.empty()) continue;
      const auto add = static_cast<double>(bias[static_cast<size_t>(r)]);
      of.value += add;
      of.magnitude += std::fabs(add);
    }
  }
  return y;
}

}  // namespace transload::reference
