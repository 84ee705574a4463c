// What a DiskLane asks of the system: single reads and writes, answered in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace transload::offload {

// One read or write; `slot` is handed back with its result.
struct DiskOperation {
  int descriptor = -1;
  bool write = false;
  int32_t slot = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::byte* memory = nullptr;
};

struct DiskCompletion {
  int32_t slot = 0;
  int64_t result = 0;  // bytes transferred, or -errno
};

// At most `depth` operations are started and not yet completed. After construction and
// register_memory nothing is allocated. The caller collects every completion before it destroys an
// engine. Threads: one uses an object.
class DiskEngine {
 public:
  virtual ~DiskEngine() = default;
  // See DiskLane. Requires: nothing started.
  virtual void register_memory(std::byte* memory, int64_t bytes) = 0;
  virtual void start(const DiskOperation& operation) = 0;
  // Makes sure that what was started is under way.
  virtual void flush() = 0;
  // The next completion, waiting for it if `wait` (then something must be under way); false if
  // none. Errors: kIo when the system stops answering.
  virtual bool next(bool wait, DiskCompletion* completion) = 0;
  // Name, and what is worth knowing about it, comma-separated; `depth` included.
  virtual std::string description() const = 0;
};

// Errors: kUnsupported naming the cause (no fix: the caller knows the choice) when the system
// denies io_uring. `denied`: an errno in place of the system's answer, for tests; 0: none.
std::unique_ptr<DiskEngine> make_uring_engine(int depth, int denied = 0);
// `threads` threads of pread and pwrite, created here.
std::unique_ptr<DiskEngine> make_thread_engine(int depth, int threads);

// Does one small read through `engine`. Empty when it works, else why not.
std::string try_engine(DiskEngine& engine);

}  // namespace transload::offload
