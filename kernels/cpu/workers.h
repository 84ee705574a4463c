// The backend's threads: a TBB arena of its own, so that several backends do not mix.
#pragma once

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace transload::kernels::cpu {

// Tells ThreadSanitizer of the order that TBB's library, which it cannot see into, guarantees:
// what comes before a loop is before its tasks, and they are before what comes after it.
class TaskOrder {
 public:
#if defined(__SANITIZE_THREAD__)
  void publish() { edge_.fetch_add(1, std::memory_order_acq_rel); }
#else
  void publish() {}
#endif

 private:
  std::atomic<int64_t> edge_ = 0;
};

// Spreads indices over at most `threads` threads, the calling one among them. One thread calls at
// a time. Idle workers sleep. More threads than cores raise TBB's limit for the whole process as
// long as the object lives.
class Workers {
 public:
  explicit Workers(int threads);
  int threads() const { return threads_; }

  // work(index, worker) for every index in [0, count), `grain` consecutive ones by one thread;
  // worker in [0, threads) is no other running call's. What work throws is thrown here, once all
  // calls have ended.
  template <class Work>
  void for_each(int64_t count, int64_t grain, const Work& work) {
    if (threads_ == 1 || count <= grain) {
      for (int64_t i = 0; i < count; ++i) work(i, 0);
      return;
    }
    const Published around(order_);
    arena_.execute([&] {
      const auto run = [&](const Range& range) {
        const Published task(order_);
        const int worker = tbb::this_task_arena::current_thread_index();
        for (int64_t i = range.begin(); i < range.end(); ++i) work(i, worker);
      };
      tbb::parallel_for(Range(0, count, static_cast<size_t>(grain)), run,
                        tbb::simple_partitioner());
    });
  }

 private:
  using Range = tbb::blocked_range<int64_t>;
  struct Published {
    explicit Published(TaskOrder& of) : order(of) { order.publish(); }
    ~Published() { order.publish(); }
    Published(const Published&) = delete;
    Published& operator=(const Published&) = delete;
    TaskOrder& order;
  };

  int threads_;
  std::optional<tbb::global_control> limit_;
  tbb::task_arena arena_;
  TaskOrder order_;
};

}  // namespace transload::kernels::cpu
