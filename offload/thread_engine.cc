#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "offload/disk_engine.h"
#include "offload/guarded_by.h"

namespace transload::offload {
namespace {

// A first-in first-out queue of a fixed capacity.
template <class T>
class Ring {
 public:
  explicit Ring(int capacity) : items_(static_cast<size_t>(capacity)) {}
  bool empty() const { return count_ == 0; }
  void push(const T& item) {
    check(count_ < items_.size(), "ring overflow");
    items_[(first_ + count_++) % items_.size()] = item;
  }
  T pop() {
    const T item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --count_;
    return item;
  }

 private:
  std::vector<T> items_;
  size_t first_ = 0;
  size_t count_ = 0;
};

// Worker threads take operations and leave completions; both queues hold `depth`.
class ThreadEngine : public DiskEngine {
 public:
  ThreadEngine(int depth, int threads) : depth_(depth), waiting_(depth), done_(depth) {
    threads_.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      if (!threads_.empty()) return;  // fewer threads do the same work
      throw Error(Kind::kUnsupported,
                  fmt::format("disk: the system allows no thread for reads and writes ({}); raise "
                              "the process limit (ulimit -u)",
                              error.code().message()));
    }
  }
  ~ThreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_there_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  void register_memory(std::byte*, int64_t) override {}
  void flush() override {}

  void start(const DiskOperation& operation) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push(operation);
    }
    work_there_.notify_one();
  }

  bool next(bool wait, DiskCompletion* completion) override {
    std::unique_lock lock(mutex_);
    if (wait) {
      done_there_.wait(lock, [this] { return !done_.empty(); });
    }
    if (done_.empty()) return false;
    *completion = done_.pop();
    return true;
  }

  std::string description() const override {
    return fmt::format("{} threads with pread/pwrite, depth {}", threads_.size(), depth_);
  }

 private:
  static int64_t perform(const DiskOperation& operation) {
    const auto bytes = static_cast<size_t>(operation.bytes);
    const ssize_t result =
        operation.write ? pwrite(operation.descriptor, operation.memory, bytes, operation.offset)
                        : pread(operation.descriptor, operation.memory, bytes, operation.offset);
    return result < 0 ? -errno : result;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_there_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const DiskOperation operation = waiting_.pop();
      lock.unlock();
      const int64_t result = perform(operation);
      lock.lock();
      done_.push({operation.slot, result});
      done_there_.notify_one();
    }
  }

  int depth_;
  std::mutex mutex_;
  std::condition_variable work_there_;
  std::condition_variable done_there_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Ring<DiskOperation> waiting_ GUARDED_BY(mutex_);
  Ring<DiskCompletion> done_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskEngine> make_thread_engine(int depth, int threads) {
  return std::make_unique<ThreadEngine>(depth, threads);
}

}  // namespace transload::offload
