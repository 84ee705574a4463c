// Products by matrix tiles, over an emulation of their instructions: see emulated_tiles.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/storage_ops.h"
#include "tests/kernels/emulated_tile_ops.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/matmul_inputs.h"
#include "tests/reference/matmul.h"
#include "tests/reference/rounded_rows.h"

namespace transload::kernels {
namespace {

using quant::Format;

constexpr Format kCodeFormats[] = {Format::kQ4_0, Format::kQ4_1, Format::kQ8_0,
                                   Format::kQ4_K, Format::kQ5_K, Format::kQ6_K};
constexpr Format kPlainFormats[] = {Format::kF16, Format::kBF16};

Matrix whole_blocks(Format format, int64_t rows, int64_t cols) {
  const int64_t block = quant::block_values(format);
  return matrix(format, rows, (cols + block - 1) / block * block, 3);
}

struct Aligned {
  alignas(64) std::byte bytes[64];
};

// Rows [first, first + rows) of w, a panel at a time, as the backend calls it.
std::vector<float> multiply_panels(const cpu::StorageOps& ops, const Inputs& in, const Matrix& w,
                                   int64_t first, int64_t rows) {
  const int64_t x_bytes = cpu::x_row_bytes(w.cols);
  std::vector<std::byte> x(static_cast<size_t>(in.m * x_bytes));
  for (int64_t i = 0; i < in.m; ++i) {
    ops.prepare_row(in.x.data() + i * w.cols, w.cols, x.data() + i * x_bytes);
  }
  std::vector<Aligned> scratch(static_cast<size_t>(cpu::storage_scratch_bytes(w.cols) / 64 + 1));
  std::vector<float> y(static_cast<size_t>(in.m * rows), NAN);
  for (int64_t row = 0; row < rows; row += cpu::kStoragePanel) {
    cpu::StoragePanelArgs of;
    of.x = x.data();
    of.m = in.m;
    of.slice = w.bytes.data() + first * w.row_bytes();
    of.format = w.format;
    of.cols = w.cols;
    of.first = row;
    of.rows = std::min(cpu::kStoragePanel, rows - row);
    of.bias = in.bias.empty() ? nullptr : in.bias.data() + first + row;
    of.y = y.data() + row;
    of.ld_y = rows;
    of.scratch = scratch.front().bytes;
    ops.multiply_panel(of);
  }
  return y;
}

class TileMatmul : public testing::Test {
 protected:
  void SetUp() override {
    const auto available = cpu::available_instructions();
    if (available.back() < cpu::InstructionSet::kAvx512 || !cpu::has(cpu::Extension::kAvx512Bf16) ||
        !cpu::has(cpu::Extension::kAvx512Vnni)) {
      GTEST_SKIP() << "this processor lacks AVX-512 with VNNI and BF16";
    }
  }

  static cpu::StorageOps without_tiles(Format format) {
    return cpu::storage_ops(format, cpu::InstructionSet::kAvx512);
  }
  static cpu::StorageOps with_tiles(Format format) {
    cpu::StorageOps ops = without_tiles(format);
    ops.multiply_panel = quant::block_values(format) > 1 ? multiply_codes_by_emulated_tiles
                                                         : multiply_brain_by_emulated_tiles;
    return ops;
  }
};

TEST_F(TileMatmul, ProductsOfCodesHaveTheBitsOfTheOtherInstructions) {
  for (const Format format : kCodeFormats) {
    const Matrix w = whole_blocks(format, 37, 96);
    for (const int64_t m : {1, 5, 15, 16, 17, 33}) {
      const Inputs in = inputs(m, w, m != 5, 5);
      for (const int64_t rows : {1, 15, 16, 17, 37}) {
        expect_same_bits(multiply_panels(with_tiles(format), in, w, 37 - rows, rows),
                         multiply_panels(without_tiles(format), in, w, 37 - rows, rows),
                         std::string(name(format)) + " m " + std::to_string(m));
      }
    }
  }
}

// A sum a column is more roundings than there are.
TEST_F(TileMatmul, ProductsOfBfloat16MatchTheReference) {
  for (const Format format : kPlainFormats) {
    for (const int64_t cols : {1, 7, 31, 32, 33, 100, 1024}) {
      const Matrix w = matrix(format, 37, cols, 3);
      for (const int64_t m : {1, 16, 19}) {
        const Inputs in = inputs(m, w, true, 5);
        const auto y = multiply_panels(with_tiles(format), in, w, 0, 37);
        const auto want =
            reference::matmul(reference::round_to_bfloat16(in.x),
                              reference::round_to_bfloat16(w.values), in.bias, m, 37, cols);
        for (size_t i = 0; i < y.size(); ++i) {
          const double bound = static_cast<double>(cols + 4) * kEps * want[i].magnitude;
          ASSERT_LE(std::fabs(static_cast<double>(y[i]) - want[i].value), bound)
              << name(format) << " cols " << cols << " m " << m << " at " << i << ": want "
              << want[i].value << ", got " << y[i];
        }
      }
    }
  }
}

TEST_F(TileMatmul, ARowsBitsDoNotDependOnItsCompany) {
  const Matrix w = matrix(Format::kBF16, 37, 100, 1);
  const Inputs all = inputs(40, w, true, 2);
  const auto together = multiply_panels(with_tiles(Format::kBF16), all, w, 0, 37);
  for (const int64_t m : {1, 3, 16, 17, 39}) {
    const Inputs part = {{all.x.end() - m * w.cols, all.x.end()}, all.bias, m};
    expect_same_bits(multiply_panels(with_tiles(Format::kBF16), part, w, 0, 37),
                     {together.end() - m * w.rows, together.end()}, std::to_string(m) + " rows");
  }
}

TEST_F(TileMatmul, BitsDoNotDependOnSlices) {
  const Matrix w = matrix(Format::kF16, 45, 64, 1);
  const Inputs in = inputs(3, w, true, 2);
  const auto whole = multiply_panels(with_tiles(Format::kF16), in, w, 0, 45);
  for (const int64_t first : {1, 9, 30, 44}) {
    const auto part = multiply_panels(with_tiles(Format::kF16), in, w, first, 45 - first);
    for (size_t i = 0; i < part.size(); ++i) {
      const auto rows = static_cast<size_t>(45 - first);
      ASSERT_EQ(part[i], whole[i / rows * 45 + static_cast<size_t>(first) + i % rows]) << i;
    }
  }
}

// What the processor has is one thing, what the system allows another.
TEST(Instructions, TilesThatTheSystemDeniesFallBackToAvx512) {
  const auto everything = [](cpu::Extension) { return true; };
  const auto no_tiles = [](cpu::Extension of) { return of != cpu::Extension::kAmx; };
  const auto allowed = [] { return true; };
  const auto denied = [] { return false; };
  const auto best = [](const auto& available) { return cpu::choose_instructions("", available); };
  const auto without = cpu::available_instructions(everything, denied);
  if (without.back() != cpu::InstructionSet::kAvx512) GTEST_SKIP() << "no AVX-512";
  EXPECT_EQ(best(without), cpu::InstructionSet::kAvx512);
  EXPECT_THROW(cpu::choose_instructions("amx", without), Error);
  EXPECT_EQ(best(cpu::available_instructions(everything, allowed)), cpu::InstructionSet::kAmx);
  const auto never = []() -> bool {
    throw std::logic_error("asked without the processor's tiles");
  };
  EXPECT_EQ(best(cpu::available_instructions(no_tiles, never)), cpu::InstructionSet::kAvx512);
}

}  // namespace
}  // namespace transload::kernels
