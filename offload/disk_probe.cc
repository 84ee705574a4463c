// Which engine works here, and the making of lanes.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "offload/disk_lane.h"

namespace transload::offload {
namespace {

constexpr int kMaxThreads = 8;
constexpr std::string_view kProbeText = "transload";

// An engine that works here, or none and the reason.
struct Found {
  std::unique_ptr<DiskEngine> engine;
  std::string reason;
};

template <class Make>
Found find_engine(Make make) {
  Found found;
  try {
    found.engine = make();
    found.reason = try_engine(*found.engine);
  } catch (const Error& error) {
    found.reason = error.what();
  }
  if (!found.reason.empty()) found.engine.reset();
  return found;
}

void check_options(const DiskOptions& options) {
  check(options.request_bytes > 0 && options.request_bytes <= kGiB &&
            options.request_bytes % kPageBytes == 0,
        "request_bytes is not whole pages up to 1 GiB");
  check(options.queue_depth > 0 && options.queue_depth <= 4096, "queue_depth outside 1 to 4096");
  check(options.max_files > 0 && options.max_transfers > 0 && options.max_requests > 0,
        "a disk lane for nothing");
}

}  // namespace

std::string try_engine(DiskEngine& engine) {
  const int descriptor = memfd_create("transload-probe", MFD_CLOEXEC);
  if (descriptor < 0) return fmt::format("no file to probe with ({})", std::strerror(errno));
  std::array<std::byte, kProbeText.size()> memory{};
  std::string reason;
  try {
    if (write(descriptor, kProbeText.data(), kProbeText.size()) !=
        static_cast<ssize_t>(kProbeText.size())) {
      throw_errno(errno, "cannot write a probe file");
    }
    engine.start({descriptor, false, 0, 0, static_cast<int64_t>(memory.size()), memory.data()});
    engine.flush();
    DiskCompletion completion;
    engine.next(true, &completion);
    if (completion.result < 0) {
      reason =
          fmt::format("a read fails ({})", std::strerror(static_cast<int>(-completion.result)));
    } else if (std::memcmp(memory.data(), kProbeText.data(), memory.size()) != 0) {
      reason = "a read brings wrong bytes";
    }
  } catch (const Error& error) {
    reason = error.what();
  }
  close(descriptor);
  return reason;
}

std::vector<EngineProbe> probe_disk_engines() {
  const Found uring = find_engine([] { return make_uring_engine(1); });
  const Found threads = find_engine([] { return make_thread_engine(1, 1); });
  return {{"io_uring", uring.engine != nullptr, uring.reason},
          {"threads", threads.engine != nullptr, threads.reason}};
}

std::unique_ptr<DiskLane> make_disk_lane(const DiskOptions& options, DiskFaults* faults) {
  check_options(options);
  using Engine = DiskOptions::Engine;
  const int depth = options.queue_depth;
  std::string note;
  if (options.engine != Engine::kThreads) {
    const int denied = faults == nullptr ? 0 : faults->deny_ring();
    Found uring = find_engine([&] { return make_uring_engine(depth, denied); });
    if (uring.engine != nullptr) {
      return std::make_unique<RingDiskLane>(options, std::move(uring.engine), "", faults);
    }
    if (options.engine == Engine::kIoUring) {
      throw Error(Kind::kUnsupported,
                  "disk: " + uring.reason + "; allow it or leave the engine to probing");
    }
    note = uring.reason;
  }
  auto threads = make_thread_engine(depth, std::min(depth, kMaxThreads));
  return std::make_unique<RingDiskLane>(options, std::move(threads), std::move(note), faults);
}

}  // namespace transload::offload
