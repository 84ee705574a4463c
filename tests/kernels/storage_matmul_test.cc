// Compute::kFast: products with weights as they are stored.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/storage_ops.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/matmul_inputs.h"
#include "tests/reference/matmul.h"
#include "tests/reference/rounded_rows.h"

namespace transload::kernels {
namespace {

using quant::Format;

constexpr Format kSimpleFormats[] = {Format::kQ4_0, Format::kQ4_1, Format::kQ8_0};
constexpr Format kPlainFormats[] = {Format::kF16, Format::kBF16};

std::unique_ptr<Backend> storage_backend(const std::string& instructions, int threads = 1) {
  return cpu_backend(instructions, threads, 2048, Compute::kFast);
}

bool from_storage(Format format, const std::string& instructions) {
  const auto set = cpu::choose_instructions(instructions, cpu::available_instructions());
  return cpu::storage_ops(format, set).multiply_panel != nullptr;
}

std::vector<Format> formats_of(const std::string& instructions) {
  std::vector<Format> formats;
  for (const Format format : kFormatsAll)
    if (from_storage(format, instructions)) formats.push_back(format);
  return formats;
}

// w with the minimums of K formats added instead of taken away.
Matrix with_positive_minimums(const Matrix& w) {
  Matrix of = w;
  if (w.format == Format::kQ4_K || w.format == Format::kQ5_K) {
    for (size_t i = 3; i < w.bytes.size(); i += static_cast<size_t>(block_bytes(w.format)))
      of.bytes[i] ^= std::byte{0x80};
    quant::decode(of.format, of.bytes, of.values);
  }
  return of;
}

// The products of rounded rows are exact in every lane; what is rounded:
//   codes     a factor, a fused sum and one of the minimum a group, the sum of a group, x's code
//   bfloat16  a sum a column; products of two bfloat16 fit float32
// and a decoded weight three times. Scales are positive, so with minimums of the same sign as
// the codes no part exceeds |x| |w|.
void expect_near_reference(const Inputs& in, const Matrix& w, const std::vector<float>& y,
                           const std::string& what) {
  const bool codes = quant::block_values(w.format) > 1;
  const auto x = codes ? reference::round_to_codes(in.x) : reference::round_to_bfloat16(in.x);
  const auto weights = codes ? w.values : reference::round_to_bfloat16(w.values);
  const auto want = reference::matmul(x, weights, in.bias, in.m, w.rows, w.cols);
  const double roundings = static_cast<double>(codes ? 3 * (w.cols / 32) + 10 : w.cols + 4);
  const auto parts = codes ? with_positive_minimums(w).values : weights;
  const auto size = reference::matmul(x, parts, in.bias, in.m, w.rows, w.cols);
  ASSERT_EQ(want.size(), y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const double bound = roundings * kEps * size[i].magnitude;
    ASSERT_LE(std::fabs(static_cast<double>(y[i]) - want[i].value), bound)
        << what << " at " << i << ": want " << want[i].value << ", got " << y[i];
  }
}

// `cols`, or the whole blocks that hold them.
Matrix whole_blocks(Format format, int64_t rows, int64_t cols, uint32_t seed) {
  const int64_t block = quant::block_values(format);
  return matrix(format, rows, (cols + block - 1) / block * block, seed);
}

// Of column 6 in a row of as many columns as w.
size_t at(const Matrix& w, int64_t row) { return static_cast<size_t>(row * w.cols + 6); }

class StorageMatmul : public testing::TestWithParam<std::string> {};

TEST_P(StorageMatmul, MatchesReferenceForEveryFormat) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : formats_of(GetParam())) {
    for (const int64_t cols : {512, 1024}) {  // the second: a power of two of cache lines
      for (const int64_t m : {1, 2, 3, 4, 5, 7, 12, 130}) {
        const Matrix w = whole_blocks(format, 37, cols, 3);
        const Inputs in = inputs(m, w, m == 3 || m == 7, 5);
        const auto y = multiply(*backend, in, w, {w.slice(0, w.rows)});
        expect_near_reference(in, w, y, std::string(name(format)) + " m " + std::to_string(m));
      }
    }
  }
}

TEST_P(StorageMatmul, MatchesReferenceForAnyNumberOfRows) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : formats_of(GetParam())) {
    for (const int64_t rows : {1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 49}) {
      for (const int64_t m : {2, 9}) {
        const Matrix w = whole_blocks(format, rows, 96, 1);
        const Inputs in = inputs(m, w, true, 2);
        expect_near_reference(in, w, multiply(*backend, in, w, {w.slice(0, rows)}),
                              std::string(name(format)) + " rows " + std::to_string(rows));
      }
    }
  }
}

TEST_P(StorageMatmul, MatchesReferenceForAnyNumberOfPlainColumns) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : kPlainFormats) {
    if (!from_storage(format, GetParam())) continue;
    for (const int64_t cols : {1, 3, 7, 8, 9, 31, 33, 256, 331}) {
      const Matrix w = matrix(format, 20, cols, 1);
      const Inputs in = inputs(13, w, true, 2);
      expect_near_reference(in, w, multiply(*backend, in, w, {w.slice(0, 20)}),
                            std::string(name(format)) + " cols " + std::to_string(cols));
    }
  }
}

TEST_P(StorageMatmul, MatchesReferenceForSmolLm2) {
  const auto backend = storage_backend(GetParam());
  if (!from_storage(Format::kQ4_1, GetParam())) return;
  const Matrix up = matrix(Format::kQ4_1, 1536, 576, 1);
  const Matrix down = matrix(Format::kQ8_0, 576, 1536, 2);
  const Inputs into_up = inputs(5, up, false, 3);
  const Inputs into_down = inputs(5, down, false, 4);
  expect_near_reference(into_up, up, multiply(*backend, into_up, up, {up.slice(0, 1536)}), "up");
  expect_near_reference(into_down, down, multiply(*backend, into_down, down, {down.slice(0, 576)}),
                        "down");
}

// Codes of the largest magnitude on both sides, of either sign: no sum overflows or saturates.
TEST_P(StorageMatmul, ExactForTheLargestCodes) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : kSimpleFormats) {
    if (!from_storage(format, GetParam())) continue;
    for (const unsigned byte : {0x00U, 0x7fU, 0x80U, 0x81U, 0xffU}) {
      Matrix w = matrix(format, 16, 64, 1);
      const auto block = static_cast<size_t>(quant::block_bytes(format));
      const uint16_t one = quant::float_to_half(1);
      for (size_t at = 0; at < w.bytes.size(); at += block) {
        std::fill_n(w.bytes.begin() + static_cast<int64_t>(at), block, std::byte{0});
        std::memcpy(w.bytes.data() + at, &one, sizeof one);
        const size_t codes = block - (format == Format::kQ8_0 ? 32 : 16);
        for (size_t i = codes; i < block; ++i) w.bytes[at + i] = std::byte(byte);
      }
      quant::decode(format, w.bytes, w.values);
      for (const float sign : {1.0F, -1.0F}) {
        for (const int64_t m : {1, 6}) {
          Inputs in = inputs(m, w, false, 1);
          std::fill(in.x.begin(), in.x.end(), 127 * sign);
          const auto want = reference::matmul(in.x, w.values, {}, m, 16, 64);
          const auto y = multiply(*backend, in, w, {w.slice(0, 16)});
          for (size_t i = 0; i < y.size(); ++i)
            ASSERT_EQ(static_cast<double>(y[i]), want[i].value)
                << name(format) << " byte " << byte << " m " << m;
        }
      }
    }
  }
}

TEST_P(StorageMatmul, ZerosAndOutliers) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : formats_of(GetParam())) {
    const Matrix w = whole_blocks(format, 20, 64, 1);
    Inputs in = inputs(6, w, false, 1);
    std::fill(in.x.begin(), in.x.end(), 0.0F);
    in.x[at(w, 1)] = 1e30F;
    in.x[at(w, 2)] = 1e-40F;  // too small to count
    const auto y = multiply(*backend, in, w, {w.slice(0, 20)});
    for (size_t i = 0; i < y.size(); ++i) {
      if (i / 20 == 1) {
        const float want = w.values[at(w, static_cast<int64_t>(i % 20))] * 1e30F;
        ASSERT_NEAR(y[i], want, 0.02F * std::fabs(want)) << name(format);
      } else {
        ASSERT_NEAR(y[i], 0.0F, 1e-35F) << name(format);
      }
    }
  }
}

TEST_P(StorageMatmul, WhatIsNoNumberStaysNone) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : formats_of(GetParam())) {
    for (const float poison : {NAN, -NAN, INFINITY, -INFINITY}) {
      for (const int64_t m : {3, 9}) {
        const Matrix w = whole_blocks(format, 20, 64, 1);
        Inputs in = inputs(m, w, false, 1);
        in.x[at(w, 1)] = poison;
        const auto y = multiply(*backend, in, w, {w.slice(0, 20)});
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_EQ(std::isfinite(y[i]), i / 20 != 1) << name(format) << " at " << i;
      }
    }
  }
}

TEST_P(StorageMatmul, ARowsBitsDoNotDependOnItsCompany) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : formats_of(GetParam())) {
    const Matrix w = whole_blocks(format, 45, quant::block_values(format) == 1 ? 1024 : 96, 1);
    const Inputs all = inputs(150, w, true, 2);
    const auto together = multiply(*backend, all, w, {w.slice(0, w.rows)});
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 70, 129}) {
      for (int64_t first = 0; first + m <= 150; first += m) {
        const Inputs part = {
            {all.x.begin() + first * w.cols, all.x.begin() + (first + m) * w.cols}, all.bias, m};
        const std::vector<float> want(together.begin() + first * w.rows,
                                      together.begin() + (first + m) * w.rows);
        expect_same_bits(multiply(*backend, part, w, {w.slice(0, w.rows)}), want,
                         std::string(name(format)) + " batch of " + std::to_string(m));
      }
    }
  }
}

TEST_P(StorageMatmul, BitsDoNotDependOnSlices) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : formats_of(GetParam())) {
    const Matrix w = whole_blocks(format, 131, 64, 1);
    for (const int64_t m : {1, 9}) {
      const Inputs in = inputs(m, w, true, 2);
      const auto whole = multiply(*backend, in, w, {w.slice(0, w.rows)});
      std::mt19937 random(7);
      for (int turn = 0; turn < 20; ++turn) {
        expect_same_bits(multiply(*backend, in, w, random_slices(w, random)), whole,
                         "cut at random rows");
      }
    }
  }
}

TEST_P(StorageMatmul, WritesTheRowsOfItsSlicesAlone) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : formats_of(GetParam())) {
    const Matrix w = whole_blocks(format, 60, 32, 1);
    for (const int64_t m : {2, 5}) {
      const Inputs in = inputs(m, w, false, 2);
      const auto whole = multiply(*backend, in, w, {w.slice(0, 60)});
      for (const int64_t rows : {6, 19, 40}) {
        const auto part = multiply(*backend, in, w, {w.slice(7, rows)});
        for (size_t i = 0; i < part.size(); ++i) {
          const bool inside = i % 60 >= 7 && i % 60 < static_cast<size_t>(7 + rows);
          ASSERT_EQ(std::isnan(part[i]), !inside) << i;
          if (inside) {
            ASSERT_EQ(part[i], whole[i]);
          }
        }
      }
    }
  }
}

TEST_P(StorageMatmul, BitsDoNotDependOnThreads) {
  for (const int64_t m : {1, 17, 200}) {
    const Matrix w = matrix(Format::kQ4_1, 150, 256, 1);
    const Inputs in = inputs(m, w, true, 2);
    const auto alone = multiply(*storage_backend(GetParam(), 1), in, w, {w.slice(0, 150)});
    for (const int threads : {2, 3}) {
      const auto shared = multiply(*storage_backend(GetParam(), threads), in, w, {w.slice(0, 150)});
      expect_same_bits(shared, alone, std::to_string(threads) + " threads");
    }
  }
}

TEST_P(StorageMatmul, BitsDoNotDependOnAlignment) {
  const auto backend = storage_backend(GetParam());
  for (const Format format : kFormatsAll) {
    const Matrix w = matrix(format, 9, 256, 1);
    for (const int64_t m : {2, 5}) {
      const Inputs in = inputs(m, w, false, 2);
      const auto aligned = multiply(*backend, in, w, {w.slice(0, 9)});
      for (const size_t shift : {1U, 2U, 3U, 5U}) {
        // Of the exact size: AddressSanitizer sees a read beyond the slice.
        std::vector<std::byte> moved(w.bytes.size() + shift);
        std::copy(w.bytes.begin(), w.bytes.end(), moved.begin() + static_cast<int64_t>(shift));
        WeightSlice slice = w.slice(0, 9);
        slice.data = moved.data() + shift;
        expect_same_bits(multiply(*backend, in, w, {slice}), aligned, std::string(name(format)));
      }
    }
  }
}

TEST_P(StorageMatmul, OtherFormatsComputeInFloat32) {
  const auto backend = storage_backend(GetParam());
  const auto plain = cpu_backend(GetParam());
  for (const Format format : kFormatsAll) {
    if (from_storage(format, GetParam())) continue;
    const Matrix w = matrix(format, 37, 256, 1);
    const Inputs in = inputs(5, w, true, 2);
    expect_same_bits(multiply(*backend, in, w, {w.slice(0, 37)}),
                     multiply(*plain, in, w, {w.slice(0, 37)}), std::string(name(format)));
  }
}

// Sums of codes are exact and their order over groups is one, so instructions change no bits.
TEST_P(StorageMatmul, BitsOfCodesDoNotDependOnInstructions) {
  if (formats_of(GetParam()).empty()) return;
  for (const Format format : formats_of("avx2")) {
    const Matrix w = whole_blocks(format, 67, 288, 1);
    for (const int64_t m : {1, 3, 11}) {
      const Inputs in = inputs(m, w, true, 2);
      expect_same_bits(multiply(*storage_backend(GetParam()), in, w, {w.slice(0, 67)}),
                       multiply(*storage_backend("avx2"), in, w, {w.slice(0, 67)}), "beside avx2");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, StorageMatmul, testing::ValuesIn(instruction_sets()),
                         [](const auto& of) { return of.param; });

TEST(StorageScratch, IsAPanelAThreadAndTheRowsOfX) {
  CpuOptions options;
  options.max_cols = 576;
  options.max_head_dim = 64;
  options.compute = Compute::kFast;
  EXPECT_EQ(cpu_scratch_bytes(options), 2 * 32 * 2 * 576 + 256 * 2 * 576);
  options.threads = 3;
  EXPECT_EQ(cpu_scratch_bytes(options), 3 * 2 * 32 * 2 * 576 + 256 * 2 * 576);
  options.max_cols = 1024;  // whose rows would push each other out of the cache
  options.threads = 1;
  EXPECT_EQ(cpu_scratch_bytes(options), (2 * 32 + 256) * (2 * 1024 + 64));
}

}  // namespace
}  // namespace transload::kernels
