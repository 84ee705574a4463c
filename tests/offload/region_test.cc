#include "offload/region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <utility>

#include "tests/offload/support.h"

namespace transload::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Sets a limit of this process, in a child.
void set_limit(int resource, rlim_t value) {
  const rlimit limit{value, value};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) std::abort();
}

TEST(Region, MapsZeroedWholePages) {
  const Region region("host", 5000, 0);
  EXPECT_EQ(region.bytes(), 2 * kPageBytes);
  EXPECT_EQ(region.locked_bytes(), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region.data()) % kPageBytes, 0U);
  EXPECT_EQ(region.data()[region.bytes() - 1], std::byte{0});
}

TEST(Region, HasNoMemoryForZeroBytes) {
  const Region region("host", 0, 0);
  EXPECT_EQ(region.data(), nullptr);
  EXPECT_EQ(region.bytes(), 0);
}

TEST(Region, MovesItsMemory) {
  Region from("host", kPageBytes, 0);
  std::byte* data = from.data();
  Region to(std::move(from));
  Region last;
  last = std::move(to);
  EXPECT_EQ(last.data(), data);
  last.check_inside(data, kPageBytes);
}

TEST(Region, RefusesPointersOutside) {
  const Region region("host", 2 * kPageBytes, 0);
  region.check_inside(region.data(), 2 * kPageBytes);
  region.check_inside(region.data() + 2 * kPageBytes, 0);
  const auto refuse = [&](const std::byte* p, int64_t bytes) {
    return error_text(Kind::kInternal, [&] { region.check_inside(p, bytes); });
  };
  EXPECT_THAT(refuse(region.data() + 1, 2 * kPageBytes), HasSubstr("outside the region 'host'"));
  EXPECT_THAT(refuse(region.data() - 1, 1), HasSubstr("outside the region 'host'"));
  EXPECT_THAT(refuse(region.data() + 2 * kPageBytes, 1), HasSubstr("outside the region 'host'"));
  EXPECT_THAT(refuse(region.data(), -1), HasSubstr("outside the region 'host'"));
  EXPECT_THAT(refuse(nullptr, 1), HasSubstr("outside the region 'host'"));
}

TEST(Region, DoesNotFitWhereTheSystemRefuses) {
  EXPECT_THAT(error_text(Kind::kDoesNotFit, [] { Region region("host", int64_t{1} << 60, 0); }),
              AllOf(HasSubstr("host: "), HasSubstr("lower this tier's memory")));
}

TEST(Region, LocksWhatIsAskedForWhereAllowed) {
  const int64_t allowed = lockable_bytes(2 * kPageBytes);
  const Region region("host", 8 * kPageBytes, 2 * kPageBytes);
  EXPECT_EQ(region.locked_bytes(), allowed);
}

TEST(Region, NamesTheLimitOfPageLocking) {
  EXPECT_EQ(in_child([] {
              set_limit(RLIMIT_MEMLOCK, 64 * kKiB);
              return std::to_string(lock_limit_bytes().value_or(-1));
            }),
            "65536");
  EXPECT_EQ(in_child([] {
              const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
              const bool allowed = setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0;
              return std::string(allowed && lock_limit_bytes() ? "limited" : "unlimited");
            }),
            "unlimited");
}

TEST(Region, LocksUpToALowLimitAndGoesOn) {
  const std::string result = in_child([] {
    set_limit(RLIMIT_MEMLOCK, 64 * kKiB);
    become_nobody();
    const int64_t probed = lockable_bytes(kMiB);
    const Region region("host", kMiB, kMiB);
    region.data()[region.bytes() - 1] = std::byte{1};
    return std::to_string(probed) + " " + std::to_string(region.locked_bytes());
  });
  EXPECT_EQ(result, "65536 65536");
}

TEST(Region, LocksAPartOfWhatOthersLeave) {
  const std::string result = in_child([] {
    set_limit(RLIMIT_MEMLOCK, 64 * kKiB);
    become_nobody();
    const Region first("host", 32 * kKiB, 32 * kKiB);
    const Region second("host", kMiB, kMiB);
    return std::to_string(first.locked_bytes()) + " " + std::to_string(second.locked_bytes());
  });
  EXPECT_EQ(result, "32768 32768");
}

TEST(Region, GoesOnWithoutAnyLock) {
  const std::string result = in_child([] {
    set_limit(RLIMIT_MEMLOCK, 0);
    become_nobody();
    const Region region("host", kMiB, kMiB);
    return std::to_string(lockable_bytes(kMiB)) + " " + std::to_string(region.locked_bytes());
  });
  EXPECT_EQ(result, "0 0");
}

}  // namespace
}  // namespace transload::offload
