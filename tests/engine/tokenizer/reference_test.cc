// Ids and decoding against independent implementations (tests/tokenizer_reference.py).
#include <gmock/gmock.h>

#include <cstring>
#include <sstream>

#include "engine/tokenizer/vocab_files.h"
#include "tests/engine/tokenizer/test_data.h"

namespace transload::engine::test {
namespace {

const nlohmann::json& lines() {
  static const nlohmann::json read = read_data_json("lines.json.zst");
  return read;
}

// Compares the ids of every line with the hashes in a file.
void expect_ids(const Tokenizer& tokenizer, const std::string& name) {
  const std::string hashes = read_data(name);
  ASSERT_EQ(lines().size(), 5000u);
  ASSERT_EQ(hashes.size(), 4 * lines().size());
  int wrong = 0;
  for (size_t i = 0; i < lines().size(); ++i) {
    uint32_t expected = 0;
    std::memcpy(&expected, hashes.data() + 4 * i, 4);
    const std::vector<int32_t> ids = tokenizer.encode(lines()[i].get<std::string>(), false);
    if (hash_of(ids) == expected) continue;
    if (++wrong <= 5) {
      ADD_FAILURE() << name << " line " << i << " " << lines()[i].dump(-1, ' ', true) << " became "
                    << testing::PrintToString(ids);
    }
  }
  EXPECT_EQ(wrong, 0) << name;
}

// Byte-level tokens and SentencePiece's give back every byte where nothing normalizes.
void expect_text_back(const Tokenizer& tokenizer) {
  for (const auto& line : lines()) {
    const auto text = line.get<std::string>();
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text);
  }
}

std::unique_ptr<Tokenizer> from_json(const std::string& family) {
  return std::make_unique<BpeTokenizer>(rules_of_json(read_data(family + ".tokenizer.json.zst")));
}

std::unique_ptr<Tokenizer> opt() {
  std::istringstream vocabulary(read_data("opt.vocab.json.zst"));
  std::istringstream merges(read_data("opt.merges.txt.zst"));
  VocabFilesExtra extra;
  extra.tokenizer_config = {
      {"tokenizer_class", "GPT2Tokenizer"}, {"add_bos_token", true},
      {"add_prefix_space", false},          {"bos_token", {{"content", "</s>"}}},
      {"eos_token", {{"content", "</s>"}}}, {"unk_token", {{"content", "</s>"}}}};
  extra.special_tokens_map = {{"pad_token", "<pad>"}, {"unk_token", "<unk>"}, {"bos_token", "<s>"}};
  return std::make_unique<BpeTokenizer>(
      read_vocab_files(vocabulary, merges, extra,
                       {"vocab.json", "merges.txt", "tokenizer_config.json",
                        "special_tokens_map.json", "added_tokens.json"}));
}

TEST(TokenizerReference, Smollm2CasesGiveTheIdsAndTextsOfTheReference) {
  const nlohmann::json cases = read_data_json("smollm2-cases.json")["items"];
  ASSERT_EQ(cases.size(), 79u);
  for (const auto& item : cases) {
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(smollm2().encode(item["text"].get<std::string>(), false), ids) << item["id"];
    EXPECT_EQ(smollm2().decode(ids), item["decode"].get<std::string>()) << item["id"];
  }
}

TEST(TokenizerReference, Smollm2FromGgufEqualsTokenizers) { expect_ids(smollm2(), "smollm2.ids"); }

// tokenizers leaves it out, llama.cpp too.
TEST(TokenizerReference, Smollm2HasNoTokenForByte29) {
  EXPECT_EQ(smollm2().decode(smollm2().encode("a\x1D"
                                              "b",
                                              false)),
            "ab");
}

TEST(TokenizerReference, OptFromVocabularyAndMergesEqualsTokenizers) {
  expect_ids(*opt(), "opt.ids");
  expect_text_back(*opt());
  EXPECT_THAT(opt()->encode("", true), testing::ElementsAre(2));
}

TEST(TokenizerReference, Llama3EqualsTokenizers) {
  expect_ids(*from_json("llama3"), "llama3.ids");
  expect_text_back(*from_json("llama3"));
}

TEST(TokenizerReference, NeoxEqualsTokenizers) { expect_ids(*from_json("neox"), "neox.ids"); }

TEST(TokenizerReference, FlagsOfAddedTokensEqualTokenizers) {
  expect_ids(*from_json("odd"), "odd.ids");
}

TEST(TokenizerReference, Llama2FromJsonEqualsTokenizers) {
  expect_ids(*from_json("llama2"), "llama2.ids");
}

TEST(TokenizerReference, Llama2FromGgufEqualsSentencePiece) {
  const BpeTokenizer tokenizer(rules_of_gguf(read_data_json("llama2.gguf.json.zst")));
  expect_ids(tokenizer, "llama2-gguf.ids");
  EXPECT_EQ(tokenizer.encode("a", true).front(), 1);
}

}  // namespace
}  // namespace transload::engine::test
