#include "quant/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace transload::quant {
namespace {

constexpr Format kAll[] = {Format::kF32,  Format::kF16,  Format::kBF16,
                           Format::kQ4_0, Format::kQ4_1, Format::kQ8_0,
                           Format::kQ4_K, Format::kQ5_K, Format::kQ6_K};

struct Case {
  Format format{};
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<Case> read_cases(const std::string& file) {
  std::ifstream in(std::string(TRANSLOAD_TEST_DATA) + "/quant/" + file);
  std::vector<Case> cases;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string format;
    std::string bytes;
    std::string values;
    size_t count = 0;
    words >> format >> count >> bytes >> values;
    Case one;
    one.format = *std::find_if(std::begin(kAll), std::end(kAll),
                               [&](Format of) { return name(of) == format; });
    one.bytes = from_hex(bytes);
    one.values.resize(count);
    const std::vector<std::byte> raw = from_hex(values);
    EXPECT_EQ(raw.size(), count * sizeof(float));
    std::memcpy(one.values.data(), raw.data(), raw.size());
    cases.push_back(one);
  }
  return cases;
}

std::vector<float> decoded(Format format, const std::vector<std::byte>& bytes) {
  const auto blocks = static_cast<int64_t>(bytes.size()) / block_bytes(format);
  std::vector<float> values(static_cast<size_t>(blocks * block_values(format)));
  decode(format, bytes, values);
  return values;
}

std::vector<std::byte> encoded(Format format, const std::vector<float>& values) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(row_bytes(format, static_cast<int64_t>(values.size()))));
  encode(format, values, bytes);
  return bytes;
}

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Format, SizesAreThoseOfTheGgufBlocks) {
  const int64_t values[] = {1, 1, 1, 32, 32, 32, 256, 256, 256};
  const int64_t bytes[] = {4, 2, 2, 18, 20, 34, 144, 176, 210};
  const char* names[] = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
  for (size_t i = 0; i < kFormats; ++i) {
    EXPECT_EQ(block_values(kAll[i]), values[i]) << names[i];
    EXPECT_EQ(block_bytes(kAll[i]), bytes[i]) << names[i];
    EXPECT_EQ(name(kAll[i]), names[i]);
  }
  EXPECT_EQ(row_bytes(Format::kQ4_1, 576), 18 * 20);
}

TEST(Format, ARowOfABrokenBlockIsOurBug) {
  EXPECT_THROW(row_bytes(Format::kQ4_1, 33), Error);
  std::vector<float> values(32);
  std::vector<std::byte> bytes(19);
  EXPECT_THROW(decode(Format::kQ4_1, bytes, values), Error);
}

TEST(Decode, EqualsTheGgufPackageBitForBit) {
  const std::vector<Case> cases = read_cases("decoded.txt");
  ASSERT_EQ(cases.size(), 8U);
  for (const Case& one : cases) {
    const std::vector<float> got = decoded(one.format, one.bytes);
    ASSERT_EQ(got.size(), one.values.size()) << name(one.format);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(one.values[i]))
          << name(one.format) << " value " << i << ": want " << one.values[i] << ", got " << got[i];
    }
  }
}

TEST(Decode, Q4_1ByHand) {
  std::vector<std::byte> block = bytes_of({0x00, 0x38, 0x00, 0xbc});  // 0.5 and -1
  for (int j = 0; j < 16; ++j) block.push_back(static_cast<std::byte>(j | ((15 - j) << 4)));
  const std::vector<float> values = decoded(Format::kQ4_1, block);
  for (size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(values[j], 0.5F * static_cast<float>(j) - 1);
    EXPECT_EQ(values[j + 16], 0.5F * static_cast<float>(15 - j) - 1);
  }
}

TEST(Decode, Q8_0ByHand) {
  std::vector<std::byte> block = bytes_of({0x00, 0x40});  // 2
  for (int j = 0; j < 32; ++j) block.push_back(static_cast<std::byte>(j - 16));
  const std::vector<float> values = decoded(Format::kQ8_0, block);
  for (size_t j = 0; j < 32; ++j) EXPECT_EQ(values[j], 2 * (static_cast<float>(j) - 16));
}

TEST(Decode, Q6_KByHand) {
  std::vector<std::byte> block(210);
  block[0] = std::byte{0x05};        // value 0: low bits 5; value 64: low bits 0
  block[128] = std::byte{0x02};      // value 0: high bits 2, so 37 - 32
  block[192] = std::byte{3};         // scale of values 0 to 15
  block[192 + 4] = std::byte{0xff};  // of values 64 to 79: -1
  block[209] = std::byte{0x3c};      // 1
  const std::vector<float> values = decoded(Format::kQ6_K, block);
  EXPECT_EQ(values[0], 15.0F);
  EXPECT_EQ(values[1], -96.0F);
  EXPECT_EQ(values[64], 32.0F);
  EXPECT_EQ(values[255], 0.0F);
}

TEST(Encode, EqualsTheGgufPackage) {
  const std::vector<Case> cases = read_cases("encoded.txt");
  ASSERT_EQ(cases.size(), 5U);
  for (const Case& one : cases) {
    EXPECT_EQ(encoded(one.format, one.values), one.bytes) << name(one.format);
  }
}

TEST(Encode, ZerosStayZeros) {
  const std::vector<float> zeros(64, 0.0F);
  for (const Format format :
       {Format::kF32, Format::kF16, Format::kBF16, Format::kQ4_0, Format::kQ4_1, Format::kQ8_0}) {
    EXPECT_THAT(decoded(format, encoded(format, zeros)), testing::Each(0.0F)) << name(format);
  }
}

TEST(Encode, RefusesKFormatsByName) {
  for (const Format format : {Format::kQ4_K, Format::kQ5_K, Format::kQ6_K}) {
    try {
      encoded(format, std::vector<float>(256));
      FAIL() << name(format);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Kind::kUnsupported);
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string(name(format))));
    }
  }
}

TEST(Encode, RefusesWhatAGroupCannotHold) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -1e6F}) {
    std::vector<float> values(64, 1.0F);
    values[37] = bad;
    try {
      encoded(Format::kQ4_0, values);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Kind::kBadInput);
      EXPECT_THAT(error.what(), testing::HasSubstr("value 37"));
    }
  }
}

// Largest distance of a value from its code: half a step, plus what rounding the scale (and the
// minimum) to F16 moves the farthest code, plus an F16 subnormal's step.
float code_bound(Format format, float largest) {
  const float tiny = 0x1p-24F;
  const float rounding = largest * 0x1p-11F;
  switch (format) {
    case Format::kQ4_0:
      return largest / 8 + 2 * rounding + 16 * tiny;  // +8 has no code: a step
    case Format::kQ4_1:
      return largest / 15 + 4 * rounding + 32 * tiny;
    default:
      return largest / 254 + 2 * rounding + 128 * tiny;
  }
}

TEST(Encode, RoundTripStaysWithinHalfAStep) {
  EXPECT_TRUE(rc::check([](const std::vector<uint16_t>& seeds, uint8_t exponent) {
    std::vector<float> values(32);
    const float scale = std::ldexp(1.0F, exponent % 20 - 14);
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) {
      const int code = i < seeds.size() ? seeds[i] % 2001 - 1000 : 0;
      values[i] = static_cast<float>(code) / 1000 * scale;
      largest = std::max(largest, std::fabs(values[i]));
    }
    for (const Format format : {Format::kQ4_0, Format::kQ4_1, Format::kQ8_0}) {
      const std::vector<float> got = decoded(format, encoded(format, values));
      for (size_t i = 0; i < 32; ++i) {
        RC_ASSERT(std::fabs(got[i] - values[i]) <= code_bound(format, largest));
      }
    }
  }));
}

TEST(Half, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool nan = (bits & 0x7fffU) > 0x7c00U;
    const auto want = static_cast<uint16_t>(nan ? bits | 0x200U : bits);
    ASSERT_EQ(float_to_half(half_to_float(half)), want) << std::hex << bits;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(float_to_half(1.0F), 0x3c00);
  EXPECT_EQ(float_to_half(1.0F + 0x1p-11F), 0x3c00);      // halfway, down to even
  EXPECT_EQ(float_to_half(1.0F + 3 * 0x1p-11F), 0x3c02);  // halfway, up to even
  EXPECT_EQ(float_to_half(65519.996F), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0F), 0x7c00);
  EXPECT_EQ(float_to_half(-1e9F), 0xfc00);
  EXPECT_EQ(float_to_half(0x1p-24F), 0x0001);
  EXPECT_EQ(float_to_half(0x1p-25F), 0x0000);
  EXPECT_EQ(float_to_half(0x1.8p-25F), 0x0001);
}

TEST(Bfloat16, RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(float_to_bfloat16(1.0F), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(1.0F + 0x1p-8F), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(1.0F + 3 * 0x1p-8F), 0x3f82);
  EXPECT_EQ(float_to_bfloat16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::nanf("")))));
  EXPECT_EQ(bfloat16_to_float(0x4049), 3.140625F);
}

}  // namespace
}  // namespace transload::quant
