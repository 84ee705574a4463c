// OpenAI's batch file: its lines, its output objects, and several samples a line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/job/job.h"
#include "engine/job/records.h"
#include "tests/engine/job/byte_tokenizer.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class BatchTest : public testing::Test {
 protected:
  void open(const std::string& text) {
    errors_.clear();
    input_ = JobInput::open(folder_.write("in.jsonl", text), folder_.path("spool"),
                            [](int64_t, int64_t) {});
    input_.index(
        reading_, [&](const LineError& e) { errors_.push_back(e); }, [](int64_t, int64_t) {});
  }
  static std::string line(const std::string& id, const Json& body,
                          const std::string& url = "/v1/completions") {
    return Json{{"custom_id", id}, {"method", "POST"}, {"url", url}, {"body", body}}.dump() + "\n";
  }
  Request only(const std::string& text) {
    open(text);
    EXPECT_TRUE(errors_.empty()) << errors_[0].message;
    return std::get<Request>(input_.read(input_.lines()[0]));
  }
  std::string bad(const std::string& text) {
    open(text);
    EXPECT_EQ(input_.lines().size(), 0u) << text;
    if (errors_.size() != 1) return "";
    EXPECT_EQ(errors_[0].format, JobFormat::kBatch);
    return errors_[0].code + ": " + errors_[0].message;
  }
  std::string bad_body(Json body, const std::string& url = "/v1/completions") {
    body[url == "/v1/completions" ? "prompt" : "messages"] =
        url == "/v1/completions" ? Json("a") : Json{{{"role", "user"}, {"content", "a"}}};
    return bad(line("a", body, url));
  }

  tests::ScratchFolder folder_;
  tests::ByteTokenizer tokenizer_;
  ChatRenderer renderer_{{"{{ messages[0].content }}", "", {}}, "2024-07-26"};
  JobReading reading_{&tokenizer_, {}, {100, 257}, &renderer_, "tiny"};
  JobInput input_;
  std::vector<LineError> errors_;
};

constexpr const char* kChat = "/v1/chat/completions";

TEST_F(BatchTest, ReadsACompletion) {
  const Request request = only(line("x-1", {{"model", "gpt"},
                                            {"prompt", "hi"},
                                            {"max_tokens", 3},
                                            {"n", 2},
                                            {"logprobs", 2},
                                            {"stop", "z"},
                                            {"stream", false},
                                            {"echo", nullptr},
                                            {"user", "u"}}));
  EXPECT_EQ(request.format, JobFormat::kBatch);
  EXPECT_EQ(request.id_json, "\"x-1\"");
  EXPECT_EQ(request.model, "gpt");
  EXPECT_FALSE(request.is_chat);
  EXPECT_THAT(request.prompt, ElementsAre('h', 'i'));
  EXPECT_EQ(request.sampling.max_tokens, 3);
  EXPECT_EQ(request.sampling.logprobs, 2);
  EXPECT_EQ(request.samples, 2);
  EXPECT_EQ(input_.lines()[0].samples(), 2);
  EXPECT_THAT(input_.without_effect(), ElementsAre("model", "user"));
}

TEST_F(BatchTest, ReadsPromptsInTheirForms) {
  EXPECT_THAT(only(line("a", {{"prompt", {"hi"}}})).prompt, ElementsAre('h', 'i'));
  EXPECT_THAT(only(line("a", {{"prompt", {4, 5}}})).prompt, ElementsAre(4, 5));
  EXPECT_EQ(only(line("a", {{"prompt", "x"}})).model, "tiny");
  EXPECT_THAT(bad(line("a", {{"prompt", {"a", "b"}}})), HasSubstr("one prompt a line"));
  EXPECT_THAT(bad(line("a", {{"prompt", Json::array()}})), HasSubstr("one prompt a line"));
  EXPECT_THAT(bad(line("a", {{"prompt", nullptr}})), HasSubstr("must be a string"));
  EXPECT_THAT(bad(line("a", {{"model", "m"}})), HasSubstr("missing_prompt: no \"prompt\""));
}

TEST_F(BatchTest, ReadsAChat) {
  const Request request = only(line("a",
                                    {{"messages", {{{"role", "user"}, {"content", "hey"}}}},
                                     {"max_completion_tokens", 7},
                                     {"logprobs", true},
                                     {"top_logprobs", 3},
                                     {"metadata", {{"k", "v"}}}},
                                    kChat));
  EXPECT_TRUE(request.is_chat);
  EXPECT_THAT(request.prompt, ElementsAre('h', 'e', 'y'));
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_THAT(input_.without_effect(), ElementsAre("metadata"));
  EXPECT_THAT(bad_body({{"top_logprobs", 1}}, kChat), HasSubstr("needs \"logprobs\": true"));
  EXPECT_THAT(bad_body({{"tools", Json::array()}}, kChat), HasSubstr("unknown_field"));
  EXPECT_THAT(bad_body({{"max_tokens", 1}, {"max_completion_tokens", 1}}, kChat),
              HasSubstr("keep one"));
}

TEST_F(BatchTest, TakesNullForAFieldLeftOut) {
  const Json messages{{{"role", "user"}, {"content", "a"}}};
  for (const auto& [null, given] : {std::pair{"max_tokens", "max_completion_tokens"},
                                    std::pair{"max_completion_tokens", "max_tokens"}}) {
    const Json body{{"messages", messages}, {null, nullptr}, {given, 2}};
    EXPECT_EQ(only(line("a", body, kChat)).sampling.max_tokens, 2);
  }
}

TEST_F(BatchTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(bad_body({{"best_of", 2}}), HasSubstr("unknown_field: field \"best_of\""));
  EXPECT_THAT(bad_body({{"stream", true}}), HasSubstr("must be false here"));
  EXPECT_THAT(bad_body({{"echo", true}}), HasSubstr("\"echo\" is true"));
  EXPECT_THAT(bad_body({{"n", 0}}), HasSubstr("from 1 to 128"));
  EXPECT_THAT(bad_body({{"n", 129}}), HasSubstr("from 1 to 128"));
  EXPECT_THAT(bad_body({{"temperature", "hot"}}), HasSubstr("invalid_value"));
  EXPECT_THAT(bad(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})"),
              HasSubstr("must be \"POST\""));
  EXPECT_THAT(bad(R"({"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}})"),
              HasSubstr("\"/v1/completions\""));
  EXPECT_THAT(bad(R"({"custom_id":"a","url":"/v1/completions","body":{}})"),
              HasSubstr("no field \"method\""));
  EXPECT_THAT(bad(R"({"custom_id":"a","method":"POST","url":"/v1/completions"})"),
              HasSubstr("no field \"body\""));
  EXPECT_THAT(bad(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":[]})"),
              HasSubstr("must be an object"));
  EXPECT_THAT(bad(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{},"x":1})"),
              HasSubstr("unknown_field"));
  EXPECT_THAT(bad(R"({"body":{}})"), HasSubstr("missing_id: no field \"custom_id\""));
  EXPECT_THAT(bad(R"({"custom_id":7,"body":{}})"), HasSubstr("must be a string"));
}

// RR-04: the second of two equal ids names the line of the first.
TEST_F(BatchTest, RefusesAnIdSeenBefore) {
  open(line("a", {{"prompt", "x"}}) + "\n" + line("a", {{"prompt", "y"}}) +
       line("b", {{"prompt", "y"}}) + "{\"id\": 1, \"prompt\": \"x\"}\n{\n");
  EXPECT_EQ(input_.lines().size(), 2u);
  ASSERT_EQ(errors_.size(), 3u);
  EXPECT_EQ(errors_[0].line, 3);
  EXPECT_EQ(errors_[0].code, "duplicate_id");
  EXPECT_EQ(errors_[0].id_json, "\"a\"");
  EXPECT_THAT(errors_[0].message, HasSubstr("line 1 has the same id"));
  EXPECT_EQ(errors_[1].code, "missing_id");
  EXPECT_EQ(errors_[2].code, "invalid_json");
  for (const LineError& error : errors_) EXPECT_EQ(error.format, JobFormat::kBatch);
}

TEST_F(BatchTest, TheFirstObjectTellsTheFormat) {
  open("nonsense\n" + line("a", {{"prompt", "x"}}));
  EXPECT_EQ(input_.format(), JobFormat::kBatch);
  EXPECT_EQ(errors_[0].format, JobFormat::kBatch);
  open("{\"id\":1,\"prompt\":\"x\"}\n" + line("a", {{"prompt", "x"}}));
  EXPECT_EQ(input_.format(), JobFormat::kLines);
  EXPECT_EQ(errors_[0].code, "missing_id");
  open("");
  EXPECT_EQ(input_.format(), JobFormat::kLines);
}

TEST_F(BatchTest, AModelWithoutTokenizerHasNoText) {
  reading_.tokenizer = nullptr;
  EXPECT_THAT(bad(line("a", {{"prompt", {4, 5}}})), HasSubstr("\"prompt_token_ids\""));
}

TEST_F(BatchTest, OurOwnLinesTakeSamplesToo) {
  const Request request = only(R"({"id":1,"prompt":"a","n":128})");
  EXPECT_EQ(request.samples, 128);
  EXPECT_EQ(input_.lines()[0].samples(), 128);
  EXPECT_EQ(input_.lines()[0].bytes(), 29);
  EXPECT_EQ(only(R"({"id":1,"prompt":"a"})").samples, 1);
  EXPECT_EQ(sample_stream("1", 0), id_hash("1"));
  EXPECT_NE(sample_stream("1", 1), id_hash("1"));
  JobLine line;
  line.set_bytes_and_samples(kLineLimitBytes, kMaxSamples);
  EXPECT_EQ(line.bytes(), kLineLimitBytes);
  EXPECT_EQ(line.samples(), kMaxSamples);
}

class RecordsTest : public testing::Test {
 protected:
  std::string record(const Request& request, const std::vector<Completion>& samples) {
    std::string out;
    append_record(out, request, samples);
    return out;
  }
  Request batch(bool is_chat) {
    Request request;
    request.line = 4;
    request.format = JobFormat::kBatch;
    request.is_chat = is_chat;
    request.id_json = "\"q\"";
    request.model = "m";
    request.names = &tokenizer_;
    return request;
  }
  static Completion completion(const std::string& text, const std::vector<Sampled>& logprobs = {}) {
    return {.text = text,
            .tokens = std::vector<int32_t>(text.begin(), text.end()),
            .finish_reason = "length",
            .prompt_tokens = 3,
            .logprobs = logprobs};
  }
  tests::ByteTokenizer tokenizer_;
};

TEST_F(RecordsTest, WritesSamplesOfOurOwnLines) {
  Request request;
  request.id_json = "7";
  request.samples = 2;
  request.sampling.logprobs = 0;
  EXPECT_EQ(record(request, {completion("a", {{97, -0.5f, {}}}), completion("b", {{98, -1, {}}})}),
            "{\"id\":7,\"choices\":["
            "{\"index\":0,\"text\":\"a\",\"token_ids\":[97],\"finish_reason\":\"length\","
            "\"logprobs\":[{\"token_id\":97,\"logprob\":-0.5,\"top\":[]}]},"
            "{\"index\":1,\"text\":\"b\",\"token_ids\":[98],\"finish_reason\":\"length\","
            "\"logprobs\":[{\"token_id\":98,\"logprob\":-1,\"top\":[]}]}],"
            "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}");
}

TEST_F(RecordsTest, WritesACompletion) {
  Request request = batch(false);
  EXPECT_EQ(record(request, {completion("ab")}),
            "{\"id\":\"batch_req_4\",\"custom_id\":\"q\",\"response\":{\"status_code\":200,"
            "\"request_id\":\"req_4\",\"body\":{\"id\":\"cmpl-4\",\"object\":\"text_completion\","
            "\"created\":0,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"ab\","
            "\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":3,"
            "\"completion_tokens\":2,\"total_tokens\":5}}},\"error\":null}");
  request.sampling.logprobs = 1;
  const Json body = Json::parse(
      record(request,
             {completion("a\xC3\xA9", {{97, -1, {{98, -0.5f}}}, {0xC3, -2, {}}, {0xA9, -3, {}}})}));
  EXPECT_EQ(body["response"]["body"]["choices"][0]["logprobs"],
            (Json{{"tokens", {"a", "bytes:\\xc3", "bytes:\\xa9"}},
                  {"token_logprobs", {-1.0, -2.0, -3.0}},
                  {"top_logprobs", {{{"b", -0.5}}, Json::object(), Json::object()}},
                  {"text_offset", {0, 1, 2}}}));
}

// As LLaMA's: words with a space in front, byte tokens beside the same characters.
class SpacedTokenizer : public tests::ByteTokenizer {
 public:
  std::string_view token_bytes(int32_t token) const override {
    constexpr std::array<std::string_view, 6> kTexts{" a",           "a",         "a", "\xE2",
                                                     "\xEF\xBF\xBD", "token_id:2"};
    return kTexts.at(static_cast<size_t>(token));
  }
  bool strips_leading_space() const override { return true; }
};

TEST_F(RecordsTest, SpellsTokensWithTheirSpace) {
  const SpacedTokenizer tokenizer;
  Request request = batch(false);
  request.names = &tokenizer;
  request.sampling.logprobs = 1;
  const std::vector<Completion> one{completion(" aa", {{0, -1, {}}, {1, -1, {{0, -2}}}})};
  EXPECT_EQ(Json::parse(record(request, one))["response"]["body"]["choices"][0]["logprobs"],
            (Json{{"tokens", {" a", "a"}},
                  {"token_logprobs", {-1.0, -1.0}},
                  {"top_logprobs", {Json::object(), {{" a", -2.0}}}},
                  {"text_offset", {0, 2}}}));
  request.is_chat = true;
  const Json chat = Json::parse(record(request, one))["response"]["body"]["choices"][0];
  EXPECT_EQ(chat["logprobs"]["content"][0]["token"], " a");
  EXPECT_EQ(chat["logprobs"]["content"][0]["bytes"], (Json{0x20, 0x61}));
}

// The sampled token's key is that of "tokens"; the parser of this test would keep one of two.
TEST_F(RecordsTest, KeysOfTopLogprobsDiffer) {
  const SpacedTokenizer tokenizer;
  Request request = batch(false);
  request.names = &tokenizer;
  request.sampling.logprobs = 6;
  const std::vector<TokenLogprob> top{{0, -1}, {1, -2}, {2, -3}, {3, -4}, {4, -5}, {5, -6}};
  const auto top_of = [&](int32_t sampled) {
    const Json written = Json::parse(record(request, {completion("x", {{sampled, -1, top}})}));
    return written["response"]["body"]["choices"][0]["logprobs"]["top_logprobs"][0];
  };
  EXPECT_EQ(top_of(0), (Json{{" a", -1.0},
                             {"a", -2.0},
                             {"token_id:2", -3.0},
                             {"bytes:\\xe2", -4.0},
                             {"\xEF\xBF\xBD", -5.0},
                             {"token_id:5", -6.0}}));
  EXPECT_EQ(top_of(2)["a"], -3.0);
  EXPECT_EQ(top_of(2)["token_id:1"], -2.0);
  EXPECT_EQ(top_of(5)["token_id:2"], -6.0);
  EXPECT_EQ(top_of(5).size(), 6u);
}

TEST_F(RecordsTest, WritesAChat) {
  Request request = batch(true);
  request.samples = 2;
  request.sampling.logprobs = 1;
  const Json record_json = Json::parse(record(
      request, {completion("a", {{97, -1, {{98, -0.5f}}}}), completion("b", {{98, -2, {}}})}));
  const Json& body = record_json["response"]["body"];
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][1]["message"],
            (Json{{"role", "assistant"}, {"content", "b"}, {"refusal", nullptr}}));
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"][0],
            (Json{{"token", "a"},
                  {"logprob", -1.0},
                  {"bytes", {97}},
                  {"top_logprobs", {{{"token", "b"}, {"logprob", -0.5}, {"bytes", {98}}}}}}));
  EXPECT_EQ(body["usage"]["total_tokens"], 5);
}

TEST_F(RecordsTest, WritesErrorsWithTheirStatus) {
  std::string out;
  append_record(out, LineError{9, "null", "invalid_json", "x", JobFormat::kBatch});
  EXPECT_EQ(out,
            "{\"id\":\"batch_req_9\",\"custom_id\":null,\"response\":{\"status_code\":400,"
            "\"request_id\":\"req_9\",\"body\":{\"error\":{\"message\":\"x\",\"type\":"
            "\"invalid_request_error\",\"param\":null,\"code\":\"invalid_json\"}}},"
            "\"error\":null}");
  for (const char* code : {"internal", "chat_unavailable"}) {
    out.clear();
    append_record(out, LineError{9, "\"a\"", code, "x", JobFormat::kBatch});
    EXPECT_THAT(out, HasSubstr("\"status_code\":500"));
    EXPECT_THAT(out, HasSubstr("\"server_error\""));
    EXPECT_THAT(out, HasSubstr("\"error\":null}"));
  }
}

// What open() finds of a batch output, and of one with samples.
TEST_F(RecordsTest, ResumesBatchRecords) {
  tests::ScratchFolder folder;
  const std::string path = folder.path("out.jsonl");
  const RunIdentity identity{{"job", "x"}};
  Request samples;
  samples.id_json = "3";
  samples.samples = 2;
  {
    JobOutput output = JobOutput::open(path, identity);
    output.write(batch(true), completion("a"));
    output.write(LineError{9, "null", "invalid_json", "x", JobFormat::kBatch});
    output.write(samples, std::vector<Completion>{completion("a"), completion("b")});
  }
  const JobOutput output = JobOutput::open(path, identity);
  std::vector<std::string> ids;
  output.for_each_finished([&](const std::string& id) { ids.push_back(id); });
  EXPECT_THAT(ids, ElementsAre("\"q\"", "3"));
  EXPECT_TRUE(output.has_answers());
  EXPECT_TRUE(output.error_written(9));
  EXPECT_FALSE(output.error_written(8));
}

TEST(BatchLine, IsTheNumberInAnId) {
  EXPECT_EQ(batch_line("batch_req_12"), 12);
  for (const char* other : {"batch_req_", "batch_req_1x", "req_1", ""}) {
    EXPECT_EQ(batch_line(other), 0) << other;
  }
}

}  // namespace
}  // namespace transload::engine
