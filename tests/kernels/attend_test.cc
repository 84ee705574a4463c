#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/fixture.h"
#include "tests/reference/attention.h"

namespace transload::kernels {
namespace {

struct Shape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t bits = 32;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  KvShape kv() const { return {kv_heads, head_dim, bits}; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }
  std::string text() const {
    return std::to_string(heads) + "/" + std::to_string(kv_heads) + " x " +
           std::to_string(head_dim) + " in " + std::to_string(bits) + " bits";
  }
};

// Groups of one, several and too many heads for a register tile; 100 / 1: for a pass over K and V.
constexpr Shape kShapes[] = {{1, 1, 1},   {3, 1, 5},   {9, 3, 64},  {8, 8, 20},
                             {14, 2, 33}, {7, 1, 128}, {100, 1, 3}, {32, 4, 16}};

struct Prompt {
  Shape shape;
  int64_t rows = 0;
  std::vector<float> q, k, v;  // K and V are numbers of the cache already
};

// Rounds to float16 where the cache is of that.
std::vector<float> cached(std::vector<float> values, int64_t bits) {
  if (bits == 32) return values;
  for (float& value : values) value = quant::half_to_float(quant::float_to_half(value));
  return values;
}

Prompt prompt(const Shape& shape, int64_t rows, uint32_t seed) {
  return {shape, rows, normals(rows * shape.q_width(), seed, 2),
          cached(normals(rows * shape.kv_width(), seed + 1, 2), shape.bits),
          cached(normals(rows * shape.kv_width(), seed + 2), shape.bits)};
}

// Rows [K of all heads, V of all heads], two floats apart, as the backend narrows them.
class KvRows {
 public:
  KvRows(Backend& backend, const Prompt& of)
      : width_(of.shape.kv_width()), ld_(2 * width_ + 2), bits_(of.shape.bits) {
    for (int64_t row = 0; row < of.rows; ++row) {
      floats_.insert(floats_.end(), of.k.begin() + row * width_, of.k.begin() + (row + 1) * width_);
      floats_.insert(floats_.end(), of.v.begin() + row * width_, of.v.begin() + (row + 1) * width_);
      floats_.resize(floats_.size() + 2);
    }
    backend.narrow_kv({floats_.data(), ld_, of.rows, 2 * width_, bits_});
  }
  int64_t ld_bytes() const { return ld_ * 4; }
  const std::byte* k(int64_t row) const {
    return reinterpret_cast<const std::byte*>(floats_.data() + row * ld_);
  }
  const std::byte* v(int64_t row) const { return k(row) + layout::kv_bytes(width_, bits_); }

 private:
  int64_t width_;
  int64_t ld_;
  int64_t bits_;
  std::vector<float> floats_;
};

AttendPromptArgs prompt_args(const Prompt& of, const KvRows& kv, const float* q, float* out) {
  return {.q = q,
          .out = out,
          .ld_q = of.shape.q_width(),
          .ld_out = of.shape.q_width(),
          .k = kv.k(0),
          .v = kv.v(0),
          .ld_kv = kv.ld_bytes(),
          .rows = of.rows,
          .heads = of.shape.heads,
          .kv = of.shape.kv(),
          .scale = of.shape.scale()};
}

std::vector<float> attend_prompt(Backend& backend, const Prompt& of) {
  std::vector<float> out(of.q.size(), NAN);
  backend.attend_prompt(prompt_args(of, KvRows(backend, of), of.q.data(), out.data()));
  return out;
}

// [rows, heads]
std::vector<float> prompt_log_sums(Backend& backend, const Prompt& of) {
  std::vector<float> out(of.q.size());
  std::vector<float> log_sums(static_cast<size_t>(of.rows * of.shape.heads), NAN);
  const KvRows kv(backend, of);
  AttendPromptArgs args = prompt_args(of, kv, of.q.data(), out.data());
  args.log_sum_exp = log_sums.data();
  backend.attend_prompt(args);
  return log_sums;
}

// The prompt's K and V in KV blocks; slots that nobody wrote hold NaN.
struct Blocks {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<const std::byte*> pointers;
};

Blocks blocks_of(Backend& backend, const Prompt& of) {
  Blocks blocks;
  const int64_t count = (of.rows + kBlockSlots - 1) / kBlockSlots;
  for (int64_t i = 0; i < count; ++i) {
    // All bits set are a NaN in both widths.
    blocks.bytes.emplace_back(static_cast<size_t>(of.shape.kv().block_bytes()), std::byte{0xff});
  }
  const KvRows kv(backend, of);
  std::vector<KvSlotWrite> writes;
  for (int64_t row = 0; row < of.rows; ++row) {
    writes.push_back({kv.k(row), kv.v(row),
                      blocks.bytes[static_cast<size_t>(row / kBlockSlots)].data(),
                      row % kBlockSlots});
  }
  backend.write_slots(writes, of.shape.kv());
  for (const auto& block : blocks.bytes) blocks.pointers.push_back(block.data());
  return blocks;
}

// Rows of the prompt as if each were decoded last: row i over slots 0..i.
std::vector<float> attend_rows(Backend& backend, const Prompt& of, const Blocks& blocks,
                               const std::vector<int64_t>& which, bool in_place = false) {
  const int64_t width = of.shape.q_width();
  std::vector<float> q;
  for (const int64_t row : which) {
    q.insert(q.end(), of.q.begin() + row * width, of.q.begin() + (row + 1) * width);
  }
  std::vector<float> out = in_place ? q : std::vector<float>(q.size(), NAN);
  std::vector<AttendRow> rows;
  for (size_t i = 0; i < which.size(); ++i) {
    const auto at = static_cast<int64_t>(i) * width;
    rows.push_back(
        {(in_place ? out : q).data() + at, out.data() + at, blocks.pointers.data(), which[i] + 1});
  }
  backend.attend({rows, of.shape.heads, of.shape.kv(), of.shape.scale()});
  return out;
}

// Row `row`'s out [heads * head_dim] and log-sum-exp [heads].
void expect_near_reference(const Prompt& of, int64_t row, const float* got, const float* log_sum) {
  const Shape& shape = of.shape;
  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t head = 0; head < shape.heads; ++head) {
    const int64_t at = head / group * shape.head_dim;
    const auto k = [&](int64_t s) { return of.k.data() + s * shape.kv_width() + at; };
    const auto v = [&](int64_t s) { return of.v.data() + s * shape.kv_width() + at; };
    const float* q = of.q.data() + row * shape.q_width() + head * shape.head_dim;
    const auto want =
        reference::attend(q, k, v, row + 1, shape.head_dim, static_cast<double>(shape.scale()));
    // A score is off by at most (head_dim + 4) eps sum|q||k| scale, which |q|, |k| <= 10 bounds;
    // twice that in the weights, against values of at most 6.
    const double score = static_cast<double>(shape.head_dim + 4) * kEps * 100 *
                         std::sqrt(static_cast<double>(shape.head_dim));
    const double bound = 6 * (2 * score + (static_cast<double>(row) + 20) * kEps);
    for (int64_t e = 0; e < shape.head_dim; ++e) {
      const double is = static_cast<double>(got[head * shape.head_dim + e]);
      ASSERT_LE(std::fabs(is - want.out[static_cast<size_t>(e)]), bound)
          << shape.text() << " row " << row << " head " << head << " at " << e << ": want "
          << want.out[static_cast<size_t>(e)] << ", got " << is;
    }
    ASSERT_NEAR(static_cast<double>(log_sum[head]), want.log_sum_exp, 2 * score + bound)
        << shape.text() << " row " << row << " head " << head;
  }
}

struct Part {
  std::vector<float> out;
  std::vector<float> log_sum_exp;
};

// Row `row`'s queries over the first `slots` slots of the blocks.
Part attend_part(Backend& backend, const Prompt& of, int64_t row, const std::byte* const* blocks,
                 int64_t slots) {
  const int64_t width = of.shape.q_width();
  Part part = {std::vector<float>(static_cast<size_t>(width), NAN),
               std::vector<float>(static_cast<size_t>(of.shape.heads), NAN)};
  const AttendRow args = {of.q.data() + row * width, part.out.data(), blocks, slots,
                          part.log_sum_exp.data()};
  backend.attend({{&args, 1}, of.shape.heads, of.shape.kv(), of.shape.scale()});
  return part;
}

// The two of disjoint slots as one.
Part merged(const Part& a, const Part& b, int64_t head_dim) {
  Part both = a;
  for (size_t i = 0; i < both.out.size(); ++i) {
    const size_t head = i / static_cast<size_t>(head_dim);
    const float least = std::min(a.log_sum_exp[head], b.log_sum_exp[head]);
    const float most = std::max(a.log_sum_exp[head], b.log_sum_exp[head]);
    const float all = most + std::log1p(std::exp(least - most));
    both.out[i] = a.out[i] * std::exp(a.log_sum_exp[head] - all) +
                  b.out[i] * std::exp(b.log_sum_exp[head] - all);
    both.log_sum_exp[head] = all;
  }
  return both;
}

// Instruction set, bits of the KV cache.
class Attend : public testing::TestWithParam<std::tuple<std::string, int64_t>> {
 protected:
  static std::unique_ptr<Backend> backend(int threads = 1) {
    return cpu_backend(std::get<0>(GetParam()), threads);
  }
  static Shape cut(Shape shape) {
    shape.bits = std::get<1>(GetParam());
    return shape;
  }
};

TEST_P(Attend, PromptMatchesReference) {
  const auto backend = Attend::backend();
  for (const Shape& shape : kShapes) {
    for (const int64_t rows : {1, 63, 64, 65, 130}) {
      const Prompt of = prompt(cut(shape), rows, 3);
      const auto out = attend_prompt(*backend, of);
      const auto log_sums = prompt_log_sums(*backend, of);
      for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
        expect_near_reference(of, row, out.data() + row * shape.q_width(),
                              log_sums.data() + row * shape.heads);
      }
    }
  }
}

TEST_P(Attend, RowsMatchReference) {
  const auto backend = Attend::backend();
  for (const Shape& shape : kShapes) {
    const Prompt of = prompt(cut(shape), 200, 4);
    const Blocks blocks = blocks_of(*backend, of);
    for (const int64_t row : {0, 1, 62, 63, 64, 127, 128, 199}) {
      const Part all = attend_part(*backend, of, row, blocks.pointers.data(), row + 1);
      expect_near_reference(of, row, all.out.data(), all.log_sum_exp.data());
    }
  }
}

TEST_P(Attend, PartsMergeByTheirLogSumExp) {
  const auto backend = Attend::backend();
  for (const Shape& shape : kShapes) {
    const Prompt of = prompt(cut(shape), 200, 12);
    const Blocks blocks = blocks_of(*backend, of);
    const std::byte* const* at = blocks.pointers.data();
    for (const int64_t cut_at : {1, 2, 3}) {
      const Part both = merged(
          attend_part(*backend, of, 199, at, cut_at * kBlockSlots),
          attend_part(*backend, of, 199, at + cut_at, 200 - cut_at * kBlockSlots), shape.head_dim);
      expect_near_reference(of, 199, both.out.data(), both.log_sum_exp.data());
    }
  }
}

TEST_P(Attend, ADecodedRowHasThePromptsBits) {
  const auto backend = Attend::backend();
  for (const Shape& shape : kShapes) {
    const Prompt of = prompt(cut(shape), 150, 5);
    const Blocks blocks = blocks_of(*backend, of);
    std::vector<int64_t> every(150);
    for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<int64_t>(i);
    expect_same_bits(attend_rows(*backend, of, blocks, every), attend_prompt(*backend, of),
                     shape.text());
  }
}

TEST_P(Attend, ARowsBitsDoNotDependOnItsCompanyOrThreads) {
  const Prompt of = prompt(cut({9, 3, 64}), 140, 6);
  const auto backend = Attend::backend();
  const Blocks blocks = blocks_of(*backend, of);
  const std::vector<int64_t> which = {139, 0, 64, 63, 100, 1};
  const auto together = attend_rows(*backend, of, blocks, which);
  const int64_t width = of.shape.q_width();
  for (size_t i = 0; i < which.size(); ++i) {
    const auto at = together.begin() + static_cast<int64_t>(i) * width;
    expect_same_bits(attend_rows(*backend, of, blocks, {which[i]}), {at, at + width}, "alone");
  }
  for (const int threads : {2, 3}) {
    const auto many = Attend::backend(threads);
    expect_same_bits(attend_rows(*many, of, blocks, which), together, "threads");
    expect_same_bits(attend_prompt(*many, of), attend_prompt(*backend, of), "threads, prompt");
  }
}

TEST_P(Attend, OutMayBeTheQuery) {
  const auto backend = Attend::backend(2);
  const Prompt of = prompt(cut({14, 2, 33}), 70, 7);
  const Blocks blocks = blocks_of(*backend, of);
  expect_same_bits(attend_rows(*backend, of, blocks, {69, 3}, true),
                   attend_rows(*backend, of, blocks, {69, 3}), "rows");
  Prompt in_place = of;
  backend->attend_prompt(
      prompt_args(of, KvRows(*backend, of), in_place.q.data(), in_place.q.data()));
  expect_same_bits(in_place.q, attend_prompt(*backend, of), "prompt");
}

TEST_P(Attend, OneSlotGivesItsValue) {
  const auto backend = Attend::backend();
  const Prompt of = prompt(cut({4, 4, 16}), 1, 8);
  expect_same_bits(attend_prompt(*backend, of), of.v, "the only value");
}

TEST_P(Attend, LaterTokensDoNotReachEarlierRows) {
  const auto backend = Attend::backend();
  Prompt of = prompt(cut({3, 1, 24}), 70, 9);
  const auto before = attend_prompt(*backend, of);
  for (int64_t e = 0; e < 24; ++e) of.k[static_cast<size_t>(66 * 24 + e)] = NAN;
  for (int64_t e = 0; e < 24; ++e) of.v[static_cast<size_t>(66 * 24 + e)] = INFINITY;
  const auto after = attend_prompt(*backend, of);
  const auto seen = 66 * of.shape.q_width();
  expect_same_bits({after.begin(), after.begin() + seen}, {before.begin(), before.begin() + seen},
                   "rows before the spoilt one");
  EXPECT_TRUE(std::isnan(after[static_cast<size_t>(seen)]));
}

TEST_P(Attend, LargeScoresDoNotOverflow) {
  const auto backend = Attend::backend();
  Prompt of = prompt(cut({1, 1, 8}), 130, 10);
  for (float& q : of.q) q = 1e3F;
  for (float& k : of.k) k *= 1e3F;
  for (const float y : attend_prompt(*backend, of)) ASSERT_TRUE(std::isfinite(y));
}

TEST_P(Attend, ANanInAKeyReachesTheRowsThatSeeIt) {
  const auto backend = Attend::backend();
  Prompt of = prompt(cut({2, 1, 16}), 70, 11);
  of.k[3 * 16 + 5] = NAN;
  const auto out = attend_prompt(*backend, of);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 32 >= 3) << i;
}

INSTANTIATE_TEST_SUITE_P(Cpu, Attend,
                         testing::Combine(testing::ValuesIn(instruction_sets()),
                                          testing::Values(int64_t{32}, int64_t{16})),
                         [](const auto& of) {
                           return std::get<0>(of.param) + "_kv" +
                                  std::to_string(std::get<1>(of.param));
                         });

}  // namespace
}  // namespace transload::kernels
