#include "tests/reference/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/backend.h"
#include "tests/kernels/fixture.h"

namespace transload::kernels {
namespace {

using layout::Activation;
using layout::NormKind;
using layout::RotaryStyle;

constexpr int64_t kDims[] = {1, 3, 16, 17, 64, 576, 1031};

class Rows : public testing::TestWithParam<std::string> {};

struct NormInputs {
  NormKind kind{};
  std::vector<float> x, weight, bias;
  int64_t dim = 0;
};

std::vector<float> run_norm(Backend& backend, const NormInputs& of, bool in_place) {
  std::vector<float> x = of.x;
  std::vector<float> y(of.x.size(), NAN);
  NormArgs args;
  args.kind = of.kind;
  args.x = x.data();
  args.y = in_place ? x.data() : y.data();
  args.ld_x = args.ld_y = args.dim = of.dim;
  args.rows = static_cast<int64_t>(x.size()) / of.dim;
  args.weight = of.weight.data();
  args.bias = of.bias.empty() ? nullptr : of.bias.data();
  args.eps = 1e-5F;
  backend.norm(args);
  return in_place ? x : y;
}

// How far a norm may be off. The mean of dim numbers is off by (dim + 4) eps of the largest, and
// with it x - mean; the variance by as many eps of itself; then come some ten roundings.
double norm_bound(const NormInputs& of, const std::vector<float>& x, size_t c) {
  double largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(static_cast<double>(v)));
  const reference::Moments moments = reference::moments(of.kind, x);
  const double inverse = 1 / std::sqrt(moments.variance + 1e-5);
  const double sum = static_cast<double>(of.dim + 4) * kEps;
  const double unit = std::fabs(static_cast<double>(x[c]) - moments.mean) * inverse;
  const double centre = of.kind == NormKind::kLayer ? sum * largest * inverse : 0;
  const double weight = std::fabs(static_cast<double>(of.weight[c]));
  const double bias = of.bias.empty() ? 0 : std::fabs(static_cast<double>(of.bias[c]));
  return weight * (centre + unit * (sum + 10 * kEps)) + 2 * kEps * bias;
}

void expect_near_reference(const NormInputs& of, const std::vector<float>& got) {
  for (size_t row = 0; row * static_cast<size_t>(of.dim) < of.x.size(); ++row) {
    const auto at = of.x.begin() + static_cast<int64_t>(row) * of.dim;
    const std::vector<float> x(at, at + of.dim);
    const auto want = reference::norm(of.kind, x, of.weight, of.bias, 1e-5);
    for (size_t c = 0; c < x.size(); ++c) {
      const double is = static_cast<double>(got[row * x.size() + c]);
      ASSERT_LE(std::fabs(is - want[c]), norm_bound(of, x, c))
          << "dim " << of.dim << " row " << row << " at " << c << ": want " << want[c] << ", got "
          << is;
    }
  }
}

TEST_P(Rows, NormMatchesReference) {
  const auto backend = cpu_backend(GetParam(), 2);
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const int64_t dim : kDims) {
      for (const bool bias : {false, true}) {
        const NormInputs of = {kind, normals(5 * dim, 1), normals(dim, 2),
                               bias ? normals(dim, 3) : std::vector<float>(), dim};
        const auto y = run_norm(*backend, of, false);
        expect_near_reference(of, y);
        expect_same_bits(run_norm(*backend, of, true), y, "in place");
      }
    }
  }
}

TEST_P(Rows, NormOfEqualNumbersIsExact) {
  const auto backend = cpu_backend(GetParam());
  const NormInputs of = {NormKind::kLayer, std::vector<float>(64, 3.0F), normals(64, 1),
                         normals(64, 2), 64};
  expect_same_bits(run_norm(*backend, of, false), of.bias, "only the bias is left");
}

TEST_P(Rows, NormsRowsDoNotDependOnTheirCompany) {
  const auto backend = cpu_backend(GetParam(), 3);
  const NormInputs all = {NormKind::kRms, normals(200 * 100, 1), normals(100, 2), {}, 100};
  const auto together = run_norm(*backend, all, false);
  for (const int64_t row : {0, 63, 199}) {
    NormInputs one = all;
    one.x.assign(all.x.begin() + row * 100, all.x.begin() + (row + 1) * 100);
    expect_same_bits(run_norm(*backend, one, false),
                     {together.begin() + row * 100, together.begin() + (row + 1) * 100}, "alone");
  }
}

std::vector<float> run_activation(Backend& backend, Activation kind, std::vector<float> gate,
                                  const std::vector<float>* up, int64_t cols) {
  ActivationArgs args;
  args.kind = kind;
  args.gate = gate.data();
  args.up = up == nullptr ? nullptr : up->data();
  args.rows = static_cast<int64_t>(gate.size()) / cols;
  args.cols = args.ld = cols;
  backend.activate(args);
  return gate;
}

// Relative error of act(x): exp of a number z is off by |z| eps, since z is rounded, and a few
// roundings; gelu's polynomial by 1.2e-7.
double activation_bound(Activation kind, double x) {
  const double argument = kind == Activation::kGelu ? x * x : 1.6 * std::fabs(x) * (1 + x * x);
  return kind == Activation::kRelu ? 0 : (2 * argument + 16) * kEps + 2.4e-7;
}

TEST_P(Rows, ActivationsMatchReference) {
  const auto backend = cpu_backend(GetParam(), 2);
  std::vector<float> x;
  for (int i = -1500; i <= 1500; ++i) x.push_back(static_cast<float>(i) / 250);
  for (const Activation kind :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    const auto y = run_activation(*backend, kind, x, nullptr, static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = reference::activation(kind, static_cast<double>(x[i]));
      const double bound = std::fabs(want) * activation_bound(kind, static_cast<double>(x[i]));
      ASSERT_LE(std::fabs(static_cast<double>(y[i]) - want), bound)
          << "activation " << static_cast<int>(kind) << " of " << x[i] << ": want " << want
          << ", got " << y[i];
    }
  }
}

TEST_P(Rows, ActivationsKeepToTheirLimits) {
  const auto backend = cpu_backend(GetParam());
  const std::vector<float> x = {-1e30F, -1e4F, -200, 200, 1e4F, 1e30F};
  for (const Activation kind :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    const auto y = run_activation(*backend, kind, x, nullptr, 6);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(y[i], 0.0F) << static_cast<int>(kind) << " " << x[i];
    for (size_t i = 3; i < 6; ++i) EXPECT_EQ(y[i], x[i]) << static_cast<int>(kind) << " " << x[i];
  }
}

TEST_P(Rows, ANanStaysOne) {
  const auto backend = cpu_backend(GetParam());
  for (const Activation kind :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    const auto y = run_activation(*backend, kind, std::vector<float>(17, NAN), nullptr, 17);
    for (const float value : y) ASSERT_TRUE(std::isnan(value)) << static_cast<int>(kind);
  }
}

TEST_P(Rows, AGateMultipliesAndPlacesDoNotMatter) {
  const auto backend = cpu_backend(GetParam(), 2);
  for (const int64_t cols : {1, 15, 16, 37}) {
    const auto gate = normals(3 * cols, 1);
    const auto up = normals(3 * cols, 2);
    const auto plain = run_activation(*backend, Activation::kSilu, gate, nullptr, cols);
    const auto gated = run_activation(*backend, Activation::kSilu, gate, &up, cols);
    const auto single = run_activation(*backend, Activation::kSilu, gate, nullptr, 1);
    expect_same_bits(single, plain, "one number a row");
    for (size_t i = 0; i < gate.size(); ++i) ASSERT_EQ(gated[i], plain[i] * up[i]);
  }
}

struct RotaryInputs {
  std::vector<float> x, frequencies;
  std::vector<int32_t> positions;
  int64_t heads = 0;
  int64_t head_dim = 0;
  RotaryStyle style{};
  float magnitude = 1;
};

std::vector<float> run_rotary(Backend& backend, const RotaryInputs& of) {
  std::vector<float> x = of.x;
  RotaryArgs args;
  args.x = x.data();
  args.ld = of.heads * of.head_dim;
  args.rows = static_cast<int64_t>(of.positions.size());
  args.heads = of.heads;
  args.head_dim = of.head_dim;
  args.rotary_dim = 2 * static_cast<int64_t>(of.frequencies.size());
  args.style = of.style;
  args.inverse_frequencies = of.frequencies.data();
  args.magnitude = of.magnitude;
  args.positions = of.positions.data();
  backend.rotary(args);
  return x;
}

RotaryInputs rotary_inputs(RotaryStyle style, int64_t head_dim, int64_t rotary_dim) {
  RotaryInputs of;
  of.positions = {0, 1, 7, 511, 8191};
  of.heads = 3;
  of.head_dim = head_dim;
  of.style = style;
  of.x = normals(5 * of.heads * head_dim, 1);
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    of.frequencies.push_back(
        std::pow(1e4F, -2 * static_cast<float>(i) / static_cast<float>(rotary_dim)));
  }
  return of;
}

TEST_P(Rows, RotaryMatchesReference) {
  const auto backend = cpu_backend(GetParam(), 2);
  for (const RotaryStyle style : {RotaryStyle::kHalves, RotaryStyle::kNeighbours}) {
    for (const auto& [head_dim, rotary_dim] : {std::pair{2, 2}, {20, 4}, {64, 64}, {64, 16}}) {
      RotaryInputs of = rotary_inputs(style, head_dim, rotary_dim);
      of.magnitude = 1.25F;
      const auto got = run_rotary(*backend, of);
      for (size_t head = 0; head < 15; ++head) {
        const auto at = of.x.begin() + static_cast<int64_t>(head) * head_dim;
        const auto want = reference::rotate({at, at + head_dim}, rotary_dim, style, of.frequencies,
                                            of.positions[head / 3], 1.25);
        for (size_t e = 0; e < want.size(); ++e) {
          const float is = got[head * static_cast<size_t>(head_dim) + e];
          // Two products of numbers below 5 * 1.25, five roundings each.
          ASSERT_NEAR(static_cast<double>(is), want[e], 2 * 5 * 1.25 * 5 * kEps);
        }
      }
    }
  }
}

TEST_P(Rows, RotaryLeavesPositionZeroAndTheRestOfAHead) {
  const auto backend = cpu_backend(GetParam());
  const RotaryInputs of = rotary_inputs(RotaryStyle::kHalves, 64, 16);
  const auto got = run_rotary(*backend, of);
  for (size_t i = 0; i < got.size(); ++i) {
    if (i < 3 * 64 || i % 64 >= 16) {
      ASSERT_EQ(got[i], of.x[i]) << i;
    }
  }
}

TEST_P(Rows, AddAddsRowsApart) {
  const auto backend = cpu_backend(GetParam(), 2);
  for (const int64_t cols : {1, 16, 19, 600}) {
    const auto x = normals(40 * cols, 1);
    const auto y = normals(40 * (cols + 3), 2);
    auto got = y;
    backend->add(x.data(), cols, got.data(), cols + 3, 40, cols);
    for (int64_t i = 0; i < 40 * (cols + 3); ++i) {
      const int64_t row = i / (cols + 3);
      const int64_t col = i % (cols + 3);
      const auto at = static_cast<size_t>(i);
      const float want = col < cols ? y[at] + x[static_cast<size_t>(row * cols + col)] : y[at];
      ASSERT_EQ(got[at], want) << row << ", " << col;
    }
  }
}

TEST_P(Rows, DecodedRowsHaveTheReferencesBits) {
  const auto backend = cpu_backend(GetParam(), 2);
  for (const quant::Format format : kFormatsAll) {
    const int64_t cols = quant::block_values(format) == 1 ? 77 : 2 * 256;
    const Matrix w = matrix(format, 60, cols, 1);
    std::vector<std::byte> moved(w.bytes.size() + 1);
    std::copy(w.bytes.begin(), w.bytes.end(), moved.begin() + 1);
    std::vector<const std::byte*> rows;
    std::vector<float> want;
    for (int64_t row = 59; row >= 0; row -= 3) {
      rows.push_back(moved.data() + 1 + row * w.row_bytes());
      want.insert(want.end(), w.values.begin() + row * cols, w.values.begin() + (row + 1) * cols);
    }
    std::vector<float> got(want.size());
    backend->decode_rows(format, rows, cols, got.data(), cols);
    expect_same_bits(got, want, std::string(name(format)));
  }
}

TEST_P(Rows, EveryHalfDecodesToTheReferencesBits) {
  const auto backend = cpu_backend(GetParam());
  for (const quant::Format format : {quant::Format::kF16, quant::Format::kBF16}) {
    std::vector<std::byte> bytes(2 * 65536);
    for (size_t i = 0; i < 65536; ++i) {
      const auto half = static_cast<uint16_t>(i);
      std::memcpy(bytes.data() + 2 * i, &half, sizeof half);
    }
    std::vector<float> want(65536);
    quant::decode(format, bytes, want);
    std::vector<float> got(65536);
    const std::byte* const row = bytes.data();
    backend->decode_rows(format, {&row, 1}, 65536, got.data(), 65536);
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << name(format);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Rows, testing::ValuesIn(instruction_sets()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace transload::kernels
