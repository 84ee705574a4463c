// Patterns, splitting, normalizing and added tokens.
#include "engine/tokenizer/pattern.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/splitter.h"

namespace transload::engine::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> split(const std::vector<SplitRule>& rules, std::string_view text) {
  const Splitter splitter(rules, "FILE");
  auto scratch = splitter.scratch();
  std::vector<std::string> words;
  splitter.split(text, scratch, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

SplitRule pattern(const std::string& text, bool keep_matches = true, bool keep_gaps = true) {
  return {SplitRule::Kind::kPattern, text, keep_matches, keep_gaps};
}

void expect_refused(const std::string& text, Kind kind, const std::string& what) {
  try {
    const Pattern compiled(text, "FILE");
    ADD_FAILURE() << text << " is accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << text;
    EXPECT_THAT(error.what(), HasSubstr(what));
    EXPECT_THAT(error.what(), testing::StartsWith("FILE: "));
  }
}

TEST(Pattern, RewritesWhatPcre2ReadsDifferently) {
  EXPECT_EQ(pcre2_pattern(R"([^\s\d]+\S\D)", "FILE"),
            R"([^\p{White_Space}\p{Nd}]+\P{White_Space}\P{Nd})");
  EXPECT_EQ(pcre2_pattern(R"(\p{Han}\P{L}\p{^Lu})", "FILE"), R"(\p{sc:Han}\P{L}\P{Lu})");
  EXPECT_EQ(pcre2_pattern(R"((?i:'s)|a{1,3}\.\[)", "FILE"), R"((?i:'s)|a{1,3}\.\[)");
}

TEST(Pattern, SpaceIsUnicodesWhiteSpace) {
  // U+180E was a space until Unicode 6.3 and is one in PCRE2's \s.
  EXPECT_THAT(split({pattern(R"(\s+)")},
                    "a\xE1\xA0\x8E"
                    "b\xE2\x80\xA9"
                    "c"),
              ElementsAre("a\xE1\xA0\x8E"
                          "b",
                          "\xE2\x80\xA9", "c"));
}

TEST(Pattern, RefusesByNameWhatOnigurumaReadsDifferently) {
  for (const char* text : {R"(\w+)", R"(\bx)", R"([a[b]])", "[a&&b]", "[]a]", "a.c", "^a", "a$",
                           "a{1,3}+", "a{2}?", "a{,3}", "(?m)a", "(?i)a", "(*FAIL)", R"(\pL)",
                           R"(\p{Emoji})", R"(\h)", R"(\x41)", "a\\"}) {
    expect_refused(text, Kind::kUnsupported, "is not implemented");
  }
  expect_refused("[[:alpha:]]", Kind::kUnsupported, "a class inside a class at byte 1");
}

TEST(Pattern, RefusesWhatIsNoPattern) {
  expect_refused("(a", Kind::kBadInput, "cannot be read: ");
  expect_refused("[a", Kind::kBadInput, "cannot be read: ");
}

TEST(Pattern, GivesUpOnPatternsThatTryEverything) {
  const Pattern hopeless("(?:a|aa|aaa)+b|(?:(?:a+)+)+c", "FILE");
  Pattern::Match match;
  const std::string text(60, 'a');
  try {
    hopeless.find(text, 0, match);
    ADD_FAILURE() << "found the end";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("cannot split a text of 60 bytes: match limit exceeded"));
  }
}

TEST(Splitter, EachRuleCutsThePiecesOfTheOneBefore) {
  EXPECT_THAT(split({pattern("[0-9]"), pattern(" ?[a-z]+")}, "ab12 c"),
              ElementsAre("ab", "1", "2", " c"));
}

TEST(Splitter, DropsMatchesOrGaps) {
  EXPECT_THAT(split({pattern(",", false, true)}, ",a,,b,"), ElementsAre("a", "b"));
  EXPECT_THAT(split({pattern("[a-z]+", true, false)}, "ab, cd."), ElementsAre("ab", "cd"));
}

TEST(Splitter, AnEmptyMatchCuts) {
  EXPECT_THAT(split({pattern("x*")}, "axxb"), ElementsAre("a", "xx", "b"));
  EXPECT_THAT(split({pattern("(?=b)")},
                    "ab\xC3\xA9"
                    "b"),
              ElementsAre("a", "b\xC3\xA9", "b"));
}

TEST(Splitter, PutsASpaceBeforeEachPieceWithoutOne) {
  const SplitRule space{SplitRule::Kind::kPrefixSpace, {}, true, true};
  EXPECT_THAT(split({pattern(","), space}, "a, b"), ElementsAre(" a", " ,", " b"));
  EXPECT_THAT(split({space}, ""), ElementsAre());
}

TEST(Normalizer, AppliesRulesInOrder) {
  const std::vector<NormalizeRule> rules = {{NormalizeRule::Kind::kPrepend, "_", {}},
                                            {NormalizeRule::Kind::kReplace, " ", "_"},
                                            {NormalizeRule::Kind::kNfc, {}, {}}};
  EXPECT_EQ(normalize(rules, "e\xCC\x81 a"), "_\xC3\xA9_a");
  EXPECT_EQ(normalize(rules, ""), "");
}

using Parts = std::vector<std::pair<std::string, int32_t>>;

Parts parts(std::vector<AddedToken> tokens, std::string_view text) {
  Parts parts;
  AddedTokenFinder(std::move(tokens)).split(text, [&](std::string_view part, int32_t id) {
    parts.emplace_back(part, id);
  });
  return parts;
}

AddedToken token(const std::string& text, int32_t id) { return AddedToken{text, id}; }

TEST(AddedTokenFinder, TheLongestWinsAtEachPlace) {
  EXPECT_EQ(parts({token("<a", 1), token("<a>", 2), token("<a>b!", 3), token("", 4)}, "x<a>b<ab"),
            (Parts{{"x", -1}, {"", 2}, {"b", -1}, {"", 1}, {"b", -1}}));
}

TEST(AddedTokenFinder, TakesWhiteSpaceAlongWhereAsked) {
  AddedToken left = token("<l>", 1), right = token("<r>", 2);
  left.left_strip = right.right_strip = true;
  EXPECT_EQ(parts({left, right}, "a \xC2\xA0<l> b<r>\n <l>c"),
            (Parts{{"a", -1}, {"", 1}, {" b", -1}, {"", 2}, {"", 1}, {"c", -1}}));
}

TEST(AddedTokenFinder, ASingleWordStandsAlone) {
  AddedToken word = token("the", 1);
  word.single_word = true;
  EXPECT_EQ(parts({word}, "the other the, _the"),
            (Parts{{"", 1}, {" other ", -1}, {"", 1}, {", _the", -1}}));
}

}  // namespace
}  // namespace transload::engine::test
