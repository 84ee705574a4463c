#include "engine/job/stop_strings.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.h"

namespace transload::engine {
namespace {

struct Result {
  std::string text;
  bool stopped = false;
  bool operator==(const Result&) const = default;
};

Result run(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(std::move(stops));
  Result result;
  for (const std::string& piece : pieces) result.text += matcher.add(piece);
  result.text += matcher.finish();
  result.stopped = matcher.stopped();
  return result;
}

TEST(StopMatcher, MatchesAcrossThreeTokens) {
  EXPECT_EQ(run({"STOP"}, {"say S", "TO", "P now"}), (Result{"say ", true}));
}

TEST(StopMatcher, MatchesASpecialTokensText) {
  EXPECT_EQ(run({"<|im_end|>"}, {"hi", "<|im_end|>", "x"}), (Result{"hi", true}));
}

TEST(StopMatcher, TheShorterOfTwoEndsTheText) {
  EXPECT_EQ(run({"abc", "ab"}, {"xa", "b", "c"}), (Result{"x", true}));
  EXPECT_EQ(run({"ab", "abc"}, {"xabc"}), (Result{"x", true}));
}

TEST(StopMatcher, OfTwoThatEndTogetherTheLongerCuts) {
  EXPECT_EQ(run({"c", "abc"}, {"xabc"}), (Result{"x", true}));
}

TEST(StopMatcher, CutsAtTheRightByteOfMultiByteText) {
  EXPECT_EQ(run({"\xC3\xA9"}, {"a\xC3\xA8", "\xC3\xA9z"}), (Result{"a\xC3\xA8", true}));
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBeAStop) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.add("xaa"), "x");
  EXPECT_EQ(matcher.add("a"), "a");
  EXPECT_EQ(matcher.add("c"), "aac");
  EXPECT_EQ(matcher.add("a"), "");
  EXPECT_EQ(matcher.finish(), "a");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, NothingFollowsAStop) {
  StopMatcher matcher({"x"});
  EXPECT_EQ(matcher.add("ax"), "a");
  EXPECT_EQ(matcher.add("b"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, WithoutStopsTextPasses) { EXPECT_EQ(run({}, {"a", "b"}), (Result{"ab", false})); }

TEST(StopMatcher, RefusesAnEmptyStop) { EXPECT_THROW(StopMatcher({""}), Error); }

TEST(StopMatcher, DoesNotDependOnThePieces) {
  const bool holds = rc::check([] {
    const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b'));
    const auto stops = *rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(letters));
    const auto pieces = *rc::gen::container<std::vector<std::string>>(letters);
    std::string whole;
    for (const std::string& piece : pieces) whole += piece;
    // The stop that is complete first, in plain loops; of those the longest.
    Result expected{whole, false};
    for (size_t end = 1; end <= whole.size() && !expected.stopped; ++end) {
      for (const std::string& stop : stops) {
        if (!std::string_view(whole).substr(0, end).ends_with(stop)) continue;
        const std::string text = whole.substr(0, end - stop.size());
        if (!expected.stopped || text.size() < expected.text.size()) expected = {text, true};
      }
    }
    RC_ASSERT(run(stops, pieces) == expected);
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace transload::engine
