#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "offload/disk.h"
#include "offload/faults.h"
#include "tests/offload/support.h"

namespace transload::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Engine = DiskOptions::Engine;

// Answers by a function of the request and how many came before.
class ScriptedFaults : public DiskFaults {
 public:
  using Script = std::function<int64_t(const Request&, int64_t count)>;
  explicit ScriptedFaults(Script script) : script_(std::move(script)) {}
  int64_t answer(const Request& request) override { return script_(request, count_++); }
  int64_t count() const { return count_; }

 private:
  Script script_;
  int64_t count_ = 0;
};

// Every second request meets `answer`.
ScriptedFaults every_second(int64_t answer) {
  return ScriptedFaults([answer](const DiskFaults::Request& request, int64_t count) {
    return count % 2 == 0 ? std::min(answer, request.bytes) : request.bytes;
  });
}

class DiskFaultsTest : public testing::TestWithParam<std::pair<Engine, bool>> {  // direct?
 protected:
  static constexpr int64_t kSpillBytes = 96 * kKiB;

  void SetUp() override {
    const auto probes = probe_disk_engines();
    options_.engine = GetParam().first;
    if (!probes[options_.engine == Engine::kIoUring ? 0 : 1].works) {
      GTEST_SKIP() << "io_uring is not allowed here";
    }
    spill_ = File::create_spill(directory_.path(), kSpillBytes);
    if (!GetParam().second) make_buffered(spill_.descriptor());
    options_.request_bytes = 32 * kKiB;
    options_.queue_depth = 4;
  }

  std::unique_ptr<DiskLane> make_lane(DiskFaults* faults) {
    auto lane = make_disk_lane(options_, faults);
    const bool direct = GetParam().second && spill_.direct();
    lane->add_file(spill_.descriptor(), spill_.bytes(), "/the/spill", direct);
    return lane;
  }

  // Writes random bytes and reads them back; true if they are the same.
  bool round_trip(DiskLane& lane, unsigned seed) {
    Pages memory(2 * kSpillBytes);
    const auto content = random_bytes(kSpillBytes, seed);
    std::memcpy(memory.data(), content.data(), content.size());
    const DiskRequest out{0, 0, kSpillBytes, memory.data()};
    lane.submit({&out, 1}, true, 1);
    lane.finish();
    const DiskRequest in{0, 0, kSpillBytes, memory.data() + kSpillBytes};
    lane.submit({&in, 1}, false, 2);
    lane.finish();
    return std::memcmp(memory.data() + kSpillBytes, content.data(), content.size()) == 0;
  }

  bool round_trip(DiskFaults* faults, unsigned seed) {
    return round_trip(*make_lane(faults), seed);
  }

  std::string failing_write(DiskFaults* faults, Kind kind) {
    auto lane = make_lane(faults);
    Pages memory(kSpillBytes);
    const DiskRequest out{0, 0, kSpillBytes, memory.data()};
    lane->submit({&out, 1}, true, 1);
    return error_text(kind, [&] { lane->finish(); });
  }

  TempDir directory_;
  File spill_;
  DiskOptions options_;
};

INSTANTIATE_TEST_SUITE_P(
    Engines, DiskFaultsTest,
    testing::Values(std::pair(Engine::kIoUring, true), std::pair(Engine::kIoUring, false),
                    std::pair(Engine::kThreads, true), std::pair(Engine::kThreads, false)),
    [](const auto& one) {
      return std::string(one.param.first == Engine::kIoUring ? "IoUring" : "Threads") +
             (one.param.second ? "Direct" : "Buffered");
    });

TEST_P(DiskFaultsTest, ChangeNothingWhenShort) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4095}, kPageBytes, int64_t{10'000}}) {
    ScriptedFaults faults = every_second(bytes);
    EXPECT_TRUE(round_trip(&faults, static_cast<unsigned>(bytes))) << bytes << " bytes at a time";
    EXPECT_GT(faults.count(), 2 * kSpillBytes / options_.request_bytes);
  }
}

TEST_P(DiskFaultsTest, ChangeNothingWhenZeroBytesMove) {
  ScriptedFaults faults = every_second(0);
  EXPECT_TRUE(round_trip(&faults, 1));
}

TEST_P(DiskFaultsTest, ChangeNothingWhenInterruptedOrTurnedAway) {
  for (const int error : {EINTR, EAGAIN}) {
    ScriptedFaults faults = every_second(-error);
    EXPECT_TRUE(round_trip(&faults, 2)) << std::strerror(error);
  }
}

TEST_P(DiskFaultsTest, ChangeNothingInAnyMixture) {
  std::vector<int64_t> choices(1);
  ScriptedFaults faults([&](const DiskFaults::Request& request, int64_t count) {
    if (count % 5 == 4) return request.bytes;
    return std::min(choices[static_cast<size_t>(count) % choices.size()], request.bytes);
  });
  auto lane = make_lane(&faults);
  unsigned seed = 3;
  const bool ok = rc::check("any mixture of passing faults", [&] {
    choices = *rc::gen::container<std::vector<int64_t>>(
        64, rc::gen::oneOf(rc::gen::element<int64_t>(0, -EINTR, -EAGAIN, 1, 511, 4096, 9000),
                           rc::gen::inRange<int64_t>(1, 32 * kKiB)));
    RC_ASSERT(round_trip(*lane, ++seed));
  });
  EXPECT_TRUE(ok);
}

TEST_P(DiskFaultsTest, ShortWritesReallyLeaveTheRestUnwritten) {
  // Else the tests above would prove nothing: the rest of the first request never arrives.
  ScriptedFaults faults([](const DiskFaults::Request& request, int64_t count) -> int64_t {
    return count == 0 ? kPageBytes : (request.offset == kPageBytes ? -EIO : request.bytes);
  });
  EXPECT_THAT(failing_write(&faults, Kind::kIo), HasSubstr("offset 4096"));
  Pages read_back(kPageBytes);
  ASSERT_EQ(pread(spill_.descriptor(), read_back.data(), kPageBytes, 0), kPageBytes);
  EXPECT_EQ(read_back.data()[0], std::byte{0xEE});
  ASSERT_EQ(pread(spill_.descriptor(), read_back.data(), kPageBytes, kPageBytes), kPageBytes);
  EXPECT_EQ(read_back.data()[0], std::byte{0});
}

TEST_P(DiskFaultsTest, NameFileOffsetAndCauseOfAnIoError) {
  ScriptedFaults faults([](const DiskFaults::Request& request, int64_t) -> int64_t {
    return request.offset == 64 * kKiB ? -EIO : request.bytes;
  });
  EXPECT_THAT(failing_write(&faults, Kind::kIo),
              AllOf(HasSubstr("write of 32768 bytes at offset 65536 of '/the/spill'"),
                    HasSubstr("check the disk"), HasSubstr("Input/output error")));
}

TEST_P(DiskFaultsTest, NameTheFixOfAFullDisk) {
  ScriptedFaults faults([](const DiskFaults::Request&, int64_t) -> int64_t { return -ENOSPC; });
  EXPECT_THAT(
      failing_write(&faults, Kind::kIo),
      AllOf(HasSubstr("'/the/spill'"), HasSubstr("--disk-dir"), HasSubstr("No space left")));
  EXPECT_EQ(faults.count(), 1) << "a failed transfer goes on";
}

TEST_P(DiskFaultsTest, EndAWriteThatNeverMoves) {
  ScriptedFaults faults([](const DiskFaults::Request&, int64_t) -> int64_t { return 0; });
  EXPECT_THAT(failing_write(&faults, Kind::kIo), HasSubstr("takes no bytes"));
}

TEST_P(DiskFaultsTest, EndARequestThatIsAlwaysTurnedAway) {
  ScriptedFaults faults([](const DiskFaults::Request&, int64_t) -> int64_t { return -EAGAIN; });
  EXPECT_THAT(failing_write(&faults, Kind::kIo), HasSubstr("temporarily unavailable"));
}

TEST_P(DiskFaultsTest, EndAReadThatNeverMoves) {
  ScriptedFaults faults([](const DiskFaults::Request&, int64_t) -> int64_t { return 0; });
  auto lane = make_lane(&faults);
  Pages memory(kPageBytes);
  const DiskRequest in{0, 0, kPageBytes, memory.data()};
  lane->submit({&in, 1}, false, 1);
  EXPECT_THAT(error_text(Kind::kBadInput, [&] { lane->finish(); }), HasSubstr("ends early"));
}

TEST_P(DiskFaultsTest, LeaveTheTransfersBehindAFailedOneAlone) {
  ScriptedFaults faults([](const DiskFaults::Request& request, int64_t) -> int64_t {
    return request.offset == 0 ? -EIO : request.bytes;
  });
  auto lane = make_lane(&faults);
  Pages memory(kSpillBytes);
  const DiskRequest bad{0, 0, kSpillBytes, memory.data()};
  const DiskRequest good{0, kPageBytes, kPageBytes, memory.data()};
  lane->submit({&bad, 1}, true, 1);
  lane->submit({&good, 1}, true, 2);
  uint64_t token = 0;
  const auto drain = [&] {
    while (!lane->try_finish(&token)) {
    }
  };
  EXPECT_THAT(error_text(Kind::kIo, drain), HasSubstr("offset 0 of"));
  EXPECT_EQ(lane->open_transfers(), 1);
  EXPECT_EQ(lane->finish(), 2U);
}

}  // namespace
}  // namespace transload::offload
