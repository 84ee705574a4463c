#include "tests/reference/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/matmul_inputs.h"

namespace transload::kernels {
namespace {

void expect_near_reference(const Inputs& in, const Matrix& w, const std::vector<float>& y,
                           const std::string& what) {
  const auto want = reference::matmul(in.x, w.values, in.bias, in.m, w.rows, w.cols);
  ASSERT_EQ(want.size(), y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const double bound = static_cast<double>(w.cols + 4) * kEps * want[i].magnitude;
    ASSERT_LE(std::fabs(static_cast<double>(y[i]) - want[i].value), bound)
        << what << " at " << i << ": want " << want[i].value << ", got " << y[i];
  }
}

class Matmul : public testing::TestWithParam<std::string> {};

TEST_P(Matmul, MatchesReferenceForEveryFormat) {
  const auto backend = cpu_backend(GetParam());
  for (const quant::Format format : kFormatsAll) {
    for (const int64_t m : {1, 3, 7}) {
      const Matrix w = matrix(format, 37, 512, 3);
      const Inputs in = inputs(m, w, m == 3, 5);
      const auto y = multiply(*backend, in, w, {w.slice(0, w.rows)});
      expect_near_reference(in, w, y, std::string(name(format)) + " m " + std::to_string(m));
    }
  }
}

TEST_P(Matmul, MatchesReferenceForOddShapes) {
  const auto backend = cpu_backend(GetParam());
  for (const int64_t rows : {1, 4, 5, 16, 17}) {
    for (const int64_t cols : {1, 3, 15, 16, 17, 33}) {
      const Matrix w = matrix(quant::Format::kF32, rows, cols, 1);
      const Inputs in = inputs(13, w, true, 2);
      expect_near_reference(in, w, multiply(*backend, in, w, {w.slice(0, rows)}),
                            std::to_string(rows) + " x " + std::to_string(cols));
    }
  }
}

TEST_P(Matmul, MatchesReferenceForSmolLm2) {
  const auto backend = cpu_backend(GetParam());
  const Matrix up = matrix(quant::Format::kQ4_1, 1536, 576, 1);
  const Matrix down = matrix(quant::Format::kQ8_0, 576, 1536, 2);
  const Inputs into_up = inputs(5, up, false, 3);
  const Inputs into_down = inputs(5, down, false, 4);
  expect_near_reference(into_up, up, multiply(*backend, into_up, up, {up.slice(0, 1536)}), "up");
  expect_near_reference(into_down, down, multiply(*backend, into_down, down, {down.slice(0, 576)}),
                        "down");
}

TEST_P(Matmul, ExactWhereEveryProductIsExact) {
  const auto backend = cpu_backend(GetParam());
  Matrix w = matrix(quant::Format::kF32, 20, 100, 1);
  std::fill(w.values.begin(), w.values.end(), 1.0F);
  quant::encode(w.format, w.values, w.bytes);
  Inputs in = inputs(3, w, false, 1);
  for (size_t i = 0; i < in.x.size(); ++i) in.x[i] = static_cast<float>(i % 100);
  for (const float y : multiply(*backend, in, w, {w.slice(0, 20)})) ASSERT_EQ(y, 4950.0F);
  std::fill(in.x.begin(), in.x.end(), 0.0F);
  in.x[150] = 1e30F;  // one outlier in row 1
  const auto y = multiply(*backend, in, w, {w.slice(0, 20)});
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], i / 20 == 1 ? 1e30F : 0.0F);
}

TEST_P(Matmul, ARowsBitsDoNotDependOnItsCompany) {
  const auto backend = cpu_backend(GetParam());
  const Matrix w = matrix(quant::Format::kQ4_1, 45, 96, 1);
  const Inputs all = inputs(64, w, true, 2);
  const auto together = multiply(*backend, all, w, {w.slice(0, w.rows)});
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}) {
    for (int64_t first = 0; first + m <= 64; first += m) {
      const Inputs part = {
          {all.x.begin() + first * w.cols, all.x.begin() + (first + m) * w.cols}, all.bias, m};
      const std::vector<float> want(together.begin() + first * w.rows,
                                    together.begin() + (first + m) * w.rows);
      expect_same_bits(multiply(*backend, part, w, {w.slice(0, w.rows)}), want,
                       "batch of " + std::to_string(m));
    }
  }
}

TEST_P(Matmul, BitsDoNotDependOnSlices) {
  const auto backend = cpu_backend(GetParam());
  for (const quant::Format format : {quant::Format::kF16, quant::Format::kQ4_1}) {
    const Matrix w = matrix(format, 131, 64, 1);
    const Inputs in = inputs(9, w, true, 2);
    const auto whole = multiply(*backend, in, w, {w.slice(0, w.rows)});
    std::mt19937 random(7);
    for (int turn = 0; turn < 20; ++turn) {
      expect_same_bits(multiply(*backend, in, w, random_slices(w, random)), whole,
                       "cut at random rows");
    }
  }
}

TEST_P(Matmul, WritesTheRowsOfItsSlicesAlone) {
  const auto backend = cpu_backend(GetParam());
  const Matrix w = matrix(quant::Format::kQ8_0, 40, 32, 1);
  const Inputs in = inputs(2, w, false, 2);
  const auto whole = multiply(*backend, in, w, {w.slice(0, 40)});
  const auto part = multiply(*backend, in, w, {w.slice(7, 6)});
  for (size_t i = 0; i < part.size(); ++i) {
    const bool inside = i % 40 >= 7 && i % 40 < 13;
    ASSERT_EQ(std::isnan(part[i]), !inside) << i;
    if (inside) {
      ASSERT_EQ(part[i], whole[i]);
    }
  }
}

TEST_P(Matmul, BitsDoNotDependOnThreads) {
  for (const int64_t m : {1, 17, 200}) {
    const Matrix w = matrix(quant::Format::kQ4_1, 150, 256, 1);
    const Inputs in = inputs(m, w, true, 2);
    const auto alone = multiply(*cpu_backend(GetParam(), 1), in, w, {w.slice(0, 150)});
    for (const int threads : {2, 3}) {
      const auto shared = multiply(*cpu_backend(GetParam(), threads), in, w, {w.slice(0, 150)});
      expect_same_bits(shared, alone, std::to_string(threads) + " threads");
    }
  }
}

TEST_P(Matmul, BitsDoNotDependOnAlignment) {
  const auto backend = cpu_backend(GetParam());
  for (const quant::Format format : kFormatsAll) {
    const Matrix w = matrix(format, 9, 256, 1);
    const Inputs in = inputs(2, w, false, 2);
    const auto aligned = multiply(*backend, in, w, {w.slice(0, 9)});
    for (const size_t shift : {1U, 2U, 3U, 5U}) {
      std::vector<std::byte> moved(w.bytes.size() + shift);
      std::copy(w.bytes.begin(), w.bytes.end(), moved.begin() + static_cast<int64_t>(shift));
      WeightSlice slice = w.slice(0, 9);
      slice.data = moved.data() + shift;
      expect_same_bits(multiply(*backend, in, w, {slice}), aligned, std::string(name(format)));
    }
  }
}

TEST_P(Matmul, TwoInstructionSetsCoexist) {
  const Matrix w = matrix(quant::Format::kF32, 8, 64, 1);
  const Inputs in = inputs(2, w, false, 2);
  const auto own = cpu_backend(GetParam());
  const auto before = multiply(*own, in, w, {w.slice(0, 8)});
  const auto other = cpu_backend("baseline");
  multiply(*other, in, w, {w.slice(0, 8)});
  expect_same_bits(multiply(*own, in, w, {w.slice(0, 8)}), before, "with another beside it");
}

INSTANTIATE_TEST_SUITE_P(Cpu, Matmul, testing::ValuesIn(instruction_sets()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace transload::kernels
