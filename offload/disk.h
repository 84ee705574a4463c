// Direct, asynchronous file I/O: many requests in flight, completions handed out in order of
// submission. io_uring where the system allows it, threads with pread/pwrite where not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "offload/rate_limiter.h"

namespace transload::offload {

// One contiguous transfer between a file and memory.
//   With direct I/O `offset`, `bytes` and `memory` are multiples of kPageBytes; reads may run past
//   the end of the file, where they come back short (only the part before `file_bytes` counts).
struct DiskRequest {
  int32_t file = 0;  // as returned by add_file
  int64_t offset = 0;
  int64_t bytes = 0;
  std::byte* memory = nullptr;
};

struct DiskOptions {
  enum class Engine { kProbe, kIoUring, kThreads };
  Engine engine = Engine::kProbe;
  int64_t request_bytes = 512 * kKiB;  // larger transfers are cut into requests of this size
  int queue_depth = 16;
  int max_files = 64;
  int max_transfers = 64;          // submitted and not yet finished
  int max_requests = 16384;        // those of all open transfers together, before cutting
  RateLimiter* limiter = nullptr;  // the emulated disk rate; null: none
};

class DiskFaults;  // offload/faults.h, for tests

// One lane's I/O. After construction, add_file and register_memory nothing is allocated (errors
// apart). Transfers that are open together run in any order: who reads what another writes waits
// for the write first. A destructor waits for requests in flight and drops what has not begun.
// Threads: one at a time uses an object.
class DiskLane {
 public:
  virtual ~DiskLane() = default;
  // Opens nothing: takes a descriptor that the caller keeps open, with the size and the name used
  // in errors. `direct` says that it was opened with O_DIRECT.
  virtual int32_t add_file(int descriptor, int64_t file_bytes, std::string name, bool direct) = 0;
  // Memory that transfers will use; registered with the kernel in pieces of at most 1 GiB where
  // it allows that (description() says so). Requires: no open transfers.
  virtual void register_memory(std::byte* memory, int64_t bytes) = 0;
  // Starts a transfer of several requests, all reads or all writes; never waits for I/O. `token`
  // comes back from finish(). `requests` is copied; the memory stays in use until finish returns.
  // Requires: open_transfers() < max_transfers, room in max_requests, writes inside the file, and
  // alignment with direct I/O; else kInternal.
  virtual void submit(std::span<const DiskRequest> requests, bool write, uint64_t token) = 0;
  // Waits for the oldest open transfer and returns its token. Short transfers are continued, EINTR
  // and EAGAIN retried. Errors: kIo naming file, offset and cause; kBadInput when a read ends
  // before the bytes asked for although they lie inside the file. A failed transfer counts as
  // finished. With a limiter this waits for the booked moment: the one delay.
  virtual uint64_t finish() = 0;
  // As finish, without waiting: false when the oldest is not done.
  virtual bool try_finish(uint64_t* token) = 0;
  virtual int open_transfers() const = 0;
  virtual std::string description() const = 0;  // "io_uring, depth 16, O_DIRECT, registered"
};

std::unique_ptr<DiskLane> make_disk_lane(const DiskOptions& options, DiskFaults* faults = nullptr);

// What probing found: each engine, whether it works here and why not.
struct EngineProbe {
  std::string engine;
  bool works = false;
  std::string reason;
};
std::vector<EngineProbe> probe_disk_engines();

// An open file: a spill file of ours, unlinked at once, or a checkpoint, read-only.
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  // Read-only; with `direct`, O_DIRECT where the file system allows it: direct() says.
  // Errors: kIo naming path and cause.
  static File open_read(const std::string& path, bool direct);
  // A new file in `directory` (made with its parents if missing), unlinked once open, `bytes` long
  // (rounded up to pages) and allocated, so that a full disk is found before any work. O_DIRECT
  // where possible. Errors: kIo in one line with cause and fix: not a directory, cannot be made,
  // not writable, no space, size limit.
  static File create_spill(const std::string& directory, int64_t bytes);

  // Errors: kIo where a file that was opened for reading has another size or time of change since.
  void check_unchanged() const;

  int descriptor() const { return descriptor_; }
  int64_t bytes() const { return bytes_; }
  bool direct() const { return direct_; }
  const std::string& name() const { return name_; }

 private:
  int descriptor_ = -1;
  int64_t bytes_ = 0;
  bool direct_ = false;
  timespec changed_{};  // when it was last, as it was opened
  std::string name_;
};

}  // namespace transload::offload
