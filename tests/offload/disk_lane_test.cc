#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <map>

#include "offload/disk.h"
#include "tests/offload/fake_limiter.h"
#include "tests/offload/support.h"

namespace transload::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Engine = DiskOptions::Engine;

// An engine, with and without O_DIRECT.
struct Way {
  Engine engine;
  bool direct;
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << (way.engine == Engine::kIoUring ? "io_uring" : "threads")
       << (way.direct ? " direct" : " buffered");
}

bool works(Engine engine) {
  const auto probes = probe_disk_engines();
  return probes[engine == Engine::kIoUring ? 0 : 1].works;
}

class DiskLaneTest : public testing::TestWithParam<Way> {
 protected:
  static constexpr int64_t kFileBytes = 1'000'003;  // the last page is partial

  void SetUp() override {
    if (!works(GetParam().engine)) GTEST_SKIP() << "io_uring is not allowed here";
    data_ = random_bytes(kFileBytes, 11);
    write_file(directory_.file("data"), data_);
    file_ = File::open_read(directory_.file("data"), GetParam().direct);
    options_.engine = GetParam().engine;
    options_.request_bytes = 8 * kKiB;
    options_.queue_depth = 5;
    options_.max_transfers = 4;
  }

  int32_t add(DiskLane& lane, const File& file) {
    return lane.add_file(file.descriptor(), file.bytes(), file.name(), file.direct());
  }

  TempDir directory_;
  std::vector<std::byte> data_;
  File file_;
  DiskOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Ways, DiskLaneTest,
                         testing::Values(Way{Engine::kIoUring, true}, Way{Engine::kIoUring, false},
                                         Way{Engine::kThreads, true}, Way{Engine::kThreads, false}),
                         [](const auto& one) {
                           return std::string(one.param.engine == Engine::kIoUring ? "IoUring"
                                                                                   : "Threads") +
                                  (one.param.direct ? "Direct" : "Buffered");
                         });

TEST_P(DiskLaneTest, ReadsAWholeFileWhoseLastPageIsPartial) {
  auto lane = make_disk_lane(options_);
  Pages memory(kFileBytes);
  lane->register_memory(memory.data(), memory.bytes());
  const DiskRequest request{add(*lane, file_), 0, memory.bytes(), memory.data()};
  lane->submit({&request, 1}, false, 42);
  EXPECT_EQ(lane->finish(), 42U);
  EXPECT_EQ(std::memcmp(memory.data(), data_.data(), data_.size()), 0);
  EXPECT_EQ(lane->open_transfers(), 0);
}

TEST_P(DiskLaneTest, LeavesMemoryBehindTheLastPageAlone) {
  auto lane = make_disk_lane(options_);
  Pages memory(4 * kPageBytes);
  const int32_t file = add(*lane, file_);
  const int64_t last_page = round_down(kFileBytes, kPageBytes);
  const DiskRequest requests[] = {
      {file, last_page, 2 * kPageBytes, memory.data()},
      {file, last_page + 8 * kPageBytes, kPageBytes, memory.data() + 8192}};
  lane->submit(requests, false, 1);
  lane->finish();
  const int64_t tail = kFileBytes - last_page;
  EXPECT_EQ(std::memcmp(memory.data(), data_.data() + last_page, static_cast<size_t>(tail)), 0);
  for (int64_t i = kPageBytes; i < memory.bytes(); ++i) {
    ASSERT_EQ(memory.data()[i], std::byte{0xEE}) << "at byte " << i;
  }
}

TEST_P(DiskLaneTest, WritesAndReadsBackASpillFile) {
  const File spill = File::create_spill(directory_.path(), 300 * kKiB);
  if (!GetParam().direct) make_buffered(spill.descriptor());
  auto lane = make_disk_lane(options_);
  const int32_t file = lane->add_file(spill.descriptor(), spill.bytes(), spill.name(),
                                      GetParam().direct && spill.direct());
  Pages memory(600 * kKiB);
  lane->register_memory(memory.data(), memory.bytes());
  const auto content = random_bytes(300 * kKiB, 3);
  std::memcpy(memory.data(), content.data(), content.size());
  const DiskRequest out{file, 0, 300 * kKiB, memory.data()};
  lane->submit({&out, 1}, true, 1);
  lane->finish();
  const DiskRequest in{file, 0, 300 * kKiB, memory.data() + 300 * kKiB};
  lane->submit({&in, 1}, false, 2);
  lane->finish();
  EXPECT_EQ(std::memcmp(memory.data() + 300 * kKiB, content.data(), content.size()), 0);
}

TEST_P(DiskLaneTest, HandsOutCompletionsInOrderOfSubmission) {
  auto lane = make_disk_lane(options_);
  Pages memory(kFileBytes);
  const int32_t file = add(*lane, file_);
  // A long transfer first, so that the short ones behind it are done before it.
  const DiskRequest whole{file, 0, memory.bytes(), memory.data()};
  Pages page(kPageBytes);
  const DiskRequest small{file, 0, kPageBytes, page.data()};
  lane->submit({&whole, 1}, false, 7);
  lane->submit({&small, 1}, false, 3);
  lane->submit({}, false, 9);
  EXPECT_EQ(lane->open_transfers(), 3);
  EXPECT_EQ(lane->finish(), 7U);
  EXPECT_EQ(lane->finish(), 3U);
  EXPECT_EQ(lane->finish(), 9U);
  EXPECT_EQ(std::memcmp(memory.data(), data_.data(), data_.size()), 0);
}

TEST_P(DiskLaneTest, TryFinishNeverBlocksAndComesToTheSameEnd) {
  auto lane = make_disk_lane(options_);
  uint64_t token = 0;
  EXPECT_FALSE(lane->try_finish(&token));
  Pages memory(kFileBytes);
  const DiskRequest whole{add(*lane, file_), 0, memory.bytes(), memory.data()};
  lane->submit({&whole, 1}, false, 5);
  while (!lane->try_finish(&token)) {
  }
  EXPECT_EQ(token, 5U);
  EXPECT_EQ(std::memcmp(memory.data(), data_.data(), data_.size()), 0);
}

// One request of a random transfer into the next free bytes of `memory`.
DiskRequest any_request(int32_t file, const Pages& memory, int64_t* at) {
  const int64_t bytes = std::min(kPageBytes * *rc::gen::inRange(0, 20), memory.bytes() - *at);
  const DiskRequest request{file, kPageBytes * *rc::gen::inRange<int64_t>(0, 260), bytes,
                            memory.data() + *at};
  *at += bytes;
  return request;
}

TEST_P(DiskLaneTest, BringsTheRightBytesForAnyTransfers) {
  const bool ok = rc::check("any transfers", [&] {
    DiskOptions options = options_;
    options.request_bytes = kPageBytes * *rc::gen::inRange(1, 20);
    options.queue_depth = *rc::gen::inRange(1, 9);
    auto lane = make_disk_lane(options);
    const int32_t file = add(*lane, file_);
    Pages memory(kMiB);
    // Less than the transfers use: both kinds of requests, and some on the border.
    lane->register_memory(memory.data(), kMiB / 16);
    std::vector<DiskRequest> all;
    int64_t at = 0;
    uint64_t submitted = 0, finished = 0;
    for (int left = *rc::gen::inRange(1, 12); left > 0; --left) {
      if (lane->open_transfers() == options.max_transfers) RC_ASSERT(lane->finish() == finished++);
      std::vector<DiskRequest> requests(*rc::gen::inRange<size_t>(0, 4));
      for (DiskRequest& request : requests) request = any_request(file, memory, &at);
      all.insert(all.end(), requests.begin(), requests.end());
      lane->submit(requests, false, submitted++);
    }
    while (lane->open_transfers() > 0) RC_ASSERT(lane->finish() == finished++);
    RC_ASSERT(finished == submitted);
    for (const DiskRequest& request : all) {
      const int64_t inside = std::clamp<int64_t>(kFileBytes - request.offset, 0, request.bytes);
      RC_ASSERT(std::memcmp(request.memory, data_.data() + std::min(request.offset, kFileBytes),
                            static_cast<size_t>(inside)) == 0);
    }
  });
  EXPECT_TRUE(ok);
}

TEST_P(DiskLaneTest, SaysWhatItIs) {
  auto lane = make_disk_lane(options_);
  add(*lane, file_);
  const std::string text = lane->description();
  EXPECT_THAT(text, HasSubstr(GetParam().engine == Engine::kIoUring ? "io_uring" : "5 threads"));
  EXPECT_THAT(text, HasSubstr("depth 5"));
  EXPECT_THAT(text, HasSubstr(file_.direct() ? "O_DIRECT" : "buffered (1 of 1 files)"));
}

TEST_P(DiskLaneTest, DropsOpenTransfersWhenItGoesAway) {
  Pages memory(kFileBytes), second(kFileBytes);
  {
    auto lane = make_disk_lane(options_);
    const DiskRequest whole{add(*lane, file_), 0, memory.bytes(), memory.data()};
    lane->submit({&whole, 1}, false, 1);
    const DiskRequest again{whole.file, 0, second.bytes(), second.data()};
    lane->submit({&again, 1}, false, 2);
  }
  // Nothing writes into the memory any more, whatever goes on elsewhere.
  std::memset(memory.data(), 0, static_cast<size_t>(memory.bytes()));
  std::memset(second.data(), 0, static_cast<size_t>(second.bytes()));
  Pages third(kFileBytes);
  auto lane = make_disk_lane(options_);
  const DiskRequest whole{add(*lane, file_), 0, third.bytes(), third.data()};
  lane->submit({&whole, 1}, false, 3);
  EXPECT_EQ(lane->finish(), 3U);
  EXPECT_EQ(std::memcmp(third.data(), data_.data(), data_.size()), 0);
  for (int64_t i = 0; i < memory.bytes(); ++i) {
    ASSERT_EQ(memory.data()[i], std::byte{0}) << "at byte " << i;
    ASSERT_EQ(second.data()[i], std::byte{0}) << "at byte " << i;
  }
}

TEST_P(DiskLaneTest, FinishesNoEarlierThanTheLimiterBooked) {
  FakeLimiter limiter(1000.0);
  options_.limiter = &limiter;
  auto lane = make_disk_lane(options_);
  Pages memory(3 * kPageBytes);
  const int32_t file = add(*lane, file_);
  const DiskRequest requests[] = {{file, 0, kPageBytes, memory.data()},
                                  {file, kPageBytes, kPageBytes, memory.data() + kPageBytes}};
  const DiskRequest last{file, 0, kPageBytes, memory.data() + 2 * kPageBytes};
  const auto start = limiter.now();
  lane->submit(requests, false, 1);
  lane->submit({&last, 1}, false, 2);
  EXPECT_EQ(lane->finish(), 1U);
  EXPECT_EQ(limiter.now(), start + std::chrono::milliseconds(8192));
  EXPECT_EQ(lane->finish(), 2U);
  EXPECT_EQ(limiter.now(), start + std::chrono::milliseconds(8192 + 4096));
}

TEST_P(DiskLaneTest, TryFinishHoldsBackUntilTheBookedMoment) {
  FakeLimiter limiter(1000.0);
  options_.limiter = &limiter;
  auto lane = make_disk_lane(options_);
  Pages memory(kPageBytes);
  const int32_t file = add(*lane, file_);
  // Behind the end there is nothing to wait for but the limiter.
  const DiskRequest one{file, round_up(kFileBytes, kPageBytes), kPageBytes, memory.data()};
  lane->submit({&one, 1}, false, 1);
  uint64_t token = 0;
  limiter.advance(std::chrono::milliseconds(4095));
  EXPECT_FALSE(lane->try_finish(&token));
  limiter.advance(std::chrono::milliseconds(1));
  EXPECT_TRUE(lane->try_finish(&token));
  EXPECT_EQ(token, 1U);
  EXPECT_EQ(limiter.waits(), 0);
}

TEST_P(DiskLaneTest, NamesFileAndOffsetOfASystemError) {
  const int write_only = open(directory_.file("data").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(write_only, 0);
  auto lane = make_disk_lane(options_);
  const int32_t file = lane->add_file(write_only, kFileBytes, "model.gguf", false);
  Pages memory(kPageBytes);
  const DiskRequest one{file, 8192, kPageBytes, memory.data()};
  lane->submit({&one, 1}, false, 1);
  EXPECT_THAT(error_text(Kind::kIo, [&] { lane->finish(); }),
              AllOf(HasSubstr("read of 4096 bytes at offset 8192 of 'model.gguf'"),
                    HasSubstr("check the disk"), HasSubstr("Bad file descriptor")));
  close(write_only);
}

TEST_P(DiskLaneTest, NamesAFileThatEndsEarly) {
  auto lane = make_disk_lane(options_);
  Pages memory(kPageBytes);
  const int32_t file = lane->add_file(file_.descriptor(), kFileBytes + 10 * kPageBytes,
                                      "model.gguf", file_.direct());
  const int64_t end = round_up(kFileBytes, kPageBytes);
  const DiskRequest one{file, end, kPageBytes, memory.data()};
  lane->submit({&one, 1}, false, 1);
  EXPECT_THAT(error_text(Kind::kBadInput, [&] { lane->finish(); }),
              AllOf(HasSubstr("offset " + std::to_string(end) + " of 'model.gguf'"),
                    HasSubstr("ends early"), HasSubstr("restore it")));
}

TEST_P(DiskLaneTest, RefusesMoreThanItsLimits) {
  options_.max_requests = 3;
  options_.max_files = 1;
  auto lane = make_disk_lane(options_);
  Pages memory(4 * kPageBytes);
  const int32_t file = add(*lane, file_);
  EXPECT_THAT(error_text(Kind::kInternal, [&] { add(*lane, file_); }), HasSubstr("max_files"));
  std::vector<DiskRequest> requests;
  for (int64_t at = 0; at < memory.bytes(); at += kPageBytes) {
    requests.push_back({file, at, kPageBytes, memory.data() + at});
  }
  EXPECT_THAT(error_text(Kind::kInternal, [&] { lane->submit(requests, false, 0); }),
              HasSubstr("max_requests"));
  EXPECT_THAT(error_text(Kind::kInternal, [&] { lane->finish(); }),
              HasSubstr("without an open transfer"));
  for (uint64_t i = 0; i < 4; ++i) lane->submit({}, false, i);
  EXPECT_THAT(error_text(Kind::kInternal, [&] { lane->submit({}, false, 4); }),
              HasSubstr("max_transfers"));
  EXPECT_THAT(
      error_text(Kind::kInternal, [&] { lane->register_memory(memory.data(), kPageBytes); }),
      HasSubstr("transfers are open"));
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(lane->finish(), i);
  lane->submit({requests.data(), 3}, false, 8);
  EXPECT_EQ(lane->finish(), 8U);
}

TEST_P(DiskLaneTest, RefusesSenselessRequests) {
  auto lane = make_disk_lane(options_);
  Pages memory(2 * kPageBytes);
  const int32_t file = add(*lane, file_);
  const auto refuse = [&](DiskRequest one, bool write) {
    return error_text(Kind::kInternal, [&] { lane->submit({&one, 1}, write, 0); });
  };
  EXPECT_THAT(refuse({file + 1, 0, kPageBytes, memory.data()}, false), HasSubstr("unknown file"));
  EXPECT_THAT(refuse({file, -4096, kPageBytes, memory.data()}, false), HasSubstr("senseless"));
  EXPECT_THAT(refuse({file, 4096, INT64_MAX - 4095, memory.data()}, false), HasSubstr("senseless"));
  EXPECT_THAT(refuse({file, 0, kPageBytes, nullptr}, false), HasSubstr("without memory"));
  EXPECT_THAT(refuse({file, 4096 * 300, kPageBytes, memory.data()}, true),
              HasSubstr("outside its"));
  if (file_.direct()) {
    EXPECT_THAT(refuse({file, 1, kPageBytes, memory.data()}, false), HasSubstr("aligned"));
    EXPECT_THAT(refuse({file, 0, 512, memory.data()}, false), HasSubstr("aligned"));
    EXPECT_THAT(refuse({file, 0, kPageBytes, memory.data() + 512}, false), HasSubstr("aligned"));
  } else {
    const DiskRequest odd{file, 1001, 777, memory.data() + 5};
    lane->submit({&odd, 1}, false, 6);
    EXPECT_EQ(lane->finish(), 6U);
    EXPECT_EQ(std::memcmp(memory.data() + 5, data_.data() + 1001, 777), 0);
  }
  EXPECT_EQ(lane->open_transfers(), 0);
}

TEST(DiskLane, RefusesSenselessOptions) {
  EXPECT_THAT(error_text(Kind::kInternal, [] { make_disk_lane({.request_bytes = 1000}); }),
              HasSubstr("request_bytes"));
  EXPECT_THAT(error_text(Kind::kInternal, [] { make_disk_lane({.queue_depth = 0}); }),
              HasSubstr("queue_depth"));
  EXPECT_THAT(error_text(Kind::kInternal, [] { make_disk_lane({.max_transfers = 0}); }),
              HasSubstr("for nothing"));
}

}  // namespace
}  // namespace transload::offload
