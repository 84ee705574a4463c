#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/job/job.h"
#include "engine/job/json_text.h"
#include "tests/engine/job/byte_tokenizer.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::ScratchFolder;

Request request_of(const std::string& id_json) {
  Request request;
  request.id_json = id_json;
  return request;
}

const Completion kHello{.text = "h\xC3\xA9\"\n",
                        .tokens = {5, 6},
                        .finish_reason = "stop",
                        .prompt_tokens = 3,
                        .logprobs = {}};
const std::string kHelloLine =
    "{\"id\":\"a\",\"text\":\"h\xC3\xA9\\\"\\n\",\"token_ids\":[5,6],\"finish_reason\":\"stop\","
    "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n";
const std::string kErrorLine =
    "{\"id\":null,\"line\":7,\"error\":{\"code\":\"invalid_json\",\"message\":\"x\"}}\n";

class JobOutputTest : public testing::Test {
 protected:
  JobOutput open() { return JobOutput::open(path_, identity_); }
  std::vector<std::string> finished(const JobOutput& output) {
    std::vector<std::string> ids;
    output.for_each_finished([&](const std::string& id) { ids.push_back(id); });
    return ids;
  }
  std::string refusal(Kind kind) {
    try {
      open();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path("out.jsonl");
  RunIdentity identity_{{"model", "m1"}, {"job", "abc"}, {"temperature", "0"}};
};

TEST_F(JobOutputTest, WritesLinesWithOneSpelling) {
  JobOutput output = open();
  output.write(request_of("\"a\""), kHello);
  output.write(LineError{7, "null", "invalid_json", "x"});
  EXPECT_EQ(folder_.read("out.jsonl"), kHelloLine + kErrorLine);
  EXPECT_EQ(output.bytes_written(), static_cast<int64_t>((kHelloLine + kErrorLine).size()));
}

TEST_F(JobOutputTest, TakesANewOutputBackWithItsErrorRecords) {
  {
    JobOutput output = open();
    output.write(LineError{7, "null", "invalid_json", "x"});
    output.take_back();
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".state"));
  folder_.write("out.jsonl", "");
  JobOutput output = open();
  output.write(LineError{7, "null", "invalid_json", "x"});
  output.take_back();
  EXPECT_EQ(folder_.read("out.jsonl"), "");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".state"));
}

TEST_F(JobOutputTest, TakesNoAnswerBack) {
  JobOutput output = open();
  output.write(request_of("\"a\""), kHello);
  output.take_back();
  EXPECT_EQ(folder_.read("out.jsonl"), kHelloLine);
}

TEST_F(JobOutputTest, TakesNothingOfAnEarlierRunBack) {
  open().write(LineError{7, "null", "invalid_json", "x"});
  open().take_back();
  EXPECT_EQ(folder_.read("out.jsonl"), kErrorLine);
  EXPECT_TRUE(std::filesystem::exists(path_ + ".state"));
}

TEST_F(JobOutputTest, WritesLogprobsWhenAsked) {
  Request request = request_of("1");
  request.sampling.logprobs = 1;
  JobOutput output = open();
  output.write(request, {.text = "",
                         .has_text = false,
                         .tokens = {4},
                         .finish_reason = "length",
                         .prompt_tokens = 1,
                         .logprobs = {{4, -0.1f, {{3, -1e-5f}}}}});
  EXPECT_EQ(folder_.read("out.jsonl"),
            "{\"id\":1,\"text\":null,\"token_ids\":[4],\"finish_reason\":\"length\",\"usage\":"
            "{\"prompt_tokens\":1,\"completion_tokens\":1},\"logprobs\":[{\"token_id\":4,"
            "\"logprob\":-0.1,\"top\":[{\"token_id\":3,\"logprob\":-1e-05}]}]}\n");
}

TEST_F(JobOutputTest, WritesScores) {
  JobOutput output = open();
  output.write("1", Score{-2.5, 2, true, {-1, -1.5f}, true});
  output.write("2", Score{-2.5, 2, false, {}, false});
  EXPECT_EQ(folder_.read("out.jsonl"),
            "{\"id\":1,\"logprob_sum\":-2.5,\"count\":2,\"is_greedy\":true,"
            "\"token_logprobs\":[-1,-1.5]}\n"
            "{\"id\":2,\"logprob_sum\":-2.5,\"count\":2,\"is_greedy\":false}\n");
}

TEST_F(JobOutputTest, EscapesAllThatJsonDemands) {
  std::string all;
  for (char c = 1; c < 0x7F; ++c) all += c;
  all += '\0';
  std::string json;
  append_json(json, std::string_view(all));
  EXPECT_EQ(nlohmann::json::parse(json).get<std::string>(), all);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_THROW(append_json(json, std::numeric_limits<float>::infinity()), Error);
  EXPECT_THROW(append_json(json, std::numeric_limits<double>::quiet_NaN()), Error);
}

TEST_F(JobOutputTest, ResumesWithWhatIsThere) {
  {
    JobOutput output = open();
    output.write(LineError{7, "null", "invalid_json", "x"});
    output.write(request_of("\"a\""), kHello);
    output.write(LineError{2, "5", "invalid_value", "x"});
    output.flush();
  }
  JobOutput output = open();
  EXPECT_THAT(finished(output), ElementsAre("\"a\""));
  for (int64_t line = 0; line < 200; ++line)
    EXPECT_EQ(output.error_written(line), line == 2 || line == 7) << line;
  const std::string before = folder_.read("out.jsonl");
  output.write(LineError{7, "null", "invalid_json", "x"});
  EXPECT_EQ(folder_.read("out.jsonl"), before);
}

// RR-02: the output cut at every byte of its last record.
TEST_F(JobOutputTest, RepairsATornLastLineAtEveryByte) {
  {
    JobOutput output = open();
    output.write(LineError{7, "null", "invalid_json", "x"});
    output.write(request_of("\"a\""), kHello);
  }
  const std::string whole = folder_.read("out.jsonl");
  for (size_t cut = kErrorLine.size(); cut < whole.size(); ++cut) {
    folder_.write("out.jsonl", whole.substr(0, cut));
    JobOutput output = open();
    EXPECT_TRUE(finished(output).empty()) << cut;
    EXPECT_EQ(folder_.read("out.jsonl"), kErrorLine) << cut;
    output.write(request_of("\"a\""), kHello);
    EXPECT_EQ(folder_.read("out.jsonl"), whole) << cut;
  }
}

TEST_F(JobOutputTest, RepairsATornFirstLineAndALongOne) {
  { open(); }
  folder_.write("out.jsonl", "{\"id\":1,\"te");
  { open(); }
  EXPECT_EQ(folder_.read("out.jsonl"), "");
  folder_.write("out.jsonl", kHelloLine + std::string(300'000, 'x'));
  { open(); }
  EXPECT_EQ(folder_.read("out.jsonl"), kHelloLine);
}

TEST_F(JobOutputTest, RefusesAnotherRunsFileAndNamesWhatChanged) {
  {
    JobOutput output = open();
    output.write(request_of("\"a\""), kHello);
  }
  identity_ = {{"model", "m2"}, {"job", "abc"}, {"compute", "float32"}};
  EXPECT_THAT(
      refusal(Kind::kUsage),
      AllOf(HasSubstr("model was m1 and is m2"), HasSubstr("compute was (not set) and is float32"),
            HasSubstr("temperature was 0 and is (not set)"), Not(HasSubstr("job was")),
            HasSubstr("choose another --output")));
  EXPECT_EQ(folder_.read("out.jsonl"), kHelloLine);
}

TEST_F(JobOutputTest, StartsAnewWhenNothingWasWritten) {
  { open(); }
  identity_[0].second = "m2";
  { open(); }
  EXPECT_THAT(folder_.read("out.jsonl.state"), HasSubstr("m2"));
}

TEST_F(JobOutputTest, RefusesAFileWithoutState) {
  folder_.write("out.jsonl", "precious");
  EXPECT_THAT(refusal(Kind::kUsage), HasSubstr("would be overwritten"));
  EXPECT_EQ(folder_.read("out.jsonl"), "precious");
}

TEST_F(JobOutputTest, RefusesLinesThatAreNotOurs) {
  { open(); }
  for (const char* line :
       {"{\"id\":1}", "nonsense", "{\"id\":1,\"finish_reason\":\"stop\",\"x\":1}",
        "{\"id\":null,\"finish_reason\":\"stop\"}", "{\"id\":1,\"line\":0,\"error\":{}}", "[1]"}) {
    folder_.write("out.jsonl", kHelloLine + line + "\n");
    EXPECT_THAT(refusal(Kind::kBadInput), HasSubstr("line 2 is not a record")) << line;
  }
}

TEST_F(JobOutputTest, RefusesADamagedState) {
  { open(); }
  folder_.write("out.jsonl", kHelloLine);
  folder_.write("out.jsonl.state", "{\"version\":1");
  EXPECT_THAT(refusal(Kind::kBadInput), HasSubstr("out.jsonl.state: is damaged"));
  folder_.write("out.jsonl.state", "{\"version\":2,\"identity\":{}}");
  EXPECT_THAT(refusal(Kind::kBadInput), HasSubstr("another version"));
}

TEST_F(JobOutputTest, TheStateStaysSmallAndAlone) {
  { open(); }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path(""))) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("out.jsonl", "out.jsonl.state"));
  EXPECT_LE(folder_.read("out.jsonl.state").size(), 4096u);
  identity_.emplace_back("model", std::string(5000, 'x'));
  EXPECT_THAT(refusal(Kind::kUsage), HasSubstr("of at most 4096"));
}

TEST_F(JobOutputTest, TakesNamesThatAreNoUtf8) {
  identity_[0].second = "m\xFF";
  {
    JobOutput output = open();
    output.write(request_of("\"a\""), kHello);
  }
  EXPECT_EQ(finished(open()).size(), 1u);
}

TEST_F(JobOutputTest, RefusesAnOutputInUse) {
  const JobOutput output = open();
  EXPECT_THAT(refusal(Kind::kUsage), HasSubstr("another run is writing it"));
}

TEST_F(JobOutputTest, AFailedWriteIsAnError) {
  path_ = "/dev/full";
  JobOutput output = open();
  try {
    output.write(request_of("1"), kHello);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kIo);
    EXPECT_THAT(error.what(), HasSubstr("write /dev/full"));
  }
  EXPECT_EQ(output.bytes_written(), 0);
  path_ = folder_.path("no/such/folder");
  EXPECT_THAT(refusal(Kind::kIo), HasSubstr("open "));
}

TEST_F(JobOutputTest, StandardOutputHasNoState) {
  const int saved = ::dup(STDOUT_FILENO);
  const int fd = ::open(folder_.path("captured").c_str(), O_WRONLY | O_CREAT, 0600);
  ::dup2(fd, STDOUT_FILENO);
  JobOutput output = JobOutput::open("-", identity_);
  output.write(request_of("\"a\""), kHello);
  output.flush();
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  ::close(fd);
  EXPECT_EQ(folder_.read("captured"), kHelloLine);
  EXPECT_TRUE(finished(output).empty());
}

class ResumeTest : public JobOutputTest {
 protected:
  // Opens the job and gives what is left of it.
  std::vector<std::string> left() {
    JobInput input = JobInput::open(folder_.path("in.jsonl"), "", [](int64_t, int64_t) {});
    JobOutput output = open();
    input.index(
        reading_, [&](const LineError& e) { output.write(e); }, [](int64_t, int64_t) {});
    failed_ = input.mark_finished(output);
    std::vector<std::string> ids;
    for (const JobLine& line : input.lines()) {
      if (!line.finished()) ids.push_back(std::get<Request>(input.read(line)).id_json);
    }
    EXPECT_EQ(input.pending(), static_cast<int64_t>(ids.size()));
    return ids;
  }

  tests::ByteTokenizer tokenizer_;
  JobReading reading_{&tokenizer_, {}, {100, 257}};
  int64_t failed_ = 0;  // good lines that have an error record
};

// RR-01: only the rest is done; errors are written once.
TEST_F(ResumeTest, SkipsWhatIsFinished) {
  folder_.write("in.jsonl",
                "{\"id\":\"a\",\"prompt\":\"x\"}\nbad\n{\"id\":2,\"prompt\":\"x\"}\n"
                "{\"id\":3,\"prompt\":\"x\"}\n");
  EXPECT_THAT(left(), ElementsAre("\"a\"", "2", "3"));
  EXPECT_EQ(failed_, 0);
  {
    JobOutput output = open();
    output.write(request_of("2"), kHello);
    output.write(LineError{4, "3", "internal", "failed while it ran"});
  }
  EXPECT_THAT(left(), ElementsAre("\"a\""));
  EXPECT_EQ(failed_, 1);
  const std::string text = folder_.read("out.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST_F(ResumeTest, RefusesRecordsOfAnotherJob) {
  folder_.write("in.jsonl", "{\"id\":2,\"prompt\":\"x\"}\n");
  {
    JobOutput output = open();
    output.write(request_of("9"), kHello);
  }
  try {
    left();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kBadInput);
    EXPECT_THAT(error.what(), HasSubstr("id 9 that is not in the input"));
  }
  folder_.write("out.jsonl", "");
  {
    JobOutput output = open();
    output.write(request_of("2"), kHello);
    output.write(request_of("2"), kHello);
  }
  try {
    left();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("id 2 twice"));
  }
}

// GS-07: no prompt at all gives a valid empty output.
TEST_F(ResumeTest, AnEmptyJobGivesAnEmptyOutput) {
  folder_.write("in.jsonl", "");
  EXPECT_TRUE(left().empty());
  EXPECT_EQ(folder_.read("out.jsonl"), "");
}

}  // namespace
}  // namespace transload::engine
