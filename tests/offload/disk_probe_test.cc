// The choice of an engine where the system denies one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <seccomp.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "offload/disk.h"
#include "offload/faults.h"
#include "tests/offload/support.h"

namespace transload::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Lets this process have everything but `call`, which gets `error`.
void deny(int call, int error) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr ||
      seccomp_rule_add(filter, SCMP_ACT_ERRNO(static_cast<uint32_t>(error)), call, 0) != 0 ||
      seccomp_load(filter) != 0) {
    std::abort();
  }
  seccomp_release(filter);
}

// Reads the file through a probed lane; the lane's description if the bytes are right.
std::string read_through_probed_lane(const std::string& path, const std::vector<std::byte>& want) {
  const File file = File::open_read(path, true);
  auto lane = make_disk_lane({});
  Pages memory(file.bytes());
  lane->register_memory(memory.data(), memory.bytes());
  const DiskRequest whole{
      lane->add_file(file.descriptor(), file.bytes(), file.name(), file.direct()), 0,
      memory.bytes(), memory.data()};
  lane->submit({&whole, 1}, false, 1);
  lane->finish();
  if (std::memcmp(memory.data(), want.data(), want.size()) != 0) return "other bytes";
  return lane->description();
}

class DiskProbe : public testing::Test {
 protected:
  void SetUp() override {
    data_ = random_bytes(100'000, 5);
    write_file(directory_.file("data"), data_);
  }
  TempDir directory_;
  std::vector<std::byte> data_;
};

TEST_F(DiskProbe, FallsBackToThreadsWhereSetupIsDenied) {
  for (const int error : {EPERM, ENOSYS}) {
    const std::string text = in_child([&] {
      deny(SCMP_SYS(io_uring_setup), error);
      return read_through_probed_lane(directory_.file("data"), data_);
    });
    EXPECT_THAT(text, AllOf(HasSubstr("8 threads with pread/pwrite"),
                            HasSubstr("io_uring is refused by this system"),
                            HasSubstr(std::strerror(error)), Not(HasSubstr("\n"))));
  }
}

TEST_F(DiskProbe, FallsBackToThreadsWhereTheFirstReadIsDenied) {
  const std::string text = in_child([&] {
    deny(SCMP_SYS(io_uring_enter), EPERM);
    return read_through_probed_lane(directory_.file("data"), data_);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("8 threads with pread/pwrite"), HasSubstr("io_uring"),
                          HasSubstr("Operation not permitted")));
}

TEST_F(DiskProbe, GoesWithoutRegistrationWhereItIsDenied) {
  if (!probe_disk_engines()[0].works) GTEST_SKIP() << "io_uring is not allowed here";
  const std::string text = in_child([&] {
    deny(SCMP_SYS(io_uring_register), ENOMEM);
    return read_through_probed_lane(directory_.file("data"), data_);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("io_uring"), HasSubstr("not registered (Cannot allocate")));
}

TEST_F(DiskProbe, TakesIoUringWithRegisteredMemoryWhereItWorks) {
  if (!probe_disk_engines()[0].works) GTEST_SKIP() << "io_uring is not allowed here";
  const std::string text = read_through_probed_lane(directory_.file("data"), data_);
  EXPECT_THAT(text, HasSubstr("io_uring, depth 16, registered"));
}

class NoRing : public DiskFaults {
 public:
  int64_t answer(const Request& request) override { return request.bytes; }
  int deny_ring() override { return EPERM; }
};

TEST_F(DiskProbe, TakesARefusalByAFaultForTheSystems) {
  NoRing faults;
  EXPECT_THAT(make_disk_lane({}, &faults)->description(),
              AllOf(HasSubstr("8 threads with pread/pwrite"),
                    HasSubstr("io_uring is refused by this system (Operation not permitted)")));
  EXPECT_THAT(
      error_text(Kind::kUnsupported,
                 [&] { make_disk_lane({.engine = DiskOptions::Engine::kIoUring}, &faults); }),
      HasSubstr("io_uring is refused"));
}

TEST_F(DiskProbe, RefusesAnEngineThatWasAskedForAndIsDenied) {
  const std::string text = in_child([] {
    deny(SCMP_SYS(io_uring_setup), EPERM);
    return error_text(Kind::kUnsupported,
                      [] { make_disk_lane({.engine = DiskOptions::Engine::kIoUring}); });
  });
  EXPECT_THAT(text, AllOf(HasSubstr("disk: io_uring is refused"), HasSubstr("not permitted"),
                          HasSubstr("leave the engine to probing")));
}

TEST_F(DiskProbe, ReportsEachEngineAndWhyNot) {
  const std::string text = in_child([] {
    deny(SCMP_SYS(io_uring_setup), EPERM);
    std::string lines;
    for (const EngineProbe& probe : probe_disk_engines()) {
      lines += probe.engine + (probe.works ? " works " : " fails ") + probe.reason + "\n";
    }
    return lines;
  });
  EXPECT_EQ(text,
            "io_uring fails io_uring is refused by this system (Operation not permitted)\n"
            "threads works \n");
}

TEST_F(DiskProbe, NamesASystemWithoutThreads) {
  const std::string text = in_child([] {
    const rlimit limit{1, 1};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) std::abort();
    become_nobody();
    return error_text(Kind::kUnsupported,
                      [] { make_disk_lane({.engine = DiskOptions::Engine::kThreads}); });
  });
  EXPECT_THAT(text, AllOf(HasSubstr("allows no thread"), HasSubstr("ulimit -u")));
}

}  // namespace
}  // namespace transload::offload
