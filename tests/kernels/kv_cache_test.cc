// Numbers of the KV cache: rounding, and where KV blocks hold them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "quant/format.h"
#include "tests/kernels/fixture.h"

namespace transload::kernels {
namespace {

class NarrowKv : public testing::TestWithParam<std::string> {};

// What 16 bits a number make of a row.
std::vector<uint16_t> narrowed(Backend& backend, std::vector<float> row) {
  const auto values = static_cast<int64_t>(row.size());
  backend.narrow_kv({row.data(), values, 1, values, 16});
  std::vector<uint16_t> halves(row.size());
  std::memcpy(halves.data(), row.data(), halves.size() * sizeof(uint16_t));
  return halves;
}

TEST_P(NarrowKv, RoundsToTheNearestHalfAndTiesToEven) {
  const auto backend = cpu_backend(GetParam());
  std::vector<float> row = normals(1000, 1, 100);
  // Every half below infinity, what lies between it and the next, and their neighbours.
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = quant::half_to_float(half);
    const float middle = (low + quant::half_to_float(static_cast<uint16_t>(half + 1))) / 2;
    row.insert(row.end(), {low, -low, middle, -middle, std::nextafter(middle, 0.0F),
                           std::nextafter(middle, 1e6F)});
  }
  row.insert(row.end(), {65504, -65504, 65519.996F, 1e-30F, -0.0F, 7});  // and a short last vector
  const std::vector<uint16_t> halves = narrowed(*backend, row);
  for (size_t i = 0; i < row.size(); ++i) {
    ASSERT_EQ(halves[i], quant::float_to_half(row[i])) << row[i];
  }
}

TEST_P(NarrowKv, WhatOverflowsBecomesNaN) {
  const auto backend = cpu_backend(GetParam());
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> row;
  for (int i = 0; i < 5; ++i) {  // in whole vectors and in the tail
    row.insert(row.end(), {65520, -65520, 1e30F, infinity, -infinity, NAN, 65504});
  }
  const std::vector<uint16_t> halves = narrowed(*backend, row);
  for (size_t i = 0; i < row.size(); ++i) {
    ASSERT_EQ(std::isnan(quant::half_to_float(halves[i])), i % 7 != 6) << row[i];
  }
}

TEST_P(NarrowKv, RowsOfThirtyTwoBitsStayAsTheyAre) {
  const auto backend = cpu_backend(GetParam());
  const std::vector<float> row = normals(70, 3);
  std::vector<float> same = row;
  backend->narrow_kv({same.data(), 35, 2, 35, 32});
  expect_same_bits(same, row, "32 bits");
}

INSTANTIATE_TEST_SUITE_P(Cpu, NarrowKv, testing::ValuesIn(instruction_sets()),
                         [](const auto& of) { return of.param; });

// Number `index` of bits, as an integer.
uint32_t number(const std::vector<std::byte>& bytes, int64_t index, int64_t bits) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + index * bits / 8, static_cast<size_t>(bits / 8));
  return value;
}

TEST(WriteSlot, PutsEachHeadWhereAttentionReadsItAndNothingElsewhere) {
  for (const int64_t bits : {32, 16}) {
    const KvShape shape{2, 3, bits};
    std::vector<std::byte> token(static_cast<size_t>(layout::kv_bytes(12, bits)));
    for (size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(i + 1);
    std::vector<std::byte> block(static_cast<size_t>(shape.block_bytes()));
    constexpr int64_t kSlot = 63;
    write_slot({token.data(), token.data() + token.size() / 2, block.data(), kSlot}, shape);
    std::set<int64_t> written;
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t e = 0; e < 3; ++e) {
        const int64_t k = (2 * head * 3 + e) * kBlockSlots + kSlot;
        const int64_t v = ((2 * head + 1) * kBlockSlots + kSlot) * 3 + e;
        EXPECT_EQ(number(block, k, bits), number(token, head * 3 + e, bits));
        EXPECT_EQ(number(block, v, bits), number(token, 6 + head * 3 + e, bits));
        written.insert({k, v});
      }
    }
    for (int64_t i = 0; i < 2 * 2 * 3 * kBlockSlots; ++i) {
      EXPECT_EQ(number(block, i, bits) != 0, written.contains(i)) << i << " of " << bits;
    }
  }
}

}  // namespace
}  // namespace transload::kernels
