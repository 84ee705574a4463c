// Tokens of requests to text and records: what ends a sequence, and what of it is text.
#include "engine/run/generate_feed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <ostream>

#include "base/error.h"
#include "tests/engine/job/byte_tokenizer.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine::testing {
namespace {

constexpr int32_t kEnd = 256;  // the tokenizer's special token

void ignore_progress(int64_t, int64_t) {}

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

// A job whose model is played by the test: it says which tokens each line's sequence draws.
class Job {
 public:
  explicit Job(const std::string& lines, bool has_tokenizer = true)
      : input_(JobInput::open(scratch_.write("job.jsonl", lines), scratch_.path("spool"),
                              ignore_progress)),
        output_(JobOutput::open(scratch_.path("out.jsonl"), {{"model", "played"}})),
        null_(open("/dev/null", O_WRONLY | O_CLOEXEC)),
        progress_(null_, false, [] { return 0.0; }),
        run_progress_(progress_, 1, 0) {
    if (has_tokenizer) loaded_.tokenizer = std::make_unique<tests::ByteTokenizer>();
    loaded_.end_tokens = {kEnd};
    input_.index(
        {loaded_.tokenizer.get(), {}, {1000, 300}},
        [](const LineError& error) { ADD_FAILURE() << error.message; }, ignore_progress);
    input_.mark_finished(output_);
    feed_ = std::make_unique<GenerateFeed>(loaded_, input_, output_, run_progress_, signals_);
  }
  ~Job() { close(null_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  GenerateFeed& feed() { return *feed_; }

  // Draws tokens until the feed ends the sequence; how many it took.
  int64_t play(const std::vector<int32_t>& drawn) {
    Sequence sequence = feed_->next().value();
    for (size_t i = 0; i < drawn.size(); ++i) {
      sequence.sampled.token = drawn[i];
      sequence.tokens.push_back(drawn[i]);
      if (!feed_->advance(sequence)) return static_cast<int64_t>(i) + 1;
    }
    return -1;
  }
  nlohmann::json last_record() const {
    std::ifstream file(scratch_.path("out.jsonl"));
    std::string last;
    for (std::string line; std::getline(file, line);) last = line;
    return nlohmann::json::parse(last);
  }

 private:
  tests::ScratchFolder scratch_;
  LoadedModel loaded_;
  JobInput input_;
  JobOutput output_;
  int null_;
  Progress progress_;
  RunProgress run_progress_;
  StopSignals signals_;
  std::unique_ptr<GenerateFeed> feed_;
};

std::string line(const std::string& fields) {
  return R"({"id": "a", "prompt": "p")" + (fields.empty() ? "" : ", " + fields) + "}\n";
}

struct Ending {
  const char* name;
  std::string fields;  // of the line, beside id and prompt
  std::vector<int32_t> drawn;
  int64_t used;  // of those, before the sequence ends
  std::string text;
  std::string reason;
};

void PrintTo(const Ending& ending, std::ostream* to) { *to << ending.name; }

class Endings : public ::testing::TestWithParam<Ending> {};

TEST_P(Endings, GiveTheTextBeforeThemAndTheirReason) {
  const Ending& ending = GetParam();
  Job job(line(ending.fields));
  EXPECT_EQ(job.play(ending.drawn), ending.used);
  const nlohmann::json record = job.last_record();
  EXPECT_EQ(record.at("text"), ending.text);
  EXPECT_EQ(record.at("finish_reason"), ending.reason);
  EXPECT_EQ(record.at("usage").at("prompt_tokens"), 1);
  EXPECT_EQ(record.at("usage").at("completion_tokens"), ending.used);
  EXPECT_EQ(record.at("token_ids"),
            std::vector<int32_t>(ending.drawn.begin(), ending.drawn.begin() + ending.used));
  EXPECT_EQ(job.feed().finished(), 1);
  EXPECT_FALSE(job.feed().next().has_value());
}

std::vector<int32_t> then(std::vector<int32_t> tokens, int32_t last) {
  tokens.push_back(last);
  return tokens;
}

INSTANTIATE_TEST_SUITE_P(
    Feed, Endings,
    ::testing::Values(
        Ending{"Length", R"("max_tokens": 3)", bytes("abcdef"), 3, "abc", "length"},
        Ending{"EndToken", "", then(bytes("ab"), kEnd), 3, "ab", "stop"},
        Ending{"EndTokenAsTheLastOneAllowed", R"("max_tokens": 3)", then(bytes("ab"), kEnd), 3,
               "ab", "stop"},
        Ending{"EndTokenIgnored", R"("max_tokens": 3, "ignore_eos": true)", then(bytes("ab"), kEnd),
               3, "ab<s>", "length"},
        Ending{"StopTokenAddsToTheEndTokens", R"("stop_token_ids": [98])", bytes("abc"), 2, "a",
               "stop"},
        Ending{"StopTokenThoughEndTokensAreIgnored",
               R"("stop_token_ids": [98], "ignore_eos": true)", bytes("abc"), 2, "a", "stop"},
        Ending{"StopStringOverThreeTokens", R"("stop": ["cde"])", bytes("abcdef"), 5, "ab", "stop"},
        Ending{"StopStringOnTheLastToken", R"("stop": ["c"], "max_tokens": 3)", bytes("abc"), 3,
               "ab", "stop"},
        Ending{"HalfAStopStringIsTextAtTheEnd", R"("stop": ["cde"], "max_tokens": 4)",
               bytes("abcd"), 4, "abcd", "length"},
        Ending{"HalfAStopStringIsTextBeforeAnEndToken", R"("stop": ["cde"])",
               then(bytes("abcd"), kEnd), 5, "abcd", "stop"},
        Ending{"TheShorterOfTwoStopsWithOneBeginning", R"("stop": ["cd", "c"])", bytes("abcd"), 3,
               "ab", "stop"},
        Ending{"StopStringWithinMinTokensIsText", R"("stop": ["b"], "min_tokens": 3)",
               bytes("abcab"), 5, "abca", "stop"},
        Ending{"StopStringAfterMinTokens", R"("stop": ["d"], "min_tokens": 3)", bytes("abcd"), 4,
               "abc", "stop"},
        Ending{"MinTokensAboveTheStopThatNeverComesAgain",
               R"("stop": ["b"], "min_tokens": 3, "max_tokens": 5)", bytes("abcde"), 5, "abcde",
               "length"},
        Ending{"ACharacterOverThreeTokens", R"("max_tokens": 3)", bytes("\u20ac"), 3, "\u20ac",
               "length"},
        Ending{"ACharacterCutByTheLength", R"("max_tokens": 2)", bytes("\u20ac"), 2, "\ufffd",
               "length"},
        Ending{"StopStringOfOneCharacterOverThreeTokens", R"("stop": ["\u20ac"])",
               bytes("a\u20acb"), 4, "a", "stop"}),
    [](const auto& param) { return param.param.name; });

TEST(GenerateFeed, BansEndAndStopTokensOnlyWhereTheyWouldEndTheSequence) {
  Job job(R"({"id": 1, "prompt": "p", "stop_token_ids": [7], "min_tokens": 2})"
          "\n"
          R"({"id": 2, "prompt": "p", "stop_token_ids": [7], "ignore_eos": true})"
          "\n"
          R"({"id": 3, "prompt": "p"})"
          "\n");
  EXPECT_EQ(job.feed().next()->end_tokens, (std::vector<int32_t>{kEnd, 7}));
  EXPECT_EQ(job.feed().next()->end_tokens, std::vector<int32_t>{7});
  EXPECT_EQ(job.feed().next()->end_tokens, std::vector<int32_t>{kEnd});
}

TEST(GenerateFeed, ReservesAllThatASequenceWillHold) {
  Job job(line(R"("max_tokens": 50, "logprobs": 4)"));
  const Sequence sequence = job.feed().next().value();
  EXPECT_GE(sequence.tokens.capacity(), 51U);
  EXPECT_GE(sequence.sampled.top.capacity(), 4U);
}

TEST(GenerateFeed, WritesAnErrorRecordForARowWithoutNumbersAndGoesOn) {
  Job job(R"({"id": "bad", "prompt": "p"})"
          "\n"
          R"({"id": "good", "prompt": "p", "max_tokens": 1})"
          "\n");
  Sequence bad = job.feed().next().value();
  bad.error = "non-finite logits";
  EXPECT_FALSE(job.feed().advance(bad));
  const nlohmann::json record = job.last_record();
  EXPECT_EQ(record.at("id"), "bad");
  EXPECT_EQ(record.at("line"), 1);
  EXPECT_NE(record.at("error").at("message").get<std::string>().find("non-finite logits"),
            std::string::npos);
  EXPECT_EQ(job.feed().failed(), 1);
  EXPECT_EQ(job.play(bytes("x")), 1);
  EXPECT_EQ(job.last_record().at("text"), "x");
  EXPECT_EQ(job.feed().finished(), 1);
}

TEST(GenerateFeed, WritesNoTextWithoutATokenizer) {
  Job job(R"({"id": "a", "prompt_token_ids": [5, 6], "max_tokens": 2})"
          "\n",
          false);
  EXPECT_EQ(job.play({8, 9}), 2);
  EXPECT_TRUE(job.last_record().at("text").is_null());
  EXPECT_EQ(job.last_record().at("token_ids"), (std::vector<int32_t>{8, 9}));
}

TEST(GenerateFeed, WritesALogProbabilityForEachTokenAskedFor) {
  Job job(line(R"("max_tokens": 2, "logprobs": 1)"));
  Sequence sequence = job.feed().next().value();
  for (const int32_t token : {97, 98}) {
    sequence.tokens.push_back(token);
    sequence.sampled = {token, -0.5F, {{token, -0.5F}}};
    job.feed().advance(sequence);
  }
  const nlohmann::json logprobs = job.last_record().at("logprobs");
  ASSERT_EQ(logprobs.size(), 2U);
  EXPECT_EQ(logprobs[1].at("token_id"), 98);
  EXPECT_EQ(logprobs[1].at("logprob"), -0.5);
  EXPECT_EQ(logprobs[1].at("top").size(), 1U);
}

}  // namespace
}  // namespace transload::engine::testing
