#include "offload/copy.h"

#include <cstring>

#include "base/check.h"

namespace transload::offload {

void PacedCopier::begin() {
  check(!in_task_, "a copy task began inside another");
  in_task_ = true;
  task_bytes_ = 0;
  if (limiter_ != nullptr) start_ = limiter_->now();
}

void PacedCopier::copy(void* destination, const void* source, int64_t bytes) {
  copied(bytes);
  if (bytes > 0) std::memcpy(destination, source, static_cast<size_t>(bytes));
}

void PacedCopier::copied(int64_t bytes) {
  check(in_task_ && bytes >= 0, "a copy outside a task or of negative size");
  task_bytes_ += bytes;
  total_bytes_ += bytes;
}

int64_t PacedCopier::finish() {
  check(in_task_, "a copy task ended that never began");
  in_task_ = false;
  if (limiter_ != nullptr) limiter_->wait_until(limiter_->book(task_bytes_, start_));
  return task_bytes_;
}

}  // namespace transload::offload
