// A disk that misbehaves, for tests: sits between a DiskLane and its engine.
#pragma once

#include <cstdint>

namespace transload::offload {

// Asked once for every request that would go to the system, in order, by the lane's thread.
// Threads: lanes that share one call it at once.
class DiskFaults {
 public:
  struct Request {
    int32_t file = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
    bool write = false;
  };
  virtual ~DiskFaults() = default;
  // Returns what the request will be answered with: `bytes` leaves it alone, 0 <= n < bytes makes
  // it short (only that much, with direct I/O in whole pages, is really transferred), -errno fails
  // it. 0 and -errno do not reach the system.
  virtual int64_t answer(const Request& request) = 0;
  // Asked before a lane's io_uring is set up: 0 leaves that to the system, an errno is what it
  // answers in the system's place.
  virtual int deny_ring() { return 0; }
};

}  // namespace transload::offload
