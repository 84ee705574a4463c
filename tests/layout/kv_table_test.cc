#include "layout/kv_table.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "base/error.h"
#include "base/units.h"

namespace transload::layout {
namespace {

TEST(KvTable, BlocksHoldSixtyFourTokensInWholePages) {
  EXPECT_EQ(kv_block_bytes(3, 64, 32), 2 * 3 * 64 * 64 * 4);
  EXPECT_EQ(kv_block_bytes(3, 64, 16), 2 * 3 * 64 * 64 * 2);
  EXPECT_EQ(kv_block_bytes(1, 1, 16), kPageBytes);
  EXPECT_EQ(kv_block_bytes(1, 9, 32) % kPageBytes, 0);
  EXPECT_EQ(kv_block_bytes(1, 17, 16) % kPageBytes, 0);
}

TEST(KvTable, ReservesWhatASequenceCanNeedInEveryLayer) {
  KvTable table(2, 3, 4, {10, 10, 10});
  EXPECT_TRUE(table.reserve(1, 65));
  EXPECT_EQ(table.reserved_blocks(1), 2);
  EXPECT_EQ(table.reserved_blocks(0), 0);
  EXPECT_EQ(table.free_blocks(), 30 - 6);
  table.release(1);
  EXPECT_EQ(table.free_blocks(), 30);
}

TEST(KvTable, ReservesNothingWhereTooFewAreFree) {
  KvTable table(2, 3, 4, {5, 0, 5});
  EXPECT_FALSE(table.reserve(0, 256));  // 12 blocks
  EXPECT_EQ(table.free_blocks(), 10);
  EXPECT_EQ(table.reserved_blocks(0), 0);
  EXPECT_TRUE(table.reserve(0, 64));
}

TEST(KvTable, EachTiersPartFollowsItsCapacity) {
  KvTable table(1, 10, 10, {50, 100, 50});
  ASSERT_TRUE(table.reserve(0, 640));  // 100 of 200 blocks
  std::array<int, kTiers> there{};
  for (int64_t layer = 0; layer < 10; ++layer)
    for (int64_t block = 0; block < 10; ++block)
      ++there[static_cast<size_t>(table.at(0, layer, block).tier)];
  EXPECT_THAT(there, testing::ElementsAre(25, 50, 25));
}

TEST(KvTable, ABlockIsFreeOrBelongsToOneSequence) {
  std::mt19937_64 engine(3);
  KvTable table(6, 2, 5, {7, 20, 30});
  std::array<bool, 6> held{};
  for (int step = 0; step < 500; ++step) {
    const auto slot = static_cast<int64_t>(engine() % 6);
    bool& holds = held[static_cast<size_t>(slot)];
    if (holds) {
      table.release(slot);
      holds = false;
    } else {
      holds = table.reserve(slot, 1 + static_cast<int64_t>(engine() % 320));
    }
    std::set<std::pair<Tier, int32_t>> taken;
    for (int64_t s = 0; s < 6; ++s)
      for (int64_t layer = 0; layer < 2; ++layer)
        for (int64_t block = 0; block < table.reserved_blocks(s); ++block) {
          const KvPlace place = table.at(s, layer, block);
          ASSERT_TRUE(taken.emplace(place.tier, place.block).second);
        }
    ASSERT_EQ(static_cast<int64_t>(taken.size()) + table.free_blocks(), 57);
  }
}

TEST(KvTable, TakingTwiceOrTooMuchIsABug) {
  KvTable table(1, 1, 2, {10, 0, 0});
  EXPECT_THROW(table.reserve(0, 129), Error);
  ASSERT_TRUE(table.reserve(0, 128));
  EXPECT_THROW(table.reserve(0, 1), Error);
}

}  // namespace
}  // namespace transload::layout
