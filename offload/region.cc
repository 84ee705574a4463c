#include "offload/region.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"

namespace transload::offload {
namespace {

constexpr int64_t kHugePageBytes = 2 * kMiB;
constexpr int64_t kLargestMapping = std::numeric_limits<int64_t>::max() - kPageBytes;

void* map_anonymous(int64_t bytes) {
  return mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// Largest length out of `wanted_bytes`, the limit of this process and their halves that `lock`
// accepts; whole pages.
template <class Lock>
int64_t lock_most(int64_t wanted_bytes, Lock lock) {
  int64_t bytes = round_up(wanted_bytes, kPageBytes);
  if (bytes <= 0 || lock(bytes)) return std::max<int64_t>(bytes, 0);
  if (const auto limit = lock_limit_bytes(); limit && *limit < bytes) {
    bytes = round_down(*limit, kPageBytes);
    if (bytes > 0 && lock(bytes)) return bytes;
  }
  while (bytes > kPageBytes) {
    bytes = round_down(bytes / 2, kPageBytes);
    if (bytes > 0 && lock(bytes)) return bytes;
  }
  return 0;
}

}  // namespace

Region::Region(std::string tier, int64_t bytes, int64_t lock_bytes) : tier_(std::move(tier)) {
  check(bytes >= 0 && bytes <= kLargestMapping && lock_bytes >= 0, "region of a senseless size");
  if (bytes == 0) return;
  const int64_t mapped_bytes = round_up(bytes, kPageBytes);
  void* mapping = map_anonymous(mapped_bytes);
  if (mapping == MAP_FAILED) {
    throw Error(Kind::kDoesNotFit,
                fmt::format("{}: the system refuses a mapping of {} ({}); lower this tier's memory "
                            "or raise the address-space limit (ulimit -v)",
                            tier_, format_bytes(mapped_bytes), std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(mapping);
  bytes_ = mapped_bytes;
  if (bytes_ >= kHugePageBytes) madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  locked_bytes_ = lock_most(std::min(lock_bytes, bytes_), [this](int64_t length) {
    return mlock2(data_, static_cast<size_t>(length), 0) == 0;  // sanitizers disable mlock
  });
}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

Region::Region(Region&& other) noexcept
    : tier_(std::move(other.tier_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      locked_bytes_(std::exchange(other.locked_bytes_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(tier_, other.tier_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(locked_bytes_, other.locked_bytes_);
  return *this;
}

void Region::check_inside(const void* p, int64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const auto at = reinterpret_cast<uintptr_t>(p);
  const bool inside = bytes >= 0 && bytes <= bytes_ && at >= begin &&
                      at - begin <= static_cast<uintptr_t>(bytes_ - bytes);
  if (!inside) check(false, "bytes outside the region '" + tier_ + "'");
}

int64_t lockable_bytes(int64_t wanted_bytes) {
  check(wanted_bytes >= 0 && wanted_bytes <= kLargestMapping, "lockable: a senseless size");
  const int64_t mapped_bytes = round_up(wanted_bytes, kPageBytes);
  if (mapped_bytes == 0) return 0;
  void* mapping = map_anonymous(mapped_bytes);
  if (mapping == MAP_FAILED) return 0;
  const int64_t bytes = lock_most(wanted_bytes, [mapping](int64_t length) {
    return mlock2(mapping, static_cast<size_t>(length), MLOCK_ONFAULT) == 0;
  });
  munmap(mapping, static_cast<size_t>(mapped_bytes));
  return bytes;
}

std::optional<int64_t> lock_limit_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return std::nullopt;
  const bool unlimited = limit.rlim_cur > static_cast<rlim_t>(kLargestMapping);
  return unlimited ? std::nullopt : std::optional(static_cast<int64_t>(limit.rlim_cur));
}

}  // namespace transload::offload
