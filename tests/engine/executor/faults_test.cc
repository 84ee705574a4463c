// A disk that misbehaves: what can be retried changes nothing, what cannot ends the run by name.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "base/units.h"
#include "tests/engine/executor/plans.h"
#include "tests/engine/executor/shuffled_executor.h"

namespace transload::engine::testing {
namespace {

const JobSize kSize{.prompt_tokens = 70, .new_tokens = 5, .sequences = 4};

// Half of all requests are answered short (by whole pages, down to nothing), with EINTR or with
// EAGAIN, but none more than three times in a row. Both disk lanes ask.
class FlakyDisk : public offload::DiskFaults {
 public:
  int64_t answer(const Request& request) override {
    const std::lock_guard lock(mutex_);
    int& bad = bad_[{request.write, request.file, request.offset}];
    const uint64_t drawn = bad < 3 ? random_() % 6 : 3;
    bad = drawn < 3 ? bad + 1 : 0;
    if (drawn == 0) {
      ++short_answers;
      return round_down(request.bytes / 2, kPageBytes);
    }
    if (drawn < 3) ++errors;
    return drawn == 1 ? -EINTR : drawn == 2 ? -EAGAIN : request.bytes;
  }
  int64_t short_answers = 0;
  int64_t errors = 0;

 private:
  std::mutex mutex_;
  std::mt19937_64 random_{5};
  std::map<std::tuple<bool, int32_t, int64_t>, int> bad_;
};

// Fails with EIO from the given request of a kind on.
class DyingDisk : public offload::DiskFaults {
 public:
  DyingDisk(bool writes, int32_t file, int64_t after)
      : writes_(writes), file_(file), after_(after) {}
  int64_t answer(const Request& request) override {
    const std::lock_guard lock(mutex_);
    if (request.write != writes_ || request.file != file_) return request.bytes;
    if (after_-- > 0) return request.bytes;
    if (failed.empty()) failed = std::to_string(request.offset);
    return -EIO;
  }
  std::string failed;  // the offset

 private:
  std::mutex mutex_;
  bool writes_;
  int32_t file_;
  int64_t after_;
};

std::vector<ListFeed::Prompt> job(const layout::Model& model) {
  return prompts_of(model, {70, 3, 64, 1, 20, 9}, kSize.new_tokens);
}

using Engines = offload::DiskOptions::Engine;
class Disk : public ::testing::TestWithParam<Engines> {
 protected:
  bool denied() const {
    for (const offload::EngineProbe& probe : offload::probe_disk_engines())
      if (probe.engine == "io_uring" && !probe.works) return GetParam() == Engines::kIoUring;
    return false;
  }
  EngineOptions options(offload::DiskFaults* faults) const {
    EngineOptions made = options_with_spill(model_.folder());
    made.performer.disk_engine = GetParam();
    made.performer.faults = faults;
    return made;
  }

  SmallModel model_;
};

TEST_P(Disk, ShortAnswersInterruptionsAndAgainChangeNothing) {
  if (denied()) GTEST_SKIP() << "io_uring is denied here";
  const Answers plain = run(*model_, plain_plan(*model_, kSize), options(nullptr), job(*model_));
  for (const NamedPlan& named : placements(*model_, kSize)) {
    SCOPED_TRACE(named.name);
    FlakyDisk disk;
    EXPECT_EQ(run(*model_, named.plan, options(&disk), job(*model_)), plain);
    EXPECT_GT(disk.short_answers, 10);
    EXPECT_GT(disk.errors, 10);
  }
}

// Runs until it throws; the error's text, which must be an I/O error's.
std::string failure(const layout::Model& model, const planner::Plan& plan,
                    const EngineOptions& options) {
  try {
    run(model, plan, options, job(model));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kIo) << error.what();
    return error.what();
  }
  return "no error";
}

int64_t threads_here() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

TEST_P(Disk, AnErrorEndsTheRunNamingFileAndOffsetAndLeavesNoThread) {
  if (denied()) GTEST_SKIP() << "io_uring is denied here";
  const auto spill = static_cast<int32_t>(model_->files.size());
  struct Dying {
    const char* what;
    bool writes;
    int32_t file;
    int64_t after;
    std::string name;
  };
  const std::vector<Dying> cases = {
      {"the first read of the model", false, 0, 0, model_->files[0]},
      {"a later read of the model", false, 0, 60, model_->files[0]},
      {"a read of KV blocks", false, spill, 3, model_.folder()},
      {"the first write of KV blocks", true, 0, 0, model_.folder()},
      {"a later write of KV blocks", true, 0, 9, model_.folder()},
  };
  const int64_t before = threads_here();
  for (const NamedPlan& named : placements(*model_, kSize))
    for (const Dying& dying : cases) {
      SCOPED_TRACE(named.name + ", " + dying.what);
      DyingDisk disk(dying.writes, dying.file, dying.after);
      const std::string text = failure(*model_, named.plan, options(&disk));
      EXPECT_NE(text.find(dying.name), std::string::npos) << text;
      EXPECT_NE(text.find("offset " + disk.failed + " of"), std::string::npos) << text;
      // The system removes a joined thread's entry a moment after the join.
      for (int i = 0; i < 100000 && threads_here() > before; ++i) std::this_thread::yield();
      EXPECT_LE(threads_here(), before);
    }
}

INSTANTIATE_TEST_SUITE_P(Engines, Disk, ::testing::Values(Engines::kIoUring, Engines::kThreads),
                         [](const auto& param) {
                           return param.param == Engines::kIoUring ? "IoUring" : "Threads";
                         });

// Flips a bit of a block of the spill file after the first sweep.
class FlippingFeed : public ListFeed {
 public:
  FlippingFeed(const std::vector<Prompt>& prompts, int64_t offset)
      : ListFeed(prompts), offset_(offset) {}
  bool advance(Sequence& sequence) override {
    if (spill != nullptr) flip();
    spill = nullptr;
    return ListFeed::advance(sequence);
  }
  const offload::File* spill = nullptr;

 private:
  void flip() const {  // whole pages, for O_DIRECT
    const std::unique_ptr<void, decltype(&std::free)> memory(
        std::aligned_alloc(kPageBytes, kPageBytes), &std::free);
    auto* const page = static_cast<unsigned char*>(memory.get());
    const int64_t begin = round_down(offset_, kPageBytes);
    ASSERT_EQ(pread(spill->descriptor(), page, kPageBytes, begin), kPageBytes);
    page[offset_ - begin] ^= 1;
    ASSERT_EQ(pwrite(spill->descriptor(), page, kPageBytes, begin), kPageBytes);
  }

  int64_t offset_;
};

TEST(SpilledKv, AFlippedBitIsFoundWithFileBlockAndOffset) {
  const SmallModel model;
  const JobSize size{.prompt_tokens = 20, .new_tokens = 5, .sequences = 1};
  planner::Plan plan = placements(*model, size)[0].plan;
  const int64_t block_bytes = planner::footprint(*model, plan).kv_block_bytes;
  ASSERT_EQ(plan.kv_blocks[2], 2);  // a sequence, two layers
  for (const int64_t block : {0, 1}) {
    // The first slot's value is part of the block although later tokens rewrite the block's tail.
    FlippingFeed feed(prompts_of(*model, {20}, 5), block * block_bytes);
    Engine engine(*model, plan, shuffled(*model, plan, model.folder(), {.in_order = true}));
    feed.spill = engine.performer().memory().spill();
    try {
      engine.run(feed);
      ADD_FAILURE() << "block " << block << " came back changed and nobody noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Kind::kIo);
      const std::string text = error.what();
      EXPECT_NE(text.find("block " + std::to_string(block) + " of '" + model.folder()),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("offset " + std::to_string(block * block_bytes) + ","), std::string::npos)
          << text;
    }
  }
}

}  // namespace
}  // namespace transload::engine::testing
