#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "offload/disk_engine.h"

namespace transload::offload {
namespace {

constexpr int64_t kRegisteredPieceBytes = kGiB;  // the kernel's limit of one registered buffer

class UringEngine : public DiskEngine {
 public:
  UringEngine(int depth, int denied) : depth_(depth) {
    const int result =
        denied != 0 ? -denied : io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (result < 0) {
      throw Error(Kind::kUnsupported,
                  fmt::format("io_uring is refused by this system ({})", std::strerror(-result)));
    }
  }
  ~UringEngine() override { io_uring_queue_exit(&ring_); }
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;

  void register_memory(std::byte* memory, int64_t bytes) override;
  void start(const DiskOperation& operation) override;
  void flush() override;
  bool next(bool wait, DiskCompletion* completion) override;
  std::string description() const override;

 private:
  // Index of the registered buffer that holds all of it, or -1.
  int buffer_of(const DiskOperation& operation) const;

  int depth_;
  io_uring ring_{};
  std::vector<iovec> buffers_;
  bool registered_ = false;
  int registration_error_ = 0;  // errno of the last try, 0 when none failed
};

void UringEngine::register_memory(std::byte* memory, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kRegisteredPieceBytes) {
    const int64_t length = std::min(kRegisteredPieceBytes, bytes - at);
    buffers_.push_back(iovec{memory + at, static_cast<size_t>(length)});
  }
  if (buffers_.empty()) return;
  if (registered_) io_uring_unregister_buffers(&ring_);
  const int result =
      io_uring_register_buffers(&ring_, buffers_.data(), static_cast<unsigned>(buffers_.size()));
  registered_ = result == 0;
  registration_error_ = -result;
}

int UringEngine::buffer_of(const DiskOperation& operation) const {
  if (!registered_) return -1;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(buffers_[i].iov_base);
    const std::byte* end = begin + buffers_[i].iov_len;
    if (operation.memory >= begin && operation.memory + operation.bytes <= end) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void UringEngine::start(const DiskOperation& operation) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  check(sqe != nullptr, "more io_uring requests than its depth");
  const int descriptor = operation.descriptor;
  const auto bytes = static_cast<unsigned>(operation.bytes);
  const auto offset = static_cast<uint64_t>(operation.offset);
  const int buffer = buffer_of(operation);
  if (operation.write) {
    if (buffer >= 0) {
      io_uring_prep_write_fixed(sqe, descriptor, operation.memory, bytes, offset, buffer);
    } else {
      io_uring_prep_write(sqe, descriptor, operation.memory, bytes, offset);
    }
  } else if (buffer >= 0) {
    io_uring_prep_read_fixed(sqe, descriptor, operation.memory, bytes, offset, buffer);
  } else {
    io_uring_prep_read(sqe, descriptor, operation.memory, bytes, offset);
  }
  io_uring_sqe_set_data64(sqe, static_cast<uint64_t>(operation.slot));
}

void UringEngine::flush() {
  while (io_uring_sq_ready(&ring_) > 0) {
    const int result = io_uring_submit(&ring_);
    if (result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY) continue;
    throw_errno(-result, "io_uring takes no requests (choose the threads engine)");
  }
}

bool UringEngine::next(bool wait, DiskCompletion* completion) {
  io_uring_cqe* cqe = nullptr;
  int result = 0;
  do {
    result = wait ? io_uring_wait_cqe(&ring_, &cqe) : io_uring_peek_cqe(&ring_, &cqe);
  } while (result == -EINTR || (wait && result == -EAGAIN));
  if (result == -EAGAIN) return false;
  if (result < 0) {
    throw_errno(-result, "io_uring gives no completions (choose the threads engine)");
  }
  *completion = {static_cast<int32_t>(io_uring_cqe_get_data64(cqe)), cqe->res};
  io_uring_cqe_seen(&ring_, cqe);
  return true;
}

std::string UringEngine::description() const {
  std::string text = fmt::format("io_uring, depth {}", depth_);
  if (registered_) text += ", registered";
  if (registration_error_ != 0) {
    text += fmt::format(", not registered ({})", std::strerror(registration_error_));
  }
  return text;
}

}  // namespace

std::unique_ptr<DiskEngine> make_uring_engine(int depth, int denied) {
  return std::make_unique<UringEngine>(depth, denied);
}

}  // namespace transload::offload
