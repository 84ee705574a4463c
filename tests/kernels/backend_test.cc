#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/instructions.h"
#include "layout/kernel_scratch.h"
#include "tests/kernels/fixture.h"

namespace transload::kernels {
namespace {

using cpu::InstructionSet;
using testing::HasSubstr;

template <class Work>
void expect_error(Kind kind, const std::string& text, const Work& work) {
  try {
    work();
    FAIL() << "nothing was thrown, want: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(Instructions, BaselineIsAlwaysThereAndTheBestIsChosen) {
  const auto available = cpu::available_instructions();
  EXPECT_EQ(available.front(), InstructionSet::kBaseline);
  EXPECT_EQ(cpu::choose_instructions("", available), available.back());
  const std::vector<InstructionSet> old = {InstructionSet::kBaseline, InstructionSet::kSse4};
  EXPECT_EQ(cpu::choose_instructions("", old), InstructionSet::kSse4);
  EXPECT_EQ(cpu::choose_instructions("baseline", old), InstructionSet::kBaseline);
}

TEST(Instructions, WhatIsUnknownOrMissingIsRefusedByName) {
  const std::vector<InstructionSet> old = {InstructionSet::kBaseline};
  expect_error(Kind::kUnsupported, "no avx512", [&] { cpu::choose_instructions("avx512", old); });
  expect_error(Kind::kUsage, "'avx9'", [] { cpu_backend("avx9"); });
}

TEST(CpuBackend, SaysWhatItComputesWith) {
  const auto plain = cpu_backend("baseline", 2);
  EXPECT_EQ(plain->description(), "cpu, baseline");
  EXPECT_EQ(plain->product(quant::Format::kQ4_1).numbers, "float32");
  EXPECT_EQ(plain->product(quant::Format::kQ4_1).instructions, "baseline");
  const auto best = cpu::available_instructions().back();
  EXPECT_THAT(cpu_backend("")->description(), HasSubstr(std::string(name(best))));
}

TEST(CpuBackend, RefusesAnImpossibleNumberOfThreads) {
  expect_error(Kind::kUsage, "threads: 0", [] { cpu_backend("", 0); });
  expect_error(Kind::kUsage, "threads: 5000", [] { cpu_backend("", 5000); });
}

TEST(CpuBackend, ScratchIsAPanelOrABlockOfAttentionAThread) {
  CpuOptions options;
  options.max_cols = 576;
  options.max_head_dim = 16;
  EXPECT_EQ(cpu_scratch_bytes(options), 16 * 576 * 4);
  options.threads = 3;
  EXPECT_EQ(cpu_scratch_bytes(options), 3 * 16 * 576 * 4);
  // K and V of a run, scores and values of 8 queries, 96 merged ones.
  options.max_head_dim = 64;
  EXPECT_EQ(cpu_scratch_bytes(options), 3 * (2 * 64 * 64 + 8 * (64 + 64) + 96 * 64) * 4);
}

TEST(CpuBackend, ScratchIsWithinWhatLayoutSays) {
  CpuOptions options;
  for (options.compute = Compute::kFloat32;; options.compute = Compute::kFast) {
    for (options.threads = 1; options.threads <= 5; options.threads += 2) {
      for (options.max_cols = 1; options.max_cols < 9000;
           options.max_cols = 2 * options.max_cols + 3) {
        for (const int64_t head_dim : {1, 4, 31, 64, 80, 128, 256, 576}) {
          options.max_head_dim = head_dim;
          EXPECT_LE(cpu_scratch_bytes(options),
                    layout::kernel_scratch_bytes(options.threads, options.max_cols, head_dim))
              << options.threads << " threads, " << options.max_cols << " columns, " << head_dim;
        }
      }
    }
    if (options.compute == Compute::kFast) break;
  }
}

TEST(CpuBackend, RefusesRowsBeyondItsScratch) {
  const auto backend = cpu_backend("", 1, 64);
  const Matrix w = matrix(quant::Format::kF32, 2, 65, 1);
  const std::vector<float> x(65);
  std::vector<float> y(2);
  const std::vector<WeightSlice> slices = {w.slice(0, 2)};
  expect_error(Kind::kInternal, "max_cols", [&] {
    backend->matmul({x.data(), 65, 1, slices, nullptr, y.data(), 2});
  });
}

TEST(CpuBackend, RefusesHeadsThatDoNotShareEvenly) {
  const auto backend = cpu_backend("");
  expect_error(Kind::kInternal, "evenly", [&] { backend->attend({{}, 5, {2, 8}, 1}); });
}

TEST(ForEach, MeetsEveryIndexOnce) {
  for (const int threads : {1, 2, 3}) {
    std::vector<std::atomic<int>> met(1000);
    cpu_backend("", threads)
        ->for_each(
            1000,
            [](void* context, int64_t index) {
              (*static_cast<std::vector<std::atomic<int>>*>(context))[static_cast<size_t>(index)]++;
            },
            &met);
    for (size_t i = 0; i < met.size(); ++i) ASSERT_EQ(met[i], 1) << i;
  }
}

TEST(ForEach, PassesOnWhatTheWorkThrows) {
  for (const int threads : {1, 2}) {
    const auto backend = cpu_backend("", threads);
    const auto work = [](void*, int64_t index) {
      if (index == 77) throw Error(Kind::kBadInput, "index 77 is bad");
    };
    expect_error(Kind::kBadInput, "index 77", [&] { backend->for_each(100, work, nullptr); });
    std::atomic<int> calls = 0;  // and it works on
    backend->for_each(
        10, [](void* context, int64_t) { ++*static_cast<std::atomic<int>*>(context); }, &calls);
    EXPECT_EQ(calls, 10);
  }
}

}  // namespace
}  // namespace transload::kernels
