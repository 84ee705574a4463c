// What the tests of the backends share: which backends there are, and numbers to feed them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/instructions.h"
#include "quant/format.h"

namespace transload::kernels {

inline constexpr double kEps = 0x1p-24;  // half a unit in the last place of 1

inline constexpr quant::Format kFormatsAll[] = {
    quant::Format::kF32,  quant::Format::kF16,  quant::Format::kBF16,
    quant::Format::kQ4_0, quant::Format::kQ4_1, quant::Format::kQ8_0,
    quant::Format::kQ4_K, quant::Format::kQ5_K, quant::Format::kQ6_K};

inline std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const cpu::InstructionSet set : cpu::available_instructions()) {
    names.emplace_back(name(set));
  }
  return names;
}

inline std::unique_ptr<Backend> cpu_backend(const std::string& instructions, int threads = 1,
                                            int64_t max_cols = 2048,
                                            Compute compute = Compute::kFloat32) {
  CpuOptions options;
  options.threads = threads;
  options.max_cols = max_cols;
  options.instructions = instructions;
  options.compute = compute;
  return make_cpu_backend(options);
}

inline std::vector<float> normals(int64_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// A matrix in its storage format and what it decodes to.
struct Matrix {
  quant::Format format{};
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> bytes;
  std::vector<float> values;

  int64_t row_bytes() const { return quant::row_bytes(format, cols); }
  WeightSlice slice(int64_t first, int64_t count) const {
    return {bytes.data() + first * row_bytes(), format, first, count, cols};
  }
};

// Random bytes; the F16 scales of a block are made small and finite.
inline void tame_scales(quant::Format format, std::byte* block, std::mt19937& random) {
  const auto store = [&](int64_t offset) {
    const float scale = (static_cast<float>(random() % 1000) + 1) * 1e-5F;
    const uint16_t half = quant::float_to_half(scale);
    std::memcpy(block + offset, &half, sizeof half);
  };
  if (format == quant::Format::kQ6_K) return store(208);
  store(0);
  const bool two = format == quant::Format::kQ4_1 || format == quant::Format::kQ4_K ||
                   format == quant::Format::kQ5_K;
  if (two) store(2);
}

inline Matrix matrix(quant::Format format, int64_t rows, int64_t cols, uint32_t seed) {
  Matrix of{format, rows, cols, {}, {}};
  of.bytes.resize(static_cast<size_t>(rows * of.row_bytes()));
  of.values.resize(static_cast<size_t>(rows * cols));
  if (quant::block_values(format) == 1) {
    quant::encode(format, normals(rows * cols, seed, 0.5F), of.bytes);
  } else {
    std::mt19937 random(seed);
    for (std::byte& byte : of.bytes) byte = static_cast<std::byte>(random() & 0xFFU);
    const auto step = static_cast<size_t>(quant::block_bytes(format));
    for (size_t i = 0; i < of.bytes.size(); i += step) {
      tame_scales(format, of.bytes.data() + i, random);
    }
  }
  quant::decode(format, of.bytes, of.values);
  return of;
}

inline void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want,
                             const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << " at " << i << ": want " << want[i] << ", got " << got[i];
  }
}

}  // namespace transload::kernels
