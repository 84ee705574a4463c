#include "offload/rate_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "offload/copy.h"
#include "tests/offload/fake_limiter.h"
#include "tests/offload/support.h"

namespace transload::offload {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::HasSubstr;
using Moment = RateLimiter::Clock::time_point;

TEST(RateLimiter, TakesBytesOverRateFromTheStart) {
  RateLimiter limiter(1000.0);
  const Moment start{hours(5)};
  EXPECT_EQ(limiter.book(3000, start), start + seconds(3));
}

TEST(RateLimiter, AddsUpBookingsOfOneMoment) {
  RateLimiter limiter(1000.0);
  const Moment start{hours(5)};
  limiter.book(1000, start);
  limiter.book(2000, start);
  EXPECT_EQ(limiter.book(500, start), start + std::chrono::milliseconds(3500));
}

TEST(RateLimiter, GivesNoCreditForIdleTime) {
  RateLimiter limiter(1000.0);
  const Moment start{hours(5)};
  limiter.book(1000, start);
  EXPECT_EQ(limiter.book(1000, start + seconds(100)), start + seconds(101));
}

TEST(RateLimiter, KeepsHugeBookingsInRange) {
  RateLimiter limiter(1.0);
  const Moment start{hours(5)};
  EXPECT_GT(limiter.book(INT64_MAX, start), start + hours(24 * 365));
}

TEST(RateLimiter, RefusesSenselessRatesAndSizes) {
  EXPECT_THAT(error_text(Kind::kInternal, [] { RateLimiter limiter(0.0); }), HasSubstr("1 byte/s"));
  RateLimiter limiter(1.0);
  EXPECT_THAT(error_text(Kind::kInternal, [&] { limiter.book(-1, Moment{}); }),
              HasSubstr("negative"));
}

RC_GTEST_PROP(RateLimiter, NeverExceedsItsRate, ()) {
  RateLimiter limiter(1024.0);
  const auto sizes =
      *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 1 << 20));
  Moment start{hours(1)};
  Moment previous = start;
  for (const int64_t bytes : sizes) {
    start += seconds(*rc::gen::inRange(0, 100));
    const Moment done = limiter.book(bytes, start);
    const Moment earliest = std::max(start, previous);
    const double taken_s = std::chrono::duration<double>(done - earliest).count();
    RC_ASSERT(std::abs(taken_s - static_cast<double>(bytes) / 1024.0) < 1e-6);
    previous = done;
  }
}

TEST(PacedCopier, CopiesPiecesAndWaitsOncePerTask) {
  FakeLimiter limiter(100.0);
  PacedCopier copier(&limiter);
  const std::vector<std::byte> source = random_bytes(500, 7);
  std::vector<std::byte> destination(500);
  const Moment start = limiter.now();
  copier.begin();
  copier.copy(destination.data(), source.data(), 200);
  copier.copy(destination.data() + 200, source.data() + 200, 300);
  EXPECT_EQ(copier.finish(), 500);
  EXPECT_EQ(destination, source);
  EXPECT_EQ(limiter.waits(), 1);
  EXPECT_EQ(limiter.now(), start + seconds(5));
}

TEST(PacedCopier, CountsTheCopyItselfAsPartOfTheTime) {
  FakeLimiter limiter(100.0);
  PacedCopier copier(&limiter);
  std::byte from[100] = {}, to[100];
  const Moment start = limiter.now();
  copier.begin();
  limiter.advance(seconds(10));
  copier.copy(to, from, 100);
  copier.finish();
  EXPECT_EQ(limiter.now(), start + seconds(10));
}

TEST(PacedCopier, CountsBytesOverTasks) {
  PacedCopier copier;
  std::byte from[8] = {}, to[8];
  for (int64_t bytes : {3, 0, 8}) {
    copier.begin();
    copier.copy(to, from, bytes);
    EXPECT_EQ(copier.finish(), bytes);
  }
  EXPECT_EQ(copier.total_bytes(), 11);
}

TEST(PacedCopier, RefusesWorkOutsideATask) {
  PacedCopier copier;
  std::byte from[1] = {}, to[1];
  EXPECT_THAT(error_text(Kind::kInternal, [&] { copier.copy(to, from, 1); }), HasSubstr("outside"));
  EXPECT_THAT(error_text(Kind::kInternal, [&] { copier.finish(); }), HasSubstr("never began"));
  copier.begin();
  EXPECT_THAT(error_text(Kind::kInternal, [&] { copier.begin(); }), HasSubstr("inside another"));
}

}  // namespace
}  // namespace transload::offload
