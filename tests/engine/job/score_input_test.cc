#include "engine/job/score_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/engine/job/byte_tokenizer.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {

bool operator==(const ScoreWindow& a, const ScoreWindow& b) {
  return a.begin == b.begin && a.end == b.end && a.first_scored == b.first_scored;
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Windows = std::vector<ScoreWindow>;

TEST(ScoreWindows, WithoutOverlapTheFirstTokenOfEachIsNotScored) {
  EXPECT_EQ(score_windows(10, 4, 4), (Windows{{0, 4, 1}, {4, 8, 5}, {8, 10, 9}}));
  EXPECT_EQ(score_windows(9, 4, 4), (Windows{{0, 4, 1}, {4, 8, 5}}));  // the last has 1 token
  EXPECT_EQ(score_windows(3, 4, 4), (Windows{{0, 3, 1}}));
}

TEST(ScoreWindows, WithOverlapEachTokenIsScoredOnce) {
  EXPECT_EQ(score_windows(10, 6, 3), (Windows{{0, 6, 1}, {3, 9, 6}, {6, 10, 9}}));
  for (int64_t window = 2; window < 9; ++window) {
    for (int64_t stride = 1; stride < window; ++stride) {
      for (int64_t tokens = 2; tokens < 30; ++tokens) {
        int64_t next = 1;
        for (const ScoreWindow& w : score_windows(tokens, window, stride)) {
          ASSERT_EQ(w.first_scored, next);
          ASSERT_LE(w.end - w.begin, window);
          ASSERT_GT(w.first_scored, w.begin);
          next = w.end;
        }
        ASSERT_EQ(next, tokens) << window << " " << stride;
      }
    }
  }
}

TEST(ScoreWindows, RefusesWhatCannotBe) {
  for (const auto& [window, stride] : {std::pair{1, 1}, {4, 0}, {4, 5}}) {
    try {
      score_windows(10, window, stride);
      ADD_FAILURE() << window << " " << stride;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Kind::kUsage);
      EXPECT_THAT(error.what(), HasSubstr("stride from 1 to the window"));
    }
  }
}

TEST(EncodePair, MovesWhiteSpaceToTheContinuation) {
  const tests::ByteTokenizer tokenizer;
  const auto pair = encode_pair(tokenizer, "ab \t\xC2\xA0\xE3\x80\x80", "c");
  EXPECT_THAT(pair.prompt, ElementsAre('a', 'b'));
  EXPECT_THAT(pair.continuation, ElementsAre(' ', '\t', 0xC2, 0xA0, 0xE3, 0x80, 0x80, 'c'));
}

// Joins "ab" across the border: as lm-eval, the continuation is the whole beyond as many tokens.
class MergingTokenizer : public tests::ByteTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<int32_t> tokens = ByteTokenizer::encode(text, add_special);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (tokens[i] == 'a' && tokens[i + 1] == 'b') {
        tokens[i] = 255;
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    return tokens;
  }
};

TEST(EncodePair, CountsThePromptsTokensOff) {
  const MergingTokenizer tokenizer;
  const auto pair = encode_pair(tokenizer, "xa", "bc");
  EXPECT_THAT(pair.prompt, ElementsAre('x', 'a'));
  EXPECT_THAT(pair.continuation, ElementsAre('c'));
}

class ScoreInputTest : public testing::Test {
 protected:
  struct Opened {
    ScoreInput input;
    std::vector<LineError> errors;
  };
  Opened open(const std::string& text) {
    const auto nothing = [](int64_t, int64_t) {};
    Opened opened{ScoreInput::open(folder_.write("in.jsonl", text), "", nothing), {}};
    opened.input.index(
        reading_, [&](const LineError& e) { opened.errors.push_back(e); }, nothing);
    return opened;
  }
  ScoreRequest only(const std::string& line) {
    const Opened opened = open(line);
    EXPECT_TRUE(opened.errors.empty()) << opened.errors[0].message;
    return opened.input.read(opened.input.lines()[0]);
  }
  void expect_bad(const std::string& line, const std::string& code, const std::string& text) {
    const Opened opened = open(line);
    ASSERT_EQ(opened.errors.size(), 1u) << line;
    EXPECT_EQ(opened.errors[0].code, code) << line;
    EXPECT_THAT(opened.errors[0].message, HasSubstr(text)) << line;
  }

  tests::ScratchFolder folder_;
  tests::ByteTokenizer tokenizer_;
  ScoreReading reading_{&tokenizer_, {8, 257}, 0, 0};
};

TEST_F(ScoreInputTest, ReadsTheFourForms) {
  const auto pair = only(R"({"id":1,"prompt":"ab","continuation":"cd"})");
  EXPECT_THAT(pair.tokens, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_EQ(pair.windows, (Windows{{0, 4, 2}}));
  EXPECT_EQ(only(R"({"id":1,"prompt_token_ids":[1,2],"continuation_token_ids":[3]})").windows,
            (Windows{{0, 3, 2}}));
  EXPECT_EQ(only(R"({"id":1,"text":"abcdefghij"})").windows, (Windows{{0, 8, 1}, {8, 10, 9}}));
  EXPECT_THAT(only(R"({"id":1,"token_ids":[5,6]})").tokens, ElementsAre(5, 6));
  reading_.window = 4;
  reading_.stride = 2;
  EXPECT_EQ(only(R"({"id":1,"text":"abcdef"})").windows, (Windows{{0, 4, 1}, {2, 6, 4}}));
}

TEST_F(ScoreInputTest, CountsTokensAndScoredTokensOfALine) {
  const Opened opened = open(R"({"id":1,"prompt":"ab","continuation":"cde"})");
  EXPECT_EQ(opened.input.lines()[0].prompt_tokens, 5);
  EXPECT_EQ(opened.input.lines()[0].max_tokens, 3);
}

TEST_F(ScoreInputTest, RefusesOtherForms) {
  expect_bad(R"({"id":1})", "missing_prompt", "give \"prompt\" and \"continuation\"");
  expect_bad(R"({"id":1,"prompt":"a"})", "invalid_value", "and nothing else");
  expect_bad(R"({"id":1,"text":"ab","token_ids":[1]})", "invalid_value", "and nothing else");
  expect_bad(R"({"id":1,"text":"ab","x":1})", "unknown_field", "\"x\"");
  expect_bad(R"({"id":1,"text":5})", "invalid_value", "\"text\" is 5");
  expect_bad(R"({"id":1,"text":"a"})", "invalid_value", "give at least 2");
  expect_bad(R"({"id":1,"prompt":" ","continuation":"a"})", "invalid_value", "one token each");
  expect_bad(R"({"id":1,"prompt":"a","continuation":""})", "invalid_value", "one token each");
  expect_bad(R"({"id":1,"prompt":"abcdef","continuation":"xyz"})", "prompt_too_long",
             "9 tokens and the model's context 8");
  expect_bad(R"({"id":1,"token_ids":[300,1]})", "invalid_value", "from 0 to 256");
  reading_.tokenizer = nullptr;
  expect_bad(R"({"id":1,"text":"ab"})", "invalid_value", "no tokenizer");
}

TEST_F(ScoreInputTest, RefusesAWindowAboveTheContext) {
  reading_.window = 9;
  try {
    open("");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("above the model's context of 8"));
  }
}

TEST_F(ScoreInputTest, ResumesAsAJobDoes) {
  const std::string text = "{\"id\":1,\"text\":\"ab\"}\n{\"id\":2,\"text\":\"ab\"}\n";
  {
    JobOutput output = JobOutput::open(folder_.path("out"), {{"job", "x"}});
    output.write("2", Score{-1, 1, false, {}, false});
  }
  Opened opened = open(text);
  opened.input.mark_finished(JobOutput::open(folder_.path("out"), {{"job", "x"}}));
  EXPECT_EQ(opened.input.pending(), 1);
  EXPECT_FALSE(opened.input.lines()[0].finished());
  folder_.write("in.jsonl", "{\"id\":3,\"text\":\"ab\"}\n");
  EXPECT_THROW(opened.input.read(opened.input.lines()[0]), Error);
  EXPECT_NE(opened.input.content_hash(), open(text + " ").input.content_hash());
}

}  // namespace
}  // namespace transload::engine
