// A GGUF's vocabulary, and choosing among a checkpoint's tokenizers.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "tests/engine/tokenizer/test_data.h"

namespace transload::engine::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json gpt2_fields() {
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", "gpt-2"},
          {"tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "1", "11", "abb"}},
          {"tokenizer.ggml.token_type", {1, 1, 1, 3, 1, 1, 1}},
          {"tokenizer.ggml.merges", {"a b", "1 1"}},
          {"tokenizer.ggml.bos_token_id", 3}};
}

std::vector<int32_t> ids(const json& change, const std::string& text) {
  json fields = gpt2_fields();
  fields.update(change);
  return BpeTokenizer(rules_of_gguf(fields)).encode(text, true);
}

void expect_error(const json& change, Kind kind, const std::string& what) {
  try {
    ids(change, "");
    ADD_FAILURE() << "no error: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("model.gguf: " + what));
  }
}

TEST(GgufTokenizer, PreKindsCutTheirWords) {
  EXPECT_THAT(ids({{"tokenizer.ggml.pre", "gpt-2"}}, "ab11"), ElementsAre(2, 5));
  EXPECT_THAT(ids({{"tokenizer.ggml.pre", "smollm"}}, "ab11"), ElementsAre(2, 4, 4));
  EXPECT_THAT(ids({{"tokenizer.ggml.pre", "qwen2"}}, "ab11"), ElementsAre(2, 4, 4));
  EXPECT_THAT(ids({{"tokenizer.ggml.pre", "llama-bpe"}}, "ab11"), ElementsAre(3, 2, 5));
}

TEST(GgufTokenizer, Llama3TakesWholeWordsUnmerged) {
  EXPECT_THAT(ids({{"tokenizer.ggml.pre", "gpt-2"}}, "abb"), ElementsAre(2, 1));
  EXPECT_THAT(ids({{"tokenizer.ggml.pre", "llama-bpe"}}, "abb"), ElementsAre(3, 6));
}

TEST(GgufTokenizer, AddsBeginAndEndWhereTheKeysSaySo) {
  EXPECT_THAT(ids({{"tokenizer.ggml.add_bos_token", true}}, "a<s>"), ElementsAre(3, 0, 3));
  EXPECT_THAT(
      ids({{"tokenizer.ggml.add_eos_token", true}, {"tokenizer.ggml.eos_token_id", 1}}, "a"),
      ElementsAre(0, 1));
  expect_error({{"tokenizer.ggml.add_eos_token", true}}, Kind::kBadInput,
               "add_bos_token or add_eos_token asks for a token not given");
}

TEST(GgufTokenizer, RefusesKindsByName) {
  expect_error({{"tokenizer.ggml.model", "bert"}}, Kind::kUnsupported,
               R"(tokenizer.ggml.model "bert")");
  expect_error({{"tokenizer.ggml.pre", "tekken"}}, Kind::kUnsupported,
               R"(tokenizer.ggml.pre "tekken")");
  const json llama = {{"tokenizer.ggml.model", "llama"},
                      {"tokenizer.ggml.scores", {1, 1, 1, 1, 1, 1, 1}}};
  json spaces = llama, charsmap = llama;
  spaces["tokenizer.ggml.remove_extra_whitespaces"] = true;
  expect_error(spaces, Kind::kUnsupported, "tokenizer.ggml.remove_extra_whitespaces");
  charsmap["tokenizer.ggml.precompiled_charsmap"] = {1, 2};
  expect_error(charsmap, Kind::kUnsupported, "tokenizer.ggml.precompiled_charsmap");
}

TEST(GgufTokenizer, NamesDamagedKeys) {
  expect_error({{"tokenizer.ggml.pre", nullptr}}, Kind::kBadInput,
               "tokenizer.ggml.pre is no string");
  expect_error({{"tokenizer.ggml.tokens", nullptr}}, Kind::kBadInput,
               "tokenizer.ggml.tokens is missing");
  expect_error({{"tokenizer.ggml.token_type", {1, 1}}}, Kind::kBadInput,
               "tokenizer.ggml.token_type has 2 entries for 7 tokens");
  expect_error({{"tokenizer.ggml.token_type", {1, 9, 1, 1, 1, 1, 1}}}, Kind::kBadInput,
               "tokenizer.ggml.token_type[1] is 9");
  expect_error({{"tokenizer.ggml.tokens", {"a", "b", "ab", "a", "1", "11", "abb"}}},
               Kind::kBadInput, R"(token 3 ("a") is in the vocabulary twice)");
  expect_error({{"tokenizer.ggml.merges", {"ab"}}}, Kind::kBadInput, R"(merge 0 ("ab"))");
  expect_error({{"tokenizer.ggml.add_bos_token", 1}}, Kind::kBadInput,
               "tokenizer.ggml.add_bos_token is no boolean");
  expect_error({{"tokenizer.ggml.add_bos_token", true}, {"tokenizer.ggml.bos_token_id", 70}},
               Kind::kBadInput, "tokenizer.ggml.bos_token_id 70 is no token");
  expect_error({{"tokenizer.ggml.model", "llama"}}, Kind::kBadInput,
               "tokenizer.ggml.scores has 0 entries for 7 tokens");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error({{"tokenizer.ggml.model", "llama"},
                {"tokenizer.ggml.bos_token_id", 0},
                {"tokenizer.ggml.scores", {1, nan, 1, 1, 1, 1, 1}}},
               Kind::kBadInput, "the score of token 1 is not a number");
}

// A folder that is deleted at the end of a test.
class LoadTokenizer : public testing::Test {
 protected:
  LoadTokenizer() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("load_tokenizer_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    checkpoint_.kind = Checkpoint::Kind::kSafetensors;
    checkpoint_.folder = folder_.string();
  }
  ~LoadTokenizer() override { std::filesystem::remove_all(folder_); }

  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::vector<int32_t> encode(const char* text) const {
    return load_tokenizer(checkpoint_)->encode(text, true);
  }

  std::filesystem::path folder_;
  Checkpoint checkpoint_;
};

TEST_F(LoadTokenizer, GivesNothingWhereThereIsNone) {
  EXPECT_EQ(load_tokenizer(checkpoint_), nullptr);
  checkpoint_.kind = Checkpoint::Kind::kGguf;
  EXPECT_EQ(load_tokenizer(checkpoint_), nullptr);
}

TEST_F(LoadTokenizer, ReadsAGguf) {
  const GgufData data = gguf_data(gpt2_fields());
  checkpoint_.kind = Checkpoint::Kind::kGguf;
  checkpoint_.metadata = data.metadata;
  checkpoint_.string_arrays = data.string_arrays;
  checkpoint_.number_arrays = data.number_arrays;
  EXPECT_THAT(encode("ab"), ElementsAre(2));
}

TEST_F(LoadTokenizer, PrefersTokenizerJsonToTwoFiles) {
  write("vocab.json", R"({"a": 7, "</s>": 3})");
  write("merges.txt", "#version: 0.2\n");
  EXPECT_THAT(encode("a"), ElementsAre(7));
  checkpoint_.config = {{"model_type", "opt"}};
  EXPECT_THAT(encode("a"), ElementsAre(3, 7));
  write("tokenizer.json", bytes_json().dump());
  EXPECT_THAT(encode("a"), ElementsAre('a'));
}

TEST_F(LoadTokenizer, RefusesATokenizerItCannotRead) {
  write("tokenizer.model", "");
  try {
    load_tokenizer(checkpoint_);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("tokenizer.model: not implemented alone"));
  }
}

TEST_F(LoadTokenizer, NamesAFileThatCannotBeRead) {
  write("vocab.json", "{}");
  std::filesystem::create_directory(folder_ / "merges.txt");
  const auto refused = [&](const char* name) {
    try {
      load_tokenizer(checkpoint_);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Kind::kIo);
      EXPECT_THAT(error.what(), HasSubstr(name + std::string(": ")));
    }
  };
  refused("merges.txt");
  std::filesystem::create_directory(folder_ / "tokenizer.json");
  refused("tokenizer.json");
}

}  // namespace
}  // namespace transload::engine::test
