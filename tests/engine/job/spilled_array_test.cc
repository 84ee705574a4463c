#include "engine/job/spilled_array.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "tests/engine/job/allocations.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {
namespace {

using tests::ScratchFolder;

class SpilledArrayTest : public testing::Test {
 protected:
  ScratchFolder folder_;
  SpilledArray<uint64_t> array_{folder_.path("")};
};

TEST_F(SpilledArrayTest, AShortOneNeedsNoFolder) {
  SpilledArray<uint64_t> array(folder_.path("nowhere"));
  for (uint64_t i = 0; i < 100'000; ++i) array.push_back(i * i);
  for (uint64_t i = 0; i < 100'000; ++i) ASSERT_EQ(array[i], i * i);
}

TEST_F(SpilledArrayTest, ALongOneInAFolderThatIsNotThereSaysSo) {
  SpilledArray<uint64_t> array(folder_.path("nowhere"));
  array.push_back(7);
  EXPECT_THROW(array.resize(1'000'000), Error);
  EXPECT_EQ(array.size(), 1u);
  EXPECT_EQ(array[0], 7u);
}

TEST_F(SpilledArrayTest, KeepsWhatWasWrittenWhileItGrowsAndPagesComeAndGo) {
  constexpr uint64_t kCount = 3'000'000;
  for (uint64_t i = 0; i < kCount; ++i) array_.push_back(~i);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t at = random() % kCount;
    ASSERT_EQ(array_[at], ~at) << at;
    if (i % 2 == 0) array_.set(at, ~at);
  }
  uint64_t at = 0;
  for (const uint64_t value : array_) ASSERT_EQ(value, ~at++);
  EXPECT_EQ(at, kCount);
}

TEST_F(SpilledArrayTest, WhatIsNewIsZero) {
  array_.resize(10);
  array_.resize(2'000'000);
  array_.resize(9'000'000);
  for (const uint64_t value : array_) ASSERT_EQ(value, 0u);
}

TEST_F(SpilledArrayTest, TakesLittleMemoryHoweverItIsUsed) {
  constexpr uint64_t kCount = 4'000'000;
  const int64_t before = tests::live_bytes();
  tests::reset_peak();
  array_.reserve(kCount);
  for (uint64_t i = 0; i < kCount; ++i) array_.push_back(i);
  std::mt19937_64 random(2);
  for (int i = 0; i < 50'000; ++i) ASSERT_LT(array_[random() % kCount], kCount);
  EXPECT_LE(tests::peak_bytes() - before, SpilledBytes::kKeptBytes + (64 << 10));
}

TEST_F(SpilledArrayTest, LeavesNoFile) {
  array_.resize(1'000'000);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path("")));
}

}  // namespace
}  // namespace transload::engine
