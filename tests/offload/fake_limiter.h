// A limiter whose clock the test moves; waiting moves it too.
#pragma once

#include "offload/rate_limiter.h"

namespace transload::offload {

class FakeLimiter : public RateLimiter {
 public:
  using RateLimiter::RateLimiter;
  Clock::time_point now() const override { return now_; }
  void wait_until(Clock::time_point moment) override {
    ++waits_;
    if (moment > now_) now_ = moment;
  }
  void advance(Clock::duration by) { now_ += by; }
  int waits() const { return waits_; }

 private:
  Clock::time_point now_{std::chrono::hours(1)};
  int waits_ = 0;
};

}  // namespace transload::offload
