// A tier's memory: one mapping of a fixed size, taken once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace transload::offload {

// Owns one anonymous mapping. `locked_bytes()` says how much of it is page-locked.
class Region {
 public:
  Region() = default;
  // Maps `bytes` (rounded up to pages), named `tier` in errors. Page-locks the first `lock_bytes`
  // of it (0: none), or as much of that as the system permits.
  // Errors: kDoesNotFit when the system refuses the mapping.
  Region(std::string tier, int64_t bytes, int64_t lock_bytes);
  ~Region();
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int64_t locked_bytes() const { return locked_bytes_; }
  // Throws kInternal unless [p, p + bytes) lies in the region.
  void check_inside(const void* p, int64_t bytes) const;

 private:
  std::string tier_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t locked_bytes_ = 0;
};

// How much of `wanted_bytes` the system would page-lock now; touches no memory.
int64_t lockable_bytes(int64_t wanted_bytes);

// The limit of memory that this process may page-lock (RLIMIT_MEMLOCK; with CAP_IPC_LOCK it may
// pass it). Nothing: unlimited.
std::optional<int64_t> lock_limit_bytes();

}  // namespace transload::offload
