#include <gtest/gtest.h>

#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/allocation_count.h"
#include "tests/kernels/fixture.h"

namespace transload::kernels {
namespace {

// Every operation once, on buffers that are already there.
class Step {
 public:
  explicit Step(Backend& backend) : backend_(backend) {}

  void run() {
    const std::byte* const row = w_.bytes.data();
    for (const int64_t bits : {32, 16}) attention({1, 64, bits});
    LogitStats stats[kRows];
    backend_.decode_rows(w_.format, {&row, 1}, 256, y_.data(), 256);
    backend_.norm({layout::NormKind::kRms, x_.data(), 256, kRows, 256, x_.data(), nullptr, 1e-5F,
                   y_.data(), 256});
    backend_.matmul({x_.data(), 256, kRows, {&slice_, 1}, nullptr, y_.data(), 256});
    backend_.rotary({y_.data(), 256, kRows, 4, 64, 64, layout::RotaryStyle::kHalves, x_.data(), 1,
                     positions_.data()});
    backend_.activate({layout::Activation::kSilu, y_.data(), x_.data(), kRows, 256, 256});
    backend_.add(x_.data(), 256, y_.data(), 256, kRows, 256);
    backend_.accumulate_logits(y_.data(), 256, kRows, 256, 0, stats);
    backend_.for_each(
        10, [](void*, int64_t) {}, nullptr);
  }

  void attention(const KvShape& kv) {
    std::byte* block = block_.data();
    const std::byte* const blocks = block;
    const auto* const row = reinterpret_cast<const std::byte*>(kv_.data());
    const KvSlotWrite write = {row, row, block, 0};
    const AttendRow attend = {x_.data(), y_.data(), &blocks, 1};
    backend_.narrow_kv({kv_.data(), 256, kRows, 128, kv.bits});
    backend_.write_slots({&write, 1}, kv);
    backend_.attend({{&attend, 1}, 4, kv, 1});
    backend_.attend_prompt({x_.data(), y_.data(), 256, 256, row, row, 1024, kRows, 4, kv, 1});
  }

 private:
  static constexpr int64_t kRows = 100;
  Backend& backend_;
  Matrix w_ = matrix(quant::Format::kQ4_1, 256, 256, 1);
  WeightSlice slice_ = w_.slice(0, 256);
  std::vector<float> x_ = normals(kRows * 256, 2);
  std::vector<float> y_ = std::vector<float>(kRows * 256);
  std::vector<float> kv_ = normals(kRows * 256, 3);
  std::vector<std::byte> block_ =
      std::vector<std::byte>(static_cast<size_t>(KvShape{1, 64}.block_bytes()));
  std::vector<int32_t> positions_ = std::vector<int32_t>(kRows);
};

TEST(CpuBackend, OperationsAllocateNothing) {
  for (const Compute compute : {Compute::kFloat32, Compute::kFast}) {
    for (const int threads : {1, 2}) {
      const auto backend = cpu_backend("", threads, 2048, compute);
      Step step(*backend);
      step.run();  // the pool's threads start once
      const int64_t before = allocation_count();
      for (int turn = 0; turn < 3; ++turn) step.run();
      EXPECT_EQ(allocation_count() - before, 0) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace transload::kernels
