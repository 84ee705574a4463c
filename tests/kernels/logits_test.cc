#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/backend.h"
#include "tests/kernels/fixture.h"

namespace transload::kernels {
namespace {

class Logits : public testing::TestWithParam<std::string> {};

// Feeds rows of `vocab` logits in pieces of `piece`.
std::vector<LogitStats> accumulate(Backend& backend, const std::vector<float>& logits,
                                   int64_t vocab, int64_t piece, int32_t target) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / vocab;
  std::vector<LogitStats> stats(static_cast<size_t>(rows));
  for (LogitStats& of : stats) of.target = target;
  for (int64_t first = 0; first < vocab; first += piece) {
    backend.accumulate_logits(logits.data() + first, vocab, rows, std::min(piece, vocab - first),
                              first, stats.data());
  }
  return stats;
}

TEST_P(Logits, MatchReference) {
  const auto backend = cpu_backend(GetParam(), 2);
  for (const int64_t vocab : {1, 63, 64, 65, 1000, 49152}) {
    const auto logits = normals(3 * vocab, 1, 5);
    const auto target = static_cast<int32_t>(vocab / 2);
    const auto stats = accumulate(*backend, logits, vocab, vocab, target);
    for (size_t row = 0; row < 3; ++row) {
      const auto at = logits.begin() + static_cast<int64_t>(row) * vocab;
      const auto best = std::max_element(at, at + vocab);
      double sum = 0;
      for (auto it = at; it < at + vocab; ++it) {
        sum += std::exp(static_cast<double>(*it) - static_cast<double>(*best));
      }
      EXPECT_EQ(stats[row].maximum, *best);
      EXPECT_EQ(stats[row].best, best - at);
      EXPECT_EQ(stats[row].target_logit, at[target]);
      // exp of a difference below 64 is off by 64 eps and 2 roundings; a tile adds 64 numbers.
      EXPECT_NEAR(stats[row].sum, sum, sum * 134 * kEps) << vocab;
    }
  }
}

TEST_P(Logits, BitsDoNotDependOnPiecesOrThreads) {
  const auto logits = normals(7 * 1000, 2, 5);
  const auto whole = accumulate(*cpu_backend(GetParam()), logits, 1000, 1000, 999);
  for (const int64_t piece : {64, 128, 320, 960}) {
    const auto cut = accumulate(*cpu_backend(GetParam(), 3), logits, 1000, piece, 999);
    for (size_t row = 0; row < whole.size(); ++row) {
      EXPECT_EQ(cut[row].sum, whole[row].sum) << piece;
      EXPECT_EQ(cut[row].maximum, whole[row].maximum) << piece;
      EXPECT_EQ(cut[row].best, whole[row].best) << piece;
      EXPECT_EQ(cut[row].target_logit, whole[row].target_logit) << piece;
    }
  }
}

TEST_P(Logits, TheSmallestTokenWinsATie) {
  const auto backend = cpu_backend(GetParam());
  std::vector<float> logits(300, -1.0F);
  for (const size_t token : {70U, 75U, 200U}) logits[token] = 2;
  EXPECT_EQ(accumulate(*backend, logits, 300, 64, -1)[0].best, 70);
  const std::vector<float> equal(300, -7.0F);
  const auto stats = accumulate(*backend, equal, 300, 300, -1);
  EXPECT_EQ(stats[0].best, 0);
  EXPECT_EQ(stats[0].sum, 300.0);
}

TEST_P(Logits, MaskedTokensCountForNothing) {
  const auto backend = cpu_backend(GetParam());
  std::vector<float> logits(130, -INFINITY);
  logits[129] = 3;
  const auto stats = accumulate(*backend, logits, 130, 130, 4);
  EXPECT_EQ(stats[0].best, 129);
  EXPECT_EQ(stats[0].sum, 1.0);
  EXPECT_EQ(stats[0].target_logit, -INFINITY);
}

TEST_P(Logits, ANanMakesTheSumOne) {
  const auto backend = cpu_backend(GetParam());
  for (const size_t token : {0U, 70U, 129U}) {
    std::vector<float> logits(130, 1.0F);
    logits[token] = NAN;
    EXPECT_TRUE(std::isnan(accumulate(*backend, logits, 130, 64, 4)[0].sum)) << token;
  }
}

TEST_P(Logits, APieceStartsAtATile) {
  const auto backend = cpu_backend(GetParam());
  const std::vector<float> logits(64);
  LogitStats stats;
  EXPECT_THROW(backend->accumulate_logits(logits.data(), 64, 1, 64, 32, &stats), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Logits, testing::ValuesIn(instruction_sets()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace transload::kernels
