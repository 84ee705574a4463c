// Lines with "messages", from the line to its tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "engine/job/job.h"
#include "tests/engine/job/byte_tokenizer.h"
#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";

class ChatLinesTest : public testing::Test {
 protected:
  void open(const std::string& text) {
    errors_.clear();
    input_ = JobInput::open(folder_.write("in.jsonl", text), folder_.path("spool"),
                            [](int64_t, int64_t) {});
    input_.index(
        reading_, [&](const LineError& e) { errors_.push_back(e); }, [](int64_t, int64_t) {});
  }
  void use(const std::string& text, const std::string& why_none = "") {
    renderer_ = std::make_unique<ChatRenderer>(ChatTemplate{text, why_none, {{"bos_token", "<s>"}}},
                                               "2024-07-26");
    reading_.chat = renderer_.get();
  }
  std::string prompt(const std::string& line) {
    open(line);
    if (!errors_.empty()) return errors_[0].code + ": " + errors_[0].message;
    return tokenizer_.decode(std::get<Request>(input_.read(input_.lines()[0])).prompt);
  }

  tests::ScratchFolder folder_;
  tests::ByteTokenizer tokenizer_{true};
  JobReading reading_{&tokenizer_, {}, {100, 257}};
  std::unique_ptr<ChatRenderer> renderer_;
  JobInput input_;
  std::vector<LineError> errors_;
};

// The tokenizer of this test adds BOS (as "<s>", one token) to raw prompts.
TEST_F(ChatLinesTest, RendersAndAddsNoSpecialToken) {
  use(kTemplate);
  EXPECT_EQ(prompt(R"({"id":1,"messages":[{"role":"user","content":"h\u00e9 \"x\""}]})"),
            "<s>[user:h\xC3\xA9 \"x\"]");
  EXPECT_EQ(input_.lines()[0].prompt_tokens, 3 + 14);
  EXPECT_EQ(prompt(R"({"id":1,"prompt":"a"})"), "<s>a");
  EXPECT_EQ(input_.lines()[0].prompt_tokens, 2);
}

TEST_F(ChatLinesTest, RefusesWhatAreNoMessages) {
  use(kTemplate);
  EXPECT_THAT(prompt(R"({"id":1,"messages":[]})"), HasSubstr("\"messages\" is empty; give a"));
  EXPECT_THAT(prompt(R"({"id":1,"messages":"hi"})"),
              HasSubstr("invalid_value: field \"messages\" is \"hi\": must be a list"));
  EXPECT_THAT(prompt(R"({"id":1,"messages":["hi"]})"),
              HasSubstr("\"messages[0]\" is \"hi\": must be an object"));
  for (const char* message : {R"({"content":"hi"})", R"({"role":1})"}) {
    EXPECT_THAT(prompt(R"({"id":1,"messages":[{"role":"user"},)" + std::string(message) + "]}"),
                HasSubstr("invalid_value: field \"messages[1]\": no string \"role\""));
  }
  EXPECT_THAT(prompt(R"({"id":1,"messages":[{"role":"user","content":7}]})"),
              HasSubstr("\"content\" is 7: must be a string or a list of text parts"));
  EXPECT_THAT(prompt(R"({"id":1,"prompt":"a","messages":[{"role":"user"}]})"),
              HasSubstr("keep one"));
  EXPECT_THAT(
      prompt(R"({"id":1,"messages":[{"role":"user","content":")" + std::string(99, 'x') + "\"}]}"),
      HasSubstr("prompt_too_long"));
}

// As transformers: the template gets the list, and writes of it what it writes.
TEST_F(ChatLinesTest, TakesListsOfTextParts) {
  const auto of_parts = [&](const std::string& parts) {
    return prompt(R"({"id":1,"messages":[{"role":"user","content":)" + parts + "}]}");
  };
  use(kTemplate);
  EXPECT_EQ(of_parts(R"([{"type":"text","text":"hi"}])"),
            "<s>[user:[{'type': 'text', 'text': 'hi'}]]");
  use("{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}");
  EXPECT_EQ(of_parts(R"([{"type":"text","text":"a"},{"text":"b","type":"text"}])"), "a;b;");
  EXPECT_THAT(of_parts(R"([{"type":"text","text":"a"},{"type":"image_url","image_url":{}}])"),
              HasSubstr("field \"type\" is \"image_url\": a part of \"content\" must be \"text\""));
  EXPECT_THAT(of_parts(R"([{"type":"text"}])"), HasSubstr("needs a string \"text\""));
  EXPECT_THAT(of_parts(R"([{"type":"text","text":1}])"), HasSubstr("needs a string \"text\""));
  EXPECT_THAT(of_parts(R"(["hi"])"), HasSubstr("an object with a string \"type\""));
  EXPECT_THAT(of_parts(R"({"type":"text","text":"a"})"), HasSubstr("a list of text parts"));
  use("{{ 'a' + messages[0].content }}");
  EXPECT_THAT(of_parts(R"([{"type":"text","text":"b"}])"), HasSubstr("chat_template: "));
}

// The process ends between the two readings of a line: that is an error of the line.
TEST_F(ChatLinesTest, ALineThatCannotBeRenderedAgainIsAnError) {
  const std::string python = folder_.write(
      "python",
      "#!/bin/sh\nread -r setup\necho '{\"ready\": \"a test\"}'\nwhile read -r line && [ ! -e '" +
          folder_.path("down") + "' ]; do echo '{\"text\": \"abc\"}'; done\n");
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  use(kTemplate);
  ::setenv("TRANSLOAD_PYTHON", python.c_str(), 1);
  EXPECT_EQ(prompt(R"({"id":"a","messages":[{"role":"user"}]})"), "abc");
  folder_.write("down", "");
  const auto result = input_.read(input_.lines()[0]);
  const auto* error = std::get_if<LineError>(&result);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, kChatUnavailable);
  EXPECT_EQ(error->id_json, "\"a\"");
  EXPECT_EQ(error->line, 1);
  EXPECT_THAT(error->message, HasSubstr("ended on its own"));
  std::filesystem::remove(folder_.path("down"));
  EXPECT_TRUE(std::holds_alternative<Request>(input_.read(input_.lines()[0])));
  ::unsetenv("TRANSLOAD_PYTHON");
}

// TK-05: a template that does not parse fails the lines that need it, and no other.
TEST_F(ChatLinesTest, ABadTemplateLeavesRawPromptsAlone) {
  use("a\n{% for %}");
  open(
      "{\"id\":1,\"prompt\":\"x\"}\n"
      "{\"id\":2,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n"
      "{\"id\":3,\"prompt\":\"x\"}\n");
  EXPECT_EQ(input_.lines().size(), 2u);
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].line, 2);
  EXPECT_EQ(errors_[0].id_json, "2");
  EXPECT_EQ(errors_[0].code, "chat_template");
  EXPECT_THAT(errors_[0].message, HasSubstr("at line 2, column 8"));
}

TEST_F(ChatLinesTest, RawPromptsNeedNoTemplate) {
  use("", "the model has no chat template");
  EXPECT_EQ(prompt(R"({"id":1,"prompt":"a"})"), "<s>a");
  EXPECT_FALSE(renderer_->used());
  EXPECT_THAT(prompt(R"({"id":1,"messages":[{"role":"user"}]})"), HasSubstr("no chat template"));
  reading_.tokenizer = nullptr;
  EXPECT_THAT(prompt(R"({"id":1,"messages":[{"role":"user"}]})"), HasSubstr("no tokenizer"));
}

}  // namespace
}  // namespace transload::engine
