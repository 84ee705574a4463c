// Paces a lane to an emulated rate: the only artificial delay in the program.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace transload::offload {

// What moves `bytes` may finish no earlier than bytes / rate after the later of its own
// start and the end of the transfer before it. Tests override the clock. Threads: any; a disk's two
// lanes share one.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  // Requires: at least 1 byte/s, else kInternal.
  explicit RateLimiter(double bytes_per_s);
  virtual ~RateLimiter() = default;
  // Books a transfer that starts at `start`; returns the moment at which it may count as done.
  Clock::time_point book(int64_t bytes, Clock::time_point start);
  double bytes_per_s() const { return bytes_per_s_; }

  virtual Clock::time_point now() const;
  virtual void wait_until(Clock::time_point moment);

 private:
  double bytes_per_s_;
  std::mutex mutex_;
  Clock::time_point free_at_ = Clock::time_point::min();
};

}  // namespace transload::offload
