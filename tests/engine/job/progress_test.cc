#include "engine/job/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "engine/job/file.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {
namespace {

using ::testing::HasSubstr;

class ProgressTest : public testing::Test {
 protected:
  Progress make(bool terminal) {
    return Progress(file_.fd(), terminal, [this] { return now_s_; });
  }
  std::string text() const { return folder_.read("log"); }
  int64_t lines() const {
    const std::string all = text();
    return std::count(all.begin(), all.end(), '\n');
  }

  tests::ScratchFolder folder_;
  File file_ = open_file(folder_.path("log"), O_WRONLY | O_CREAT);
  double now_s_ = 100;
};

TEST_F(ProgressTest, PlainLinesSayHowFarHowFastAndHowLong) {
  Progress progress = make(false);
  progress.begin("decode", "requests", 100);
  now_s_ += 10;
  progress.update(25, 1234);
  EXPECT_EQ(text(),
            "decode: 0 of 100 requests (0 %)\n"
            "decode: 25 of 100 requests (25 %), 123.4 tokens/s, ETA 0:30\n");
  now_s_ += 3600;
  progress.update(50, 1234);
  EXPECT_THAT(text(), HasSubstr("ETA 1:00:10\n"));
  now_s_ += 5;
  progress.update(100, 2000);
  progress.end();
  EXPECT_THAT(text(),
              HasSubstr("decode: 100 of 100 requests (100 %), 0.6 tokens/s, took 1:00:15\n"));
}

TEST_F(ProgressTest, PlainLinesAreRareButNeverMoreThanFiveSecondsApart) {
  Progress progress = make(false);
  for (const char* phase : {"open", "load", "prefill", "decode"}) {
    progress.begin(phase, "bytes", 1000);
    int64_t before = lines();
    double last_s = now_s_;
    for (int i = 0; i < 300; ++i) {
      now_s_ += i % 2 == 0 ? 0.2 : 2.9;
      progress.tick();
      if (lines() == before) continue;
      EXPECT_EQ(lines(), before + 1);
      EXPECT_GE(now_s_ - last_s, 2);
      EXPECT_LE(now_s_ - last_s, 5);
      before = lines();
      last_s = now_s_;
    }
    EXPECT_LE(now_s_ - last_s, 5);
  }
}

TEST_F(ProgressTest, ATerminalGetsOneLineRedrawn) {
  Progress progress = make(true);
  progress.begin("decode", "requests", 4);
  now_s_ += 0.05;
  progress.update(1);
  EXPECT_EQ(text(), "\r[........................] decode: 0 of 4 requests (0 %)\x1b[K");
  now_s_ += 0.06;
  progress.update(2);
  EXPECT_THAT(text(), HasSubstr("\r[############............] decode: 2 of 4 requests (50 %)"));
  EXPECT_EQ(lines(), 0);
  progress.end();
  EXPECT_EQ(lines(), 1);
}

TEST_F(ProgressTest, AnUnknownTotalHasNoShare) {
  Progress progress = make(true);
  progress.begin("open", "bytes", 0);
  progress.end();
  progress.tick();  // between phases: nothing
  EXPECT_EQ(text(), "\ropen: 0 bytes\x1b[K\ropen: 0 bytes\x1b[K\n");
}

TEST_F(ProgressTest, AClosedDescriptorDoesNotEndTheRun) {
  Progress progress(-1, false, [] { return 0.0; });
  progress.begin("open", "bytes", 1);
  EXPECT_NO_THROW(progress.end());
}

TEST_F(ProgressTest, AFileIsNoTerminal) {
  Progress progress = Progress::on(file_.fd());
  progress.begin("open", "bytes", 1);
  EXPECT_EQ(text(), "open: 0 of 1 bytes (0 %)\n");
}

}  // namespace
}  // namespace transload::engine
