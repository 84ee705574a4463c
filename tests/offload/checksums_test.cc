#include "offload/checksums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/offload/support.h"

namespace transload::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(BlockChecksums, AcceptsWhatWasSetLast) {
  BlockChecksums sums("/spill", 3, 4096);
  const auto old_data = random_bytes(4096, 1), new_data = random_bytes(1000, 2);
  sums.set(2, old_data.data(), 4096);
  sums.set(2, new_data.data(), 1000);
  sums.verify(2, new_data.data(), 1000);
  EXPECT_EQ(sums.blocks(), 3);
}

TEST(BlockChecksums, NamesFileBlockAndOffsetOfAChange) {
  BlockChecksums sums("/spill", 3, 4096);
  auto data = random_bytes(4096, 1);
  sums.set(2, data.data(), 4096);
  data[4095] ^= std::byte{1};
  EXPECT_THAT(error_text(Kind::kIo, [&] { sums.verify(2, data.data(), 4096); }),
              AllOf(HasSubstr("'/spill'"), HasSubstr("block 2"), HasSubstr("offset 8192")));
}

TEST(BlockChecksums, FindsTheBlockOfAnother) {
  BlockChecksums sums("/spill", 2, 64);
  const auto first = random_bytes(64, 1), second = random_bytes(64, 2);
  sums.set(0, first.data(), 64);
  sums.set(1, second.data(), 64);
  EXPECT_THAT(error_text(Kind::kIo, [&] { sums.verify(1, first.data(), 64); }),
              HasSubstr("block 1"));
}

TEST(BlockChecksums, RefusesBlocksNeverSetOrOutside) {
  BlockChecksums sums("/spill", 2, 64);
  const auto data = random_bytes(65, 1);
  EXPECT_THAT(error_text(Kind::kInternal, [&] { sums.verify(0, data.data(), 64); }),
              HasSubstr("or never"));
  EXPECT_THAT(error_text(Kind::kInternal, [&] { sums.verify(2, data.data(), 64); }),
              HasSubstr("outside"));
  EXPECT_THAT(error_text(Kind::kInternal, [&] { sums.set(-1, data.data(), 64); }),
              HasSubstr("outside"));
  EXPECT_THAT(error_text(Kind::kInternal, [&] { sums.set(0, data.data(), 65); }),
              HasSubstr("more than a block"));
}

}  // namespace
}  // namespace transload::offload
