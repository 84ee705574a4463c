// Where a checkpoint's chat template and its special tokens are found.
#include "engine/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/job/scratch_folder.h"

namespace transload::engine {
namespace {

using ::testing::HasSubstr;

class ChatTemplateTest : public testing::Test {
 protected:
  ChatTemplate find() {
    Checkpoint checkpoint;
    checkpoint.folder = folder_.path("");
    return find_chat_template(checkpoint);
  }
  void write_config(const nlohmann::json& config) {
    folder_.write("tokenizer_config.json", config.dump());
  }
  tests::ScratchFolder folder_;
};

TEST_F(ChatTemplateTest, ReadsTheStringAndTheTokens) {
  write_config(
      {{"chat_template", "T"}, {"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}});
  const ChatTemplate chat = find();
  EXPECT_EQ(chat.text, "T");
  EXPECT_EQ(chat.variables, (nlohmann::json{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
}

// As transformers 5: the map overrides a configuration without "added_tokens_decoder".
TEST_F(ChatTemplateTest, ReadsTheMapOfTokens) {
  nlohmann::json config{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<u>"}};
  write_config(config);
  folder_.write("special_tokens_map.json", R"({"bos_token": {"content": "<b>"}, "unk_token": null,
                                               "pad_token": "<p>", "eos_token": {"content": 1}})");
  EXPECT_EQ(find().variables,
            (nlohmann::json{{"bos_token", "<b>"}, {"eos_token", "</s>"}, {"pad_token", "<p>"}}));
  config["added_tokens_decoder"] = nlohmann::json::object();
  write_config(config);
  config.erase("added_tokens_decoder");
  EXPECT_EQ(find().variables, config);
}

TEST_F(ChatTemplateTest, TakesTokensThatAreTextOnly) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  folder_.write("tokenizer_config.json", R"({"bos_token": {"content": )" + deep + "}}");
  EXPECT_EQ(find().variables, nlohmann::json::object());
}

TEST_F(ChatTemplateTest, TakesTheOneNamedDefault) {
  write_config(
      {{"chat_template",
        {{{"name", "tool_use"}, {"template", "A"}}, {{"name", "default"}, {"template", "B"}}}}});
  EXPECT_EQ(find().text, "B");
  write_config({{"chat_template", {{{"name", "rag"}, {"template", "A"}}}}});
  EXPECT_EQ(find().text, "");
  EXPECT_THAT(find().why_none, HasSubstr("rag"));
}

TEST_F(ChatTemplateTest, PrefersTheFileOfItsOwn) {
  write_config({{"chat_template", "T"}});
  folder_.write("chat_template.jinja", "J\n");
  EXPECT_EQ(find().text, "J\n");
  write_config({{"chat_template", {{{"name", "rag"}, {"template", "A"}}}}});
  EXPECT_EQ(find().text, "J\n");
  EXPECT_EQ(find().why_none, "");
}

TEST_F(ChatTemplateTest, SaysWhenThereIsNone) {
  EXPECT_EQ(find().text, "");
  EXPECT_EQ(find().why_none, "the model has no chat template");
}

// TK-05's kind: what is damaged keeps chat lines from running, and nothing else.
TEST_F(ChatTemplateTest, KeepsTheErrorOfADamagedFile) {
  const auto why_none = [&] {
    const ChatTemplate chat = find();
    EXPECT_EQ(chat.text, "");
    return chat.why_none;
  };
  folder_.write("tokenizer_config.json", "{");
  EXPECT_THAT(why_none(), HasSubstr("tokenizer_config.json: is no JSON object"));
  write_config({{"chat_template", "T"}});
  folder_.write("special_tokens_map.json", "[]");
  EXPECT_THAT(why_none(), HasSubstr("special_tokens_map.json: is no JSON object"));
  folder_.write("special_tokens_map.json", "{}");
  EXPECT_EQ(find().text, "T");
  folder_.write("tokenizer_config.json", "{\"chat_template\": \"\xE9\"}");
  EXPECT_THAT(why_none(), HasSubstr("tokenizer_config.json is not UTF-8"));
  write_config(nlohmann::json::object());
  folder_.write("chat_template.jinja", "h\xE9");
  EXPECT_THAT(why_none(), HasSubstr("chat_template.jinja is not UTF-8"));
  std::filesystem::remove(folder_.path("chat_template.jinja"));
  std::filesystem::create_directory(folder_.path("chat_template.jinja"));
  EXPECT_THAT(why_none(), HasSubstr("chat_template.jinja: is no regular file"));
}

TEST_F(ChatTemplateTest, ReadsAGguf) {
  Checkpoint checkpoint;
  checkpoint.kind = Checkpoint::Kind::kGguf;
  checkpoint.metadata = {{"tokenizer.chat_template", "G"},
                         {"tokenizer.ggml.bos_token_id", 1},
                         {"tokenizer.ggml.eos_token_id", 9}};  // outside: left out
  checkpoint.string_arrays["tokenizer.ggml.tokens"] = {"ab<s>", {2, 5}};
  const ChatTemplate chat = find_chat_template(checkpoint);
  EXPECT_EQ(chat.text, "G");
  EXPECT_EQ(chat.variables, (nlohmann::json{{"bos_token", "<s>"}}));
  checkpoint.path = "m.gguf";
  checkpoint.metadata["tokenizer.chat_template"] = "h\xE9";
  EXPECT_EQ(find_chat_template(checkpoint).text, "");
  EXPECT_THAT(find_chat_template(checkpoint).why_none,
              HasSubstr("m.gguf: tokenizer.chat_template is not UTF-8"));
}

}  // namespace
}  // namespace transload::engine
