#include "engine/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "tests/engine/sampling/allocations.h"

namespace transload::engine {
namespace {

using ::testing::HasSubstr;

std::vector<float> random_logits(size_t vocab, uint64_t seed) {
  std::vector<float> logits(vocab);
  for (size_t i = 0; i < vocab; ++i) {
    logits[i] = static_cast<float>(8 * counter_uniform(seed, 99, i) - 4);
  }
  return logits;
}

Sampled run(const SampleRow& row, const SamplingOptions& options) {
  SamplingScratch scratch(static_cast<int64_t>(row.logits.size()));
  Sampled result;
  sample(row, options, scratch, result);
  return result;
}

// The specification of the draw's distribution in plain loops: probability of each token.
std::vector<double> reference_distribution(const SampleRow& row, const SamplingOptions& options) {
  std::vector<double> value(row.logits.begin(), row.logits.end());
  std::set<int32_t> seen(row.prompt.begin(), row.prompt.end());
  seen.insert(row.generated.begin(), row.generated.end());
  for (const int32_t t : seen) {
    double& v = value[static_cast<size_t>(t)];
    v = v > 0 ? v / options.repetition_penalty : v * options.repetition_penalty;
  }
  std::map<int32_t, int> counts;
  for (const int32_t t : row.generated) ++counts[t];
  for (const auto& [t, n] : counts) {
    value[static_cast<size_t>(t)] -= options.presence_penalty + options.frequency_penalty * n;
  }
  for (const int32_t t : row.banned)
    value[static_cast<size_t>(t)] = -std::numeric_limits<double>::infinity();
  std::vector<size_t> order(value.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return value[a] > value[b]; });
  std::vector<double> p(value.size(), 0.0);
  if (options.temperature == 0) {
    p[order[0]] = 1;
    return p;
  }
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  double total = 0;
  for (const size_t t : order) {
    p[t] = std::exp((value[t] - value[order[0]]) / options.temperature);
    total += p[t];
  }
  double before = 0;
  double kept = 0;
  for (const size_t t : order) {
    const double share = p[t] / total;
    if (before >= options.top_p || p[t] < options.min_p) p[t] = 0;
    before += share;
    kept += p[t];
  }
  for (double& x : p) x /= kept;
  return p;
}

// Chi-square of the draws against the reference, over tokens expected at least 5 times.
void expect_distribution(SampleRow row, const SamplingOptions& options, int draws = 20000) {
  const std::vector<double> p = reference_distribution(row, options);
  std::vector<int> counts(p.size(), 0);
  SamplingScratch scratch(static_cast<int64_t>(p.size()));
  Sampled result;
  for (row.step = 0; row.step < draws; ++row.step) {
    sample(row, options, scratch, result);
    ++counts[static_cast<size_t>(result.token)];
  }
  double chi2 = 0;
  int cells = 0;
  for (size_t t = 0; t < p.size(); ++t) {
    const double expected = p[t] * draws;
    if (p[t] == 0) {
      ASSERT_EQ(counts[t], 0) << "token " << t << " is outside the cut";
    }
    if (expected < 5) continue;
    chi2 += (counts[t] - expected) * (counts[t] - expected) / expected;
    ++cells;
  }
  // Mean cells - 1, deviation sqrt(2 (cells - 1)): five deviations above the mean.
  EXPECT_LT(chi2, cells - 1 + 5 * std::sqrt(2.0 * std::max(1, cells - 1)) + 5);
}

TEST(CounterUniform, EqualsThePublishedPhiloxVectors) {
  const auto uniform = [](uint64_t word0, uint64_t word1) {
    return static_cast<double>(((word1 << 32) | word0) >> 11) * 0x1.0p-53;
  };
  EXPECT_EQ(counter_uniform(0, 0, 0), uniform(0x6627e8d5, 0xe169c58d));
  EXPECT_EQ(counter_uniform(~0ull, ~0ull, ~0ull), uniform(0x408f276d, 0x41c83b0e));
  EXPECT_EQ(counter_uniform(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            uniform(0xd16cfe09, 0x94fdcceb));
}

TEST(CounterUniform, IsUniformOverStepsStreamsAndSeeds) {
  for (int which = 0; which < 3; ++which) {
    std::array<int, 16> cells{};
    for (uint64_t i = 0; i < 16000; ++i) {
      const double u = which == 0   ? counter_uniform(7, 1, i)
                       : which == 1 ? counter_uniform(7, i, 1)
                                    : counter_uniform(i, 7, 1);
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      ++cells[static_cast<size_t>(u * 16)];
    }
    double chi2 = 0;
    for (const int n : cells) chi2 += (n - 1000.0) * (n - 1000.0) / 1000.0;
    EXPECT_LT(chi2, 45) << which;  // 15 degrees of freedom: p < 1e-4
  }
}

TEST(Sample, GreedyTakesTheLargestAndTheSmallestTokenOnTies) {
  const std::vector<float> logits{1, 3, 2, 3, -1};
  EXPECT_EQ(run({.logits = logits}, {}).token, 1);
  const std::vector<int32_t> banned{1};
  EXPECT_EQ(run({.logits = logits, .banned = banned}, {}).token, 3);
}

TEST(Sample, GreedyEqualsTheReferenceUnderRandomPenalties) {
  const bool holds = rc::check([] {
    const auto logits = random_logits(50, *rc::gen::arbitrary<uint64_t>());
    const auto token = rc::gen::inRange<int32_t>(0, 50);
    const auto prompt = *rc::gen::container<std::vector<int32_t>>(token);
    const auto generated = *rc::gen::container<std::vector<int32_t>>(token);
    SamplingOptions options;
    options.repetition_penalty = 0.5 + 0.01 * *rc::gen::inRange(0, 150);
    options.presence_penalty = 0.01 * *rc::gen::inRange(-200, 200);
    options.frequency_penalty = 0.01 * *rc::gen::inRange(-200, 200);
    const SampleRow row{.logits = logits, .prompt = prompt, .generated = generated};
    const auto p = reference_distribution(row, options);
    RC_ASSERT(p[static_cast<size_t>(run(row, options).token)] == 1.0);
  });
  EXPECT_TRUE(holds);
}

TEST(Sample, DrawsFromTheReferenceDistribution) {
  const auto logits = random_logits(40, 5);
  const std::vector<int32_t> prompt{1, 2, 3, 3};
  const std::vector<int32_t> generated{4, 4, 5};
  const std::vector<int32_t> banned{7, 8};
  const SampleRow row{
      .logits = logits, .prompt = prompt, .generated = generated, .banned = banned, .stream = 11};
  SamplingOptions plain;
  plain.temperature = 1;
  expect_distribution(row, plain);
  SamplingOptions top_k = plain;
  top_k.top_k = 7;
  expect_distribution(row, top_k);
  SamplingOptions top_p = plain;
  top_p.top_p = 0.8;
  expect_distribution(row, top_p);
  SamplingOptions min_p = plain;
  min_p.min_p = 0.2;
  expect_distribution(row, min_p);
  const SamplingOptions all{.temperature = 1.7,
                            .top_p = 0.9,
                            .top_k = 20,
                            .min_p = 0.05,
                            .repetition_penalty = 1.3,
                            .presence_penalty = 0.4,
                            .frequency_penalty = 0.3,
                            .seed = 3};
  expect_distribution(row, all);
}

TEST(Sample, TopPWorksPastTheFirstSortedRun) {
  const auto logits = random_logits(1000, 6);
  const SamplingOptions options{.temperature = 2.5, .top_p = 0.97};
  const SampleRow row{.logits = logits};
  const auto p = reference_distribution(row, options);
  const auto kept = std::count_if(p.begin(), p.end(), [](double x) { return x > 0; });
  ASSERT_GT(kept, 64);
  expect_distribution(row, options, 5000);
}

TEST(Sample, IsAFunctionOfSeedStreamAndStepAlone) {
  const auto logits = random_logits(200, 1);
  const SamplingOptions options{.temperature = 1.5, .seed = 42};
  SamplingScratch scratch(200);
  const auto sequence = [&](uint64_t seed, uint64_t stream) {
    SamplingOptions o = options;
    o.seed = seed;
    std::vector<int32_t> tokens;
    Sampled result;
    for (int64_t step = 0; step < 20; ++step) {
      sample({.logits = logits, .stream = stream, .step = step}, o, scratch, result);
      tokens.push_back(result.token);
    }
    return tokens;
  };
  const auto first = sequence(42, 1);
  EXPECT_NE(sequence(43, 1), first);
  EXPECT_NE(sequence(42, 2), first);
  EXPECT_EQ(sequence(42, 1), first);
}

TEST(Sample, AFilterThatRemovesNothingChangesNothing) {
  const auto logits = random_logits(100, 2);
  for (int64_t step = 0; step < 200; ++step) {
    const SampleRow row{.logits = logits, .stream = 5, .step = step};
    const int32_t plain = run(row, {.temperature = 1}).token;
    EXPECT_EQ(run(row, {.temperature = 1, .top_k = 100}).token, plain);
    EXPECT_EQ(run(row, {.temperature = 1, .top_p = 1 - 1e-12}).token, plain);
    EXPECT_EQ(run(row, {.temperature = 1, .min_p = 1e-9}).token, plain);
  }
}

TEST(Sample, EachFieldMovesTheResult) {
  const auto logits = random_logits(30, 8);
  const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> generated{9, 10, 11, 12, 13, 14, 15, 15, 16, 16, 16};
  const SamplingOptions base{.temperature = 1.2};
  const auto tokens = [&](const SamplingOptions& options) {
    std::vector<int32_t> result;
    for (int64_t step = 0; step < 300; ++step) {
      result.push_back(
          run({.logits = logits, .prompt = prompt, .generated = generated, .step = step}, options)
              .token);
    }
    return result;
  };
  const auto expected = tokens(base);
  const auto moved = [&](auto change) {
    SamplingOptions options = base;
    change(options);
    return tokens(options) != expected;
  };
  EXPECT_TRUE(moved([](auto& o) { o.temperature = 0.7; }));
  EXPECT_TRUE(moved([](auto& o) { o.temperature = 0; }));
  EXPECT_TRUE(moved([](auto& o) { o.top_p = 0.5; }));
  EXPECT_TRUE(moved([](auto& o) { o.top_k = 3; }));
  EXPECT_TRUE(moved([](auto& o) { o.min_p = 0.5; }));
  EXPECT_TRUE(moved([](auto& o) { o.repetition_penalty = 1.5; }));
  EXPECT_TRUE(moved([](auto& o) { o.presence_penalty = 1; }));
  EXPECT_TRUE(moved([](auto& o) { o.frequency_penalty = 1; }));
  EXPECT_TRUE(moved([](auto& o) { o.seed = 1; }));
}

TEST(Sample, PresenceAndFrequencyLeaveThePromptAlone) {
  const std::vector<float> logits{1, 2};
  const std::vector<int32_t> tokens{1, 1, 1};
  const SamplingOptions options{.presence_penalty = 2, .frequency_penalty = 2};
  EXPECT_EQ(run({.logits = logits, .prompt = tokens}, options).token, 1);
  EXPECT_EQ(run({.logits = logits, .generated = tokens}, options).token, 0);
}

TEST(Sample, LogprobsAreTheRawLogSoftmax) {
  const std::vector<float> logits{0.5f, 2, -1, 2, 1};
  const std::vector<int32_t> generated{1, 3};
  const SamplingOptions options{.temperature = 0.7, .repetition_penalty = 3, .logprobs = 3};
  const Sampled result = run({.logits = logits, .generated = generated}, options);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  ASSERT_EQ(result.top.size(), 3u);
  const std::array<int32_t, 3> best{1, 3, 4};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.top[i].token, best[i]);
    EXPECT_NEAR(result.top[i].logprob,
                static_cast<double>(logits[static_cast<size_t>(best[i])]) - std::log(sum), 1e-6);
  }
  EXPECT_NEAR(result.logprob,
              static_cast<double>(logits[static_cast<size_t>(result.token)]) - std::log(sum), 1e-6);
  EXPECT_EQ(run({.logits = logits}, {.logprobs = 9}).top.size(), 5u);
  EXPECT_TRUE(run({.logits = logits}, {.logprobs = 0}).top.empty());
}

TEST(ScoreToken, GivesLogprobAndGreedy) {
  const std::vector<float> logits{0, 1, 1};
  const double total = std::log(1 + 2 * std::exp(1.0));
  EXPECT_NEAR(score_token(logits, 1).logprob, 1 - total, 1e-6);
  EXPECT_TRUE(score_token(logits, 1).is_greedy);
  EXPECT_FALSE(score_token(logits, 2).is_greedy);  // a tie goes to the smaller token
  EXPECT_NEAR(score_token(logits, 0).logprob, -total, 1e-6);
}

void expect_refused(const SampleRow& row, const std::string& text) {
  try {
    run(row, {});
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kInternal);
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(Sample, RefusesNonFiniteLogits) {
  const std::vector<float> with_nan{0, std::numeric_limits<float>::quiet_NaN(), 1};
  expect_refused({.logits = with_nan}, "non-finite logits: token 1 has nan");
  const std::vector<float> with_inf{0, 1, std::numeric_limits<float>::infinity()};
  expect_refused({.logits = with_inf}, "non-finite logits: token 2 has inf");
  const std::vector<float> none(3, -std::numeric_limits<float>::infinity());
  expect_refused({.logits = none}, "all are -infinity");
  EXPECT_THROW(score_token(with_nan, 0), Error);
  const std::vector<float> logits{0, 1};
  const std::vector<int32_t> banned{0, 1};
  expect_refused({.logits = logits, .banned = banned}, "no token is left");
}

TEST(Sample, RefusesAScratchOfAnotherVocabulary) {
  const std::vector<float> logits{0, 1};
  SamplingScratch scratch(3);
  Sampled result;
  EXPECT_THROW(sample({.logits = logits}, {}, scratch, result), Error);
  EXPECT_THROW(score_token(logits, 2), Error);
}

TEST(Sample, AllocatesNothingOnceReserved) {
  const auto logits = random_logits(500, 3);
  const std::vector<int32_t> tokens{1, 2, 3};
  const SamplingOptions options{.temperature = 1,
                                .top_p = 0.9,
                                .top_k = 100,
                                .min_p = 0.01,
                                .repetition_penalty = 1.1,
                                .presence_penalty = 0.1,
                                .frequency_penalty = 0.1,
                                .logprobs = 5};
  SamplingScratch scratch(500);
  Sampled result;
  result.top.reserve(5);
  const int64_t before = tests::allocations();
  for (int64_t step = 0; step < 10; ++step) {
    sample(
        {.logits = logits, .prompt = tokens, .generated = tokens, .banned = tokens, .step = step},
        options, scratch, result);
  }
  EXPECT_EQ(tests::allocations() - before, 0);
}

TEST(Sample, ExtremeValuesStayFinite) {
  const std::vector<float> logits{3e38f, -3e38f, -std::numeric_limits<float>::infinity()};
  const Sampled result = run({.logits = logits}, {.temperature = 1e-9, .logprobs = 3});
  EXPECT_EQ(result.token, 0);
  ASSERT_EQ(result.top.size(), 2u);  // -infinity has no logprob to show
  EXPECT_TRUE(std::isfinite(result.top[1].logprob));
}

}  // namespace
}  // namespace transload::engine
