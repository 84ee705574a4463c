#include "offload/rate_limiter.h"

#include <algorithm>
#include <thread>

#include "base/check.h"

namespace transload::offload {
namespace {

constexpr double kLongestBookingS = 1e9;  // 31 years; keeps the sum of nanoseconds in range

}  // namespace

RateLimiter::RateLimiter(double bytes_per_s) : bytes_per_s_(bytes_per_s) {
  check(bytes_per_s >= 1.0, "a rate below 1 byte/s");
}

RateLimiter::Clock::time_point RateLimiter::book(int64_t bytes, Clock::time_point start) {
  check(bytes >= 0, "a booking of negative size");
  const double seconds = std::min(static_cast<double>(bytes) / bytes_per_s_, kLongestBookingS);
  const auto taken =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const std::lock_guard lock(mutex_);
  free_at_ = std::max(start, free_at_) + taken;
  return free_at_;
}

RateLimiter::Clock::time_point RateLimiter::now() const { return Clock::now(); }

void RateLimiter::wait_until(Clock::time_point moment) { std::this_thread::sleep_until(moment); }

}  // namespace transload::offload
