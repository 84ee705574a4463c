#include "engine/run/selftest.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/executor/engine.h"
#include "engine/families/synthetic.h"
#include "planner/placement.h"

namespace transload::engine {
namespace {

using offload::DiskFaults;
using Tokens = std::map<int64_t, std::vector<int32_t>>;

constexpr int64_t kRequests = 6;
constexpr int64_t kPromptTokens = 24;
constexpr int64_t kNewTokens = 8;

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    path_ = directory + "/selftest-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw_errno(errno, "make a folder in " + directory);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class CountingFeed : public Feed {
 public:
  explicit CountingFeed(int64_t vocab) : vocab_(vocab) {}
  std::optional<Sequence> next() override {
    if (next_ == kRequests) return std::nullopt;
    Sequence sequence;
    sequence.request = next_++;
    sequence.tokens.reserve(kPromptTokens + kNewTokens);
    for (int64_t i = 0; i < kPromptTokens; ++i)
      sequence.tokens.push_back(static_cast<int32_t>((7 * i + 31 * sequence.request) % vocab_));
    sequence.prompt_tokens = kPromptTokens;
    sequence.max_new_tokens = kNewTokens;
    return sequence;
  }
  bool advance(Sequence& sequence) override {
    if (!sequence.error.empty()) throw Error(Kind::kInternal, sequence.error);
    tokens[sequence.request].push_back(sequence.tokens.back());
    return sequence.generated() < sequence.max_new_tokens;
  }
  bool stop_requested() override { return false; }
  void tick(int64_t, int64_t, int64_t) override {}

  Tokens tokens;

 private:
  int64_t vocab_;
  int64_t next_ = 0;
};

// Half of what is asked for, in whole pages.
class ShortAnswers : public DiskFaults {
 public:
  int64_t answer(const Request& request) override {
    if (request.bytes <= kPageBytes) return request.bytes;
    ++faults;
    return round_down(request.bytes / 2 + kPageBytes - 1, kPageBytes);
  }
  std::atomic<int64_t> faults = 0;
};

// An error in place of the third read or write.
class OneError : public DiskFaults {
 public:
  OneError(bool write, int error) : write_(write), error_(error) {}
  int64_t answer(const Request& request) override {
    if (request.write != write_ || ++seen_ != 3) return request.bytes;
    return -error_;
  }

 private:
  bool write_;
  int error_;
  std::atomic<int> seen_ = 0;
};

// A system that grants no io_uring.
class NoRing : public DiskFaults {
 public:
  int64_t answer(const Request& request) override { return request.bytes; }
  int deny_ring() override { return EPERM; }
};

class Job {
 public:
  Job(std::string directory, int threads)
      : folder_(directory), directory_(std::move(directory)), threads_(threads) {
    SyntheticModel shape;
    shape.family = "llama";
    shape.hidden = 64;
    shape.layers = 3;
    shape.heads = 2;
    shape.ffn = 128;
    shape.vocab = 512;
    shape.max_positions = 4096;
    write_synthetic(shape, folder_.path() + "/model");
    model_ = load_model(open_checkpoint(folder_.path() + "/model"));
  }

  Tokens run(DiskFaults* faults) {
    planner::Wishes wishes;
    wishes.weights = layout::Shares{0, 0, 1};
    wishes.kv = layout::Shares{0, 0, 1};
    wishes.batch_size = 2;
    wishes.num_batches = 2;
    return run(wishes, kPromptTokens + kNewTokens, faults);
  }
  // One whose memory is far above what the process has now.
  Tokens run_large() {
    planner::Wishes wishes;
    wishes.batch_size = 64;
    wishes.num_batches = 1;
    return run(wishes, model_.spec.max_positions, nullptr);
  }
  // How the last run that ended read the disk.
  const std::string& disk() const { return disk_; }

 private:
  Tokens run(planner::Wishes wishes, int64_t tokens, DiskFaults* faults) {
    wishes.threads = threads_;
    planner::Workload work;
    work.requests = 64;
    work.max_prompt_tokens = work.mean_prompt_tokens = kPromptTokens;
    work.max_total_tokens = tokens;
    work.max_new_tokens = tokens - kPromptTokens;
    const planner::Machine machine{.disk_read_bytes_per_s = 1e9,
                                   .disk_write_bytes_per_s = 1e9,
                                   .link_bytes_per_s = 1e10,
                                   .compute_flops_per_s = 1e11,
                                   .compute_bytes_per_s = 1e10,
                                   .task_s = 1e-5};
    const planner::Plan plan =
        planner::place({model_, work, wishes, {4 * kGiB, 4 * kGiB}, machine}).plan;
    EngineOptions options;
    options.performer.tiers.disk_directory = directory_;
    options.performer.faults = faults;
    CountingFeed feed(model_.spec.vocab);
    Engine engine(model_, plan, options);
    engine.run(feed);
    disk_ = engine.performer().disk_description();
    return feed.tokens;
  }

  ScratchFolder folder_;
  std::string directory_;
  int threads_;
  layout::Model model_;
  std::string disk_;
};

// While it lives the process may map little more than it has now: what threads and allocators take,
// and not the memory of run_large.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    ::getrlimit(RLIMIT_AS, &before_);
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages * kPageBytes + 64 * kMiB);
    ::setrlimit(RLIMIT_AS, &limit);
  }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;
  ~NoMoreMemory() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// A fault that must not change what comes out.
SelftestResult overcome(const std::string& fault, const Tokens& expected,
                        const std::function<Tokens()>& run) {
  try {
    const bool equal = run() == expected;
    return {fault, equal, equal ? "the same tokens" : "other tokens"};
  } catch (const Error& error) {
    return {fault, false, error.what()};
  }
}

// Without io_uring, threads read the disk, and the lane names the system's refusal.
SelftestResult deny_io_uring(const Tokens& expected, Job& job) {
  NoRing no_ring;
  SelftestResult result = overcome("denied io_uring", expected, [&] { return job.run(&no_ring); });
  if (!result.passed) return result;
  result.what += "; " + job.disk();
  result.passed = job.disk().find("threads with pread/pwrite") != std::string::npos &&
                  job.disk().find(std::strerror(EPERM)) != std::string::npos;
  return result;
}

// A fault that must end the run with an error of this kind.
SelftestResult refuse(const std::string& fault, Kind kind, const std::function<void()>& run) {
  try {
    run();
    return {fault, false, "nothing was noticed"};
  } catch (const Error& error) {
    return {fault, error.kind() == kind, error.what()};
  } catch (const std::bad_alloc&) {
    return {fault, kind == Kind::kDoesNotFit, "out of process memory"};
  }
}

}  // namespace

std::vector<SelftestResult> run_selftest(const std::string& directory, int threads) {
  Job job(directory, threads);
  const Tokens expected = job.run(nullptr);
  std::vector<SelftestResult> results;
  const auto ends_with_error = [&](const std::string& fault, bool write, int error) {
    results.push_back(refuse(fault, Kind::kIo, [&] {
      OneError one(write, error);
      job.run(&one);
    }));
  };
  ShortAnswers shortened;
  results.push_back(overcome("short I/O", expected, [&] { return job.run(&shortened); }));
  if (shortened.faults == 0) results.back().passed = false;
  results.back().what += fmt::format(", {} reads and writes cut short", shortened.faults.load());
  ends_with_error("EIO on a read", false, EIO);
  ends_with_error("EIO on a write", true, EIO);
  ends_with_error("no space", true, ENOSPC);
  results.push_back(deny_io_uring(expected, job));
  results.push_back(refuse("failed allocation", Kind::kDoesNotFit, [&] {
    const NoMoreMemory limit;
    job.run_large();
  }));
  results.push_back(overcome("none, after all these", expected, [&] { return job.run(nullptr); }));
  return results;
}

}  // namespace transload::engine
