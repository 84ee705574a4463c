#include "kvcache/blocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace transload::kvcache {
namespace {

using layout::KvPlace;
using layout::Tier;

constexpr int64_t kBytes = 4096;

class Walk : public ::testing::Test {
 protected:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(40 * kBytes);
  BlockMemory memory_{bytes_.data(), bytes_.data() + 10 * kBytes, bytes_.data() + 20 * kBytes,
                      bytes_.data() + 30 * kBytes, kBytes};

  std::byte* at(int64_t block) { return bytes_.data() + block * kBytes; }
};

TEST_F(Walk, FindsHomesAndRingsInTheOrderOfTheGroup) {
  const std::vector<KvPlace> places = {
      {Tier::kDevice, 3}, {Tier::kHost, 5}, {Tier::kDisk, 7}, {Tier::kDisk, 1}, {Tier::kHost, 0}};
  BlockWalk walk(memory_, places, 2, 4);
  const BlockAt device = walk.next();
  EXPECT_EQ(device.device, at(3));
  EXPECT_EQ(device.host, nullptr);
  const BlockAt host = walk.next();
  EXPECT_EQ(host.device, at(12));
  EXPECT_EQ(host.host, at(25));
  const BlockAt disk = walk.next();
  EXPECT_EQ(disk.device, at(13));
  EXPECT_EQ(disk.host, at(34));
  EXPECT_EQ(walk.next().host, at(35));
  EXPECT_EQ(walk.next().device, at(15));
}

TEST_F(Walk, UsesNoRingThatIsNotThere) {
  const std::vector<KvPlace> places = {{Tier::kHost, 1}, {Tier::kDisk, 2}};
  memory_.device_ring = nullptr;  // attention on the host
  BlockWalk on_host(memory_, places, 0, 0);
  EXPECT_EQ(on_host.next().device, nullptr);
  EXPECT_EQ(on_host.next().host, at(30));
  memory_.device_ring = bytes_.data() + 10 * kBytes;
  memory_.host_ring = nullptr;  // a single tier
  BlockWalk single(memory_, std::span(places).subspan(1), 0, 0);
  const BlockAt disk = single.next();
  EXPECT_EQ(disk.device, at(10));
  EXPECT_EQ(disk.host, nullptr);
}

}  // namespace
}  // namespace transload::kvcache
