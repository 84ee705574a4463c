// The copies of the host_to_device and device_to_host lanes where both tiers are host memory.
#pragma once

#include <cstdint>

#include "offload/rate_limiter.h"

namespace transload::offload {

// Copies the pieces of one task after another; with a limiter a task takes at least bytes / rate,
// waited for once, at its end. Allocates nothing. Threads: one.
class PacedCopier {
 public:
  explicit PacedCopier(RateLimiter* limiter = nullptr) : limiter_(limiter) {}
  // Starts a task. Requires: the one before has finished.
  void begin();
  // One piece of it, done on return. The two ranges do not overlap.
  void copy(void* destination, const void* source, int64_t bytes);
  // A piece of it that the caller has copied itself.
  void copied(int64_t bytes);
  // Ends the task at the booked moment; returns its bytes.
  int64_t finish();
  int64_t total_bytes() const { return total_bytes_; }

 private:
  RateLimiter* limiter_;
  RateLimiter::Clock::time_point start_{};
  bool in_task_ = false;
  int64_t task_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace transload::offload
