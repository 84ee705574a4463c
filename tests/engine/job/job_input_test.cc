#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"
#include "engine/job/job.h"
#include "tests/engine/job/allocations.h"
#include "tests/engine/job/byte_tokenizer.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::ByteTokenizer;
using tests::ScratchFolder;

void ignore_progress(int64_t, int64_t) {}

struct Opened {
  JobInput input;
  std::vector<LineError> errors;
};

class JobInputTest : public testing::Test {
 protected:
  Opened open(const std::string& text) {
    Opened opened{
        JobInput::open(folder_.write("in.jsonl", text), folder_.path("spool"), ignore_progress),
        {}};
    opened.input.index(
        reading_, [&](const LineError& e) { opened.errors.push_back(e); }, ignore_progress);
    return opened;
  }
  Request only(const std::string& line) {
    const Opened opened = open(line);
    EXPECT_TRUE(opened.errors.empty()) << opened.errors[0].message;
    EXPECT_EQ(opened.input.lines().size(), 1u);
    return std::get<Request>(opened.input.read(opened.input.lines()[0]));
  }
  LineError bad(const std::string& line) {
    const Opened opened = open(line);
    EXPECT_EQ(opened.input.lines().size(), 0u) << line;
    EXPECT_EQ(opened.errors.size(), 1u) << line;
    return opened.errors.empty() ? LineError{} : opened.errors[0];
  }
  // The line's error has this code and names this.
  void expect_bad(const std::string& line, const std::string& code, const std::string& text) {
    const LineError error = bad(line);
    EXPECT_EQ(error.code, code) << line;
    EXPECT_THAT(error.message, HasSubstr(text)) << line;
    EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  }

  ScratchFolder folder_;
  ByteTokenizer tokenizer_;
  JobReading reading_{&tokenizer_, {}, {100, 257}};
};

TEST_F(JobInputTest, ReadsEveryField) {
  const Request request =
      only(R"({"id": "a", "prompt": "hi", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9,)"
           R"( "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": -0.5,)"
           R"( "frequency_penalty": 2, "seed": 18446744073709551615, "stop": ["x", "yz"],)"
           R"( "stop_token_ids": [3, 256], "min_tokens": 2, "ignore_eos": true, "logprobs": 4})");
  EXPECT_EQ(request.line, 1);
  EXPECT_EQ(request.id_json, "\"a\"");
  EXPECT_EQ(request.stream, id_hash("\"a\""));
  EXPECT_THAT(request.prompt, ElementsAre('h', 'i'));
  const SamplingOptions expected{.temperature = 0.5,
                                 .top_p = 0.9,
                                 .top_k = 5,
                                 .min_p = 0.1,
                                 .repetition_penalty = 1.2,
                                 .presence_penalty = -0.5,
                                 .frequency_penalty = 2,
                                 .seed = ~uint64_t{0},
                                 .max_tokens = 7,
                                 .min_tokens = 2,
                                 .ignore_eos = true,
                                 .logprobs = 4};
  EXPECT_EQ(request.sampling, expected);
  EXPECT_THAT(request.stop, ElementsAre("x", "yz"));
  EXPECT_THAT(request.stop_tokens, ElementsAre(3, 256));
}

TEST_F(JobInputTest, DefaultsStandForWhatIsLeftOutOrNull) {
  reading_.defaults = {.temperature = 0.3, .seed = 9, .max_tokens = 5};
  const Request request =
      only(R"({"id":1,"prompt_token_ids":[1,2],"temperature":null,"stop":null})");
  EXPECT_EQ(request.id_json, "1");
  EXPECT_EQ(request.sampling, reading_.defaults);
  EXPECT_THAT(request.prompt, ElementsAre(1, 2));
  EXPECT_THAT(only(R"({"id":1,"prompt":"a","stop":"b"})").stop, ElementsAre("b"));
  EXPECT_THAT(only(R"({"id":1,"prompt":null,"prompt_token_ids":[3],"messages":null})").prompt,
              ElementsAre(3));
}

TEST_F(JobInputTest, AddsBosWhereTheTokenizerSaysSo) {
  const ByteTokenizer with_bos(true);
  reading_.tokenizer = &with_bos;
  EXPECT_THAT(only(R"({"id":1,"prompt":"a"})").prompt, ElementsAre(256, 'a'));
}

TEST_F(JobInputTest, WritesIdsBackAsTheyCame) {
  EXPECT_EQ(only(R"({"id":-5,"prompt":"a"})").id_json, "-5");
  EXPECT_EQ(only(R"({"id":18446744073709551615,"prompt":"a"})").id_json, "18446744073709551615");
  EXPECT_EQ(only(R"({"id":"\u00e9\n\"","prompt":"a"})").id_json, "\"\xC3\xA9\\n\\\"\"");
  EXPECT_EQ(only(R"({"id":"","prompt":"a"})").id_json, "\"\"");
}

TEST_F(JobInputTest, ClampsMaxTokensToTheContext) {
  EXPECT_EQ(only(R"({"id":1,"prompt":"abcd","max_tokens":500})").sampling.max_tokens, 96);
  const Opened opened = open(R"({"id":1,"prompt":"abcd"})");
  EXPECT_EQ(opened.input.lines()[0].max_tokens, 96);
  EXPECT_EQ(opened.input.lines()[0].prompt_tokens, 4);
  EXPECT_EQ(opened.input.max_prompt_tokens(), 4);
}

TEST_F(JobInputTest, RefusesWhatIsNoJsonObject) {
  expect_bad(R"({"id":1,"prompt":"a",})", "invalid_json", "one JSON object a line");
  expect_bad("{", "invalid_json", "not JSON");
  expect_bad("[1,2]", "invalid_json", "a list");
  expect_bad("7", "invalid_json", "the line is 7");
  expect_bad(R"({"id":1,"prompt":"a"} x)", "invalid_json", "not JSON");
  expect_bad(R"({"id":1,"prompt":"\q"})", "invalid_json", "not JSON");
  EXPECT_EQ(bad("{").id_json, "null");
}

TEST_F(JobInputTest, RefusesWhatIsNoText) {
  expect_bad("{\"id\":1,\"prompt\":\"\xFF\"}", "invalid_utf8", "not valid UTF-8");
  expect_bad("{\"id\":1,\"prompt\":\"\xED\xA0\x80\"}", "invalid_utf8", "not valid UTF-8");
  for (const char* half :
       {R"(\ud800)", R"(\udc00)", R"(\ud800x)", R"(\ud800\ud800)", R"(\\\udfff)"}) {
    expect_bad(R"({"id":1,"prompt":")" + std::string(half) + "\"}", "invalid_utf8",
               "half of a surrogate pair");
  }
  expect_bad(R"({"id":1,"prompt":"a","top_k":"\udc00"})", "invalid_utf8", "half of a surrogate");
  expect_bad(R"({"id":1,"\udc00":"a"})", "invalid_utf8", "half of a surrogate");
  EXPECT_EQ(only(R"({"id":1,"prompt":"\ud83d\ude00"})").prompt.size(), 4u);
  EXPECT_EQ(only(R"({"id":1,"prompt":"\\ud800"})").prompt.size(), 6u);
}

TEST_F(JobInputTest, RefusesMissingAndDoubledParts) {
  expect_bad(R"({"prompt":"a"})", "missing_id", "\"id\"");
  expect_bad(R"({"id":1})", "missing_prompt", "prompt_token_ids");
  expect_bad(R"({"id":1,"prompt":"a","prompt_token_ids":[1]})", "invalid_value", "keep one");
  expect_bad(R"({"id":1,"prompt":"a","prompt":"b"})", "invalid_value", "twice");
  expect_bad(R"({"id":1,"prompt":"a","max_token":3})", "unknown_field", "\"max_token\"");
  EXPECT_EQ(bad(R"({"prompt":3,"id":"x"})").id_json, "\"x\"");
}

TEST_F(JobInputTest, RefusesBadValuesByNameAndValue) {
  const auto field = [&](const std::string& name, const std::string& value) {
    expect_bad(R"({"id":1,"prompt":"a",")" + name + "\":" + value + "}", "invalid_value",
               "field \"" + name + "\" is " + value + ": must be ");
  };
  field("max_tokens", "0");
  field("max_tokens", "\"5\"");
  field("max_tokens", "true");
  field("temperature", "-0.5");
  field("top_p", "0");
  field("top_p", "1.5");
  field("top_k", "-1");
  field("min_p", "2");
  field("repetition_penalty", "0");
  field("presence_penalty", "-3");
  field("frequency_penalty", "3");
  field("seed", "1.5");
  field("stop", "7");
  field("min_tokens", "-1");
  field("ignore_eos", "1");
  field("logprobs", "-1");
  field("logprobs", "true");
  expect_bad(R"({"id":1,"prompt":["a"]})", "invalid_value", "\"prompt\" is a list");
  expect_bad(R"({"id":1,"prompt":null})", "invalid_value", "\"prompt\" is null");
  expect_bad(R"({"id":1,"prompt_token_ids":null,"messages":null})", "invalid_value",
             "\"prompt_token_ids\" is null");
  expect_bad(R"({"id":1.5,"prompt":"a"})", "invalid_value", "\"id\" is 1.5");
  expect_bad(R"({"id":1,"prompt":"a","stop":["x",""]})", "invalid_value", "must not be empty");
  expect_bad(R"({"id":1,"prompt":"a","stop_token_ids":[257]})", "invalid_value",
             "\"stop_token_ids\" is 257: must hold token ids from 0 to 256");
  expect_bad(R"({"id":1,"prompt_token_ids":[-1]})", "invalid_value", "is -1");
  expect_bad(R"({"id":1,"prompt_token_ids":"ab"})", "invalid_value", "a list of token ids");
  expect_bad(R"({"id":1,"prompt_token_ids":[]})", "invalid_value", "empty");
  expect_bad(R"({"id":1,"prompt":""})", "invalid_value", "empty");
  expect_bad(R"({"id":1,"prompt":"a","min_tokens":5,"max_tokens":4})", "invalid_value",
             "min_tokens 5 is above max_tokens 4");
}

TEST_F(JobInputTest, NumbersAbove64BitsNameTheirField) {
  const LineError error = bad(R"({"prompt":"a","seed":18446744073709551616,"id":"q"})");
  EXPECT_EQ(error.code, "invalid_value");
  EXPECT_EQ(error.id_json, "\"q\"");
  EXPECT_THAT(error.message, HasSubstr("field \"seed\" is 18446744073709551616: no number"));
  expect_bad(R"({"id":1,"seed":-9223372036854775809})", "invalid_value", "\"seed\" is -92233");
  expect_bad(R"({"id":1,"temperature":1e999})", "invalid_value", "\"temperature\" is 1e999");
  expect_bad(R"({"id":1,"stop_token_ids":[5,99999999999999999999]})", "invalid_value",
             "\"stop_token_ids\" is 99999999999999999999");
  expect_bad(R"({"id":99999999999999999999,"prompt":"a"})", "invalid_value", "\"id\" is 999");
  // What is no JSON besides stays that.
  expect_bad(R"({"id":1,"seed":18446744073709551616,})", "invalid_json", "not JSON");
  expect_bad(R"({"id":1,"seed":0123})", "invalid_json", "not JSON");
}

TEST_F(JobInputTest, ShortensLongValuesAtACharacter) {
  std::string value;
  for (int i = 0; i < 40; ++i) value += "\xC3\xA9";
  const LineError error = bad(R"({"id":1,"prompt":"a","seed":")" + value + "\"}");
  EXPECT_THAT(error.message, HasSubstr("\xC3\xA9...\""));
  EXPECT_LT(error.message.size(), 120u);
}

TEST_F(JobInputTest, APromptMustLeaveRoomForOneToken) {
  EXPECT_EQ(only(R"({"id":1,"prompt":")" + std::string(99, 'a') + "\"}").sampling.max_tokens, 1);
  expect_bad(R"({"id":1,"prompt":")" + std::string(100, 'a') + "\"}", "prompt_too_long",
             "100 tokens and the model's context 100; shorten it to at most 99");
}

TEST_F(JobInputTest, AModelWithoutTokenizerTakesTokenIdsOnly) {
  reading_.tokenizer = nullptr;
  expect_bad(R"({"id":1,"prompt":"a"})", "invalid_value", "give \"prompt_token_ids\"");
  expect_bad(R"({"id":1,"prompt_token_ids":[1],"stop":"x"})", "invalid_value", "stop_token_ids");
  EXPECT_EQ(only(R"({"id":1,"prompt_token_ids":[1]})").prompt.size(), 1u);
}

// GS-06: three prompts, the middle one too long. RR-04: the same id again.
TEST_F(JobInputTest, BadLinesDoNotStopTheOthers) {
  const Opened opened = open(R"({"id":"a","prompt":"x"})"
                             "\n"
                             R"({"id":"b","prompt":")" +
                             std::string(200, 'x') +
                             "\"}\n"
                             R"({"id":"c","prompt":"x"})"
                             "\n"
                             R"({"id":"\u0061","prompt":"y"})"
                             "\n");
  ASSERT_EQ(opened.input.lines().size(), 2u);
  EXPECT_EQ(opened.input.lines()[1].number, 3u);
  ASSERT_EQ(opened.errors.size(), 2u);
  EXPECT_EQ(opened.errors[0].line, 2);
  EXPECT_EQ(opened.errors[0].code, "prompt_too_long");
  EXPECT_EQ(opened.errors[1].line, 4);
  EXPECT_EQ(opened.errors[1].code, "duplicate_id");
  EXPECT_THAT(opened.errors[1].message, HasSubstr("line 1"));
}

TEST_F(JobInputTest, IdsOfOtherTypesDiffer) {
  EXPECT_EQ(
      open("{\"id\":1,\"prompt\":\"x\"}\n{\"id\":\"1\",\"prompt\":\"x\"}").input.lines().size(),
      2u);
}

// RR-05: one result a line that is not blank.
TEST_F(JobInputTest, TakesRealLifeFiles) {
  const Opened opened = open(
      "\xEF\xBB\xBF{\"id\":1,\"prompt\":\"x\"}\r\n"
      "\r\n  \t\n"
      "{\"id\":2,\"prompt\":\"x\",}\r\n"
      "{\"id\":3}\n"
      "{\"id\":4,\"prompt\":\"\xFF\"}\n"
      "{\"id\":5,\"prompt\":\"\\ud800\"}\n"
      "{\"id\":6,\"prompt\":\"y\"}");
  ASSERT_EQ(opened.input.lines().size(), 2u);
  EXPECT_EQ(opened.input.lines()[1].number, 8u);
  EXPECT_THAT(std::get<Request>(opened.input.read(opened.input.lines()[1])).prompt,
              ElementsAre('y'));
  std::vector<int64_t> bad_lines;
  for (const LineError& error : opened.errors) bad_lines.push_back(error.line);
  EXPECT_THAT(bad_lines, ElementsAre(4, 5, 6, 7));
}

TEST_F(JobInputTest, AnEmptyFileHasNoLines) {
  EXPECT_TRUE(open("").input.lines().empty());
  EXPECT_TRUE(open("\n\r\n").input.lines().empty());
  EXPECT_EQ(open("").input.max_prompt_tokens(), 0);
}

TEST_F(JobInputTest, TakesALineOf10MbAndRefusesOneOver16MiB) {
  reading_.limits.max_positions = 20'000'000;
  const auto line = [](size_t bytes) {
    return R"({"id":1,"prompt":")" + std::string(bytes - 20, 'x') + "\"}";
  };
  EXPECT_EQ(only(line(10'000'000)).prompt.size(), 9'999'980u);
  const size_t limit = static_cast<size_t>(kLineLimitBytes);
  EXPECT_EQ(only(line(limit)).prompt.size(), limit - 20);
  const Opened opened = open(line(limit + 1) + "\n" + R"({"id":2,"prompt":"z"})");
  ASSERT_EQ(opened.errors.size(), 1u);
  EXPECT_EQ(opened.errors[0].code, "line_too_long");
  EXPECT_THAT(opened.errors[0].message, HasSubstr("16777216"));
  EXPECT_EQ(opened.input.lines().size(), 1u);
}

TEST_F(JobInputTest, Keeps32BytesALine) {
  std::string text;
  const int64_t lines = 20000;
  for (int64_t i = 0; i < lines; ++i) {
    text += "{\"id\":" + std::to_string(i) + ",\"prompt\":\"some prompt of a usual length\"}\n";
  }
  const std::string path = folder_.write("in.jsonl", text);
  const auto ignore = [](const LineError&) {};
  const int64_t before = tests::live_bytes();
  JobInput input = JobInput::open(path, folder_.path("spool"), ignore_progress);
  tests::reset_peak();
  input.index(reading_, ignore, ignore_progress);
  const int64_t fixed = 256 * 1024;  // a chunk, the parser's buffers
  EXPECT_EQ(input.lines().size(), static_cast<size_t>(lines));
  EXPECT_LE(tests::live_bytes() - before, 32 * lines + fixed);
  EXPECT_LE(tests::peak_bytes() - before, 38 * lines + fixed);
}

TEST_F(JobInputTest, TheHashIsThatOfTheContent) {
  const auto hash = [&](const std::string& text) { return open(text).input.content_hash(); };
  EXPECT_EQ(hash("{}"), hash("{}"));
  EXPECT_NE(hash("{}"), hash("{} "));
}

TEST_F(JobInputTest, NoticesThatTheFileChanged) {
  const Opened opened = open(R"({"id":1,"prompt":"abc"})"
                             "\n");
  const JobLine line = opened.input.lines()[0];
  for (const char* text : {R"({"id":2,"prompt":"abc"})", R"({"id":1,"prompt":"ab" })", "{", ""}) {
    folder_.write("in.jsonl", text);
    try {
      opened.input.read(line);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Kind::kBadInput);
      EXPECT_THAT(error.what(), HasSubstr("in.jsonl"));
    }
  }
}

TEST_F(JobInputTest, SpoolsWhatCannotSeek) {
  const std::string pipe = folder_.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { folder_.write("pipe", R"({"id":1,"prompt":"abc"})"); });
  JobInput input = JobInput::open(pipe, folder_.path("spool"), ignore_progress);
  writer.join();
  input.index(
      reading_, [](const LineError&) {}, ignore_progress);
  EXPECT_THAT(std::get<Request>(input.read(input.lines()[0])).prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("spool")));
}

TEST_F(JobInputTest, SpoolsStandardInput) {
  const std::string path = folder_.write("text", R"({"id":1,"prompt":"abc"})");
  const int saved = ::dup(STDIN_FILENO);
  const int fd = ::open(path.c_str(), O_RDONLY);
  ::dup2(fd, STDIN_FILENO);
  JobInput input = JobInput::open("-", folder_.path("spool"), ignore_progress);
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::close(fd);
  input.index(
      reading_, [](const LineError&) {}, ignore_progress);
  EXPECT_EQ(input.lines().size(), 1u);
}

TEST_F(JobInputTest, RefusesFilesItCannotRead) {
  const auto expect_refused = [&](const std::string& path, Kind kind, const std::string& text) {
    try {
      JobInput::open(path, folder_.path("spool"), ignore_progress);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  expect_refused(folder_.path("absent"), Kind::kIo, "open " + folder_.path("absent"));
  expect_refused(folder_.path(""), Kind::kUsage, "is a directory");
  folder_.write("spool", "precious");
  expect_refused("/dev/null", Kind::kUsage, "is there already");
  EXPECT_EQ(folder_.read("spool"), "precious");
}

TEST_F(JobInputTest, TellsHowFarItRead) {
  const std::string path = folder_.write("in.jsonl", R"({"id":1,"prompt":"a"})"
                                                     "\n");
  int64_t last = 0;
  const auto progress = [&](int64_t done, int64_t all) {
    EXPECT_EQ(all, 22);
    last = done;
  };
  JobInput input = JobInput::open(path, "", progress);
  EXPECT_EQ(last, 22);
  last = 0;
  input.index(
      reading_, [](const LineError&) {}, progress);
  EXPECT_EQ(last, 22);
}

}  // namespace
}  // namespace transload::engine
