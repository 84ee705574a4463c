// What the tests of matmul share: numbers to multiply, and the call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/fixture.h"

namespace transload::kernels {

struct Inputs {
  std::vector<float> x;
  std::vector<float> bias;
  int64_t m = 0;
};

inline Inputs inputs(int64_t m, const Matrix& w, bool bias, uint32_t seed) {
  return {normals(m * w.cols, seed), bias ? normals(w.rows, seed + 1) : std::vector<float>(), m};
}

inline std::vector<float> multiply(Backend& backend, const Inputs& in, const Matrix& w,
                                   const std::vector<WeightSlice>& slices) {
  std::vector<float> y(static_cast<size_t>(in.m * w.rows), NAN);
  MatmulArgs args;
  args.x = in.x.data();
  args.ld_x = w.cols;
  args.m = in.m;
  args.slices = slices;
  args.bias = in.bias.empty() ? nullptr : in.bias.data();
  args.y = y.data();
  args.ld_y = w.rows;
  backend.matmul(args);
  return y;
}

// The slice cut at random rows, its pieces in random order.
inline std::vector<WeightSlice> random_slices(const Matrix& w, std::mt19937& random) {
  std::vector<WeightSlice> slices;
  for (int64_t first = 0; first < w.rows;) {
    const auto most = static_cast<int64_t>(1 + random() % 40);
    const int64_t rows = std::min(w.rows - first, most);
    slices.push_back(w.slice(first, rows));
    first += rows;
  }
  std::shuffle(slices.begin(), slices.end(), random);
  return slices;
}

}  // namespace transload::kernels
