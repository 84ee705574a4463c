// Buffers as dependencies: who wrote and who reads a piece of memory, and rings of such pieces.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/task.h"

namespace transload::planner {

// The last write of some bytes and the reads since. A reader needs the write; a writer needs the
// write and all reads before it.
class BufferClock {
 public:
  BufferClock() = default;
  // New bytes in a place whose earlier users are `before`.
  explicit BufferClock(const Dependencies& before) : reads_(before) {}

  void read_by(Task& task) {
    task.needs.add(write_);
    reads_.add(task.lane, task.id);
  }
  void written_by(Task& task) {
    task.needs.add(write_);
    task.needs.add(reads_);
    write_ = {};
    write_.add(task.lane, task.id);
    reads_ = {};
  }
  // As written_by, for one of several tasks that write different parts at the same time.
  void partly_written_by(Task& task) {
    task.needs.add(reads_);
    write_.add(task.lane, task.id);
  }
  Dependencies all() const {
    Dependencies both = write_;
    both.add(reads_);
    return both;
  }

 private:
  Dependencies write_;
  Dependencies reads_;
};

// Memory handed out first in, first out, in one piece each (never across the end). A span that is
// still open, that is one whose readers have not all been emitted, is never handed out again; a
// closed one is, and its next writer depends on its users. Allocates nothing after construction.
class Ring {
 public:
  struct Span {
    int64_t offset = 0;
    int64_t bytes = 0;
    BufferClock clock;
    bool open = false;
  };

  Ring(int64_t bytes, int64_t max_spans);

  // The number of a new open span whose clock carries what must be waited for; nothing while the
  // bytes that it would take are open. Requires: bytes <= capacity.
  std::optional<int64_t> allocate(int64_t bytes);
  Span& at(int64_t span) { return spans_[static_cast<size_t>(span % count())]; }
  void close(int64_t span) { at(span).open = false; }
  int64_t capacity() const { return bytes_; }

 private:
  int64_t count() const { return static_cast<int64_t>(spans_.size()); }

  int64_t bytes_;
  std::vector<Span> spans_;
  int64_t oldest_ = 0;  // spans [oldest_, next_) hold bytes
  int64_t next_ = 0;
  int64_t head_ = 0;       // offset of the next span
  Dependencies replaced_;  // users of all spans before oldest_
};

}  // namespace transload::planner
