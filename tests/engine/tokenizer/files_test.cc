// Tokenizer files: what is read, and what is refused with file and key.
#include <gmock/gmock.h>

#include <sstream>

#include "base/error.h"
#include "engine/tokenizer/vocab_files.h"
#include "tests/engine/tokenizer/test_data.h"

namespace transload::engine::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
void expect_error(const F& run, Kind kind, const std::string& what) {
  try {
    run();
    ADD_FAILURE() << "no error: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(what));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
  }
}

// bytes_json with one place changed.
json changed(const char* pointer, const json& value) {
  json file = bytes_json();
  file[json::json_pointer(pointer)] = value;
  return file;
}

void expect_unsupported(const char* pointer, const json& value, const std::string& what) {
  expect_error([&] { tokenizer_of_json(changed(pointer, value)); }, Kind::kUnsupported,
               "tokenizer.json: " + what);
}

void expect_damaged(const char* pointer, const json& value, const std::string& what) {
  expect_error([&] { tokenizer_of_json(changed(pointer, value)); }, Kind::kBadInput,
               "tokenizer.json: " + what);
}

TEST(TokenizerJson, RefusesStepsByName) {
  expect_unsupported("/model/type", "WordPiece", R"(model.type "WordPiece")");
  expect_unsupported("/model/type", "Unigram", R"(model.type "Unigram")");
  expect_unsupported("/model/vocab", json::array({json::array({"a", -1.0})}), "model.type");
  expect_unsupported("/normalizer", {{"type", "NFKC"}}, R"(normalizer: the normalizer "NFKC")");
  expect_unsupported("/normalizer",
                     {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", ""}},
                     "normalizer.pattern: a Regex here");
  expect_unsupported("/pre_tokenizer", {{"type", "Metaspace"}},
                     R"(pre_tokenizer: the pre-tokenizer "Metaspace")");
  expect_unsupported(
      "/pre_tokenizer",
      {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
      "pre_tokenizer.pretokenizers[1]: a step behind ByteLevel");
  expect_unsupported(
      "/pre_tokenizer",
      {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Contiguous"}},
      R"(pre_tokenizer.behavior: "Contiguous")");
  expect_unsupported("/post_processor", {{"type", "RobertaProcessing"}}, "post_processor: ");
  expect_unsupported("/decoder", {{"type", "WordPiece"}}, R"(decoder: the decoder "WordPiece")");
  expect_unsupported("/decoder", nullptr, "a null decoder");
}

TEST(TokenizerJson, RefusesOptionsByName) {
  expect_unsupported("/model/dropout", 0.1, "model.dropout: a dropout of 0.1");
  expect_unsupported("/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix");
  expect_unsupported("/model/other", 1, R"(model: the key "other")");
  expect_unsupported("/other", 1, R"(the key "other")");
  expect_unsupported("/pre_tokenizer/other", 1, R"(pre_tokenizer: the key "other")");
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 9; ++i) {
    deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  }
  expect_unsupported("/normalizer", deep, "normalizer.normalizers[0]");
  json file = changed("/model/byte_fallback", true);
  file["model"]["vocab"].erase("a");
  expect_error([&] { tokenizer_of_json(file); }, Kind::kUnsupported,
               "model.byte_fallback is not implemented for a byte-level vocabulary without byte "
               "0x61");
}

TEST(TokenizerJson, RefusesADecoderThatDoesNotFit) {
  json file = read_data_json("llama2.tokenizer.json.zst");
  const auto refused = [&](const json& decoder, const std::string& what) {
    file["decoder"] = decoder;
    expect_error([&] { tokenizer_of_json(file); }, Kind::kUnsupported, what);
  };
  const json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}};
  refused(replace, "a decoder that joins tokens by spaces");
  json other = replace;
  other["content"] = "_";
  refused(other, "replacing anything but U+2581 by a space");
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 2}, {"stop", 0}};
  refused({{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, strip}}},
          "decoder.decoders[1]: stripping anything but one space in front");
}

TEST(TokenizerJson, NamesDamagedPlaces) {
  expect_error([] { rules_of_json("{\"model\": {"); }, Kind::kBadInput, "not valid JSON");
  expect_error([] { rules_of_json("[]"); }, Kind::kBadInput, "tokenizer.json: expected an object");
  expect_error([] { rules_of_json("{}"); }, Kind::kBadInput, R"("model" is missing)");
  expect_damaged("/model", {{"type", "BPE"}, {"vocab", json::object()}}, R"(model: "merges")");
  expect_damaged("/model/vocab/a", "x", R"(the id of token "a" is no integer)");
  expect_damaged("/model/vocab/a", -1, R"(the id -1 of token "a" is out of range)");
  expect_damaged("/model/vocab/a", 98, R"(tokens "b" and "a" both have id 98)");
  expect_damaged("/model/merges", json::array({"a b c"}), R"(merge 0 ("a b c") is not two tokens)");
  expect_damaged("/model/merges", json::array({json::array({"a"})}), "model.merges[0] is not two");
  expect_damaged("/model/merges", json::array({"a b"}), R"(merge 0 ("a", "b") names or makes)");
  expect_damaged("/model/unk_token", "<unk>", "model.unk_token: the token is not in");
  expect_damaged("/model/ignore_merges", 1, "model.ignore_merges: expected true or false");
  expect_damaged("/added_tokens", json::object(), "added_tokens: expected an array");
  expect_damaged("/pre_tokenizer/type", 7, "pre_tokenizer.type: expected a string");
  expect_damaged("/normalizer",
                 {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}},
                 "normalizer.pattern: an empty pattern");
}

TEST(TokenizerJson, NamesAddedTokensThatContradict) {
  const auto added = [](const char* text, const json& id) {
    return json::array({{{"content", text}, {"id", id}}});
  };
  expect_damaged("/added_tokens", added("<s>", "1"), "added_tokens[0].id: expected an integer");
  expect_damaged("/added_tokens", added("<s>", -1), "added_tokens[0].id: -1 is out of range");
  expect_damaged("/added_tokens", added("<s>", 97),
                 R"(added token "<s>" with id 97 is "a" in the vocabulary)");
  json two = added("<s>", 300);
  two.push_back({{"content", "<t>"}, {"id", 300}});
  expect_damaged("/added_tokens", two, R"(added token "<t>" with id 300 shares it with "<s>")");
  const json around = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<s>", {{"ids", {999}}}}}}};
  expect_damaged("/post_processor", around, "token id 999 is outside the vocabulary of 256");
  json no_text = around;
  no_text["single"].erase(1);
  expect_damaged("/post_processor", no_text, "post_processor: single has no text");
}

TEST(TokenizerJson, PutsTheTemplateAroundATextWhenAsked) {
  json file = bytes_json();
  file["added_tokens"] = {{{"content", "<s>"}, {"id", 300}, {"special", true}}};
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single",
                             {{{"SpecialToken", {{"id", "<s>"}}}},
                              {{"Sequence", {{"id", "A"}}}},
                              {{"SpecialToken", {{"id", "<s>"}}}}}},
                            {"special_tokens", {{"<s>", {{"ids", {300}}}}}}};
  const auto tokenizer = tokenizer_of_json(file);
  EXPECT_THAT(tokenizer->encode("a", true), ElementsAre(300, 97, 300));
  EXPECT_THAT(tokenizer->encode("a<s>", false), ElementsAre(97, 300));
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_TRUE(tokenizer->is_special(300));
  EXPECT_FALSE(tokenizer->is_special(97));
  EXPECT_EQ(tokenizer->token_bytes(300), "<s>");
  EXPECT_EQ(tokenizer->token_bytes(299), "");
}

TEST(Tokenizer, RefusesWhatIsNoTextAndNoToken) {
  const auto tokenizer = tokenizer_of_json(bytes_json());
  expect_error([&] { tokenizer->encode("ab\xFF", false); }, Kind::kBadInput,
               "not valid UTF-8 at byte 2");
  expect_error([&] { tokenizer->token_bytes(-1); }, Kind::kInternal, "not negative");
  expect_error([&] { tokenizer->is_special(-1); }, Kind::kInternal, "not negative");
}

TEST(Tokenizer, GivesNoTextForARowThatIsNoToken) {
  const auto tokenizer = tokenizer_of_json(bytes_json());
  EXPECT_EQ(tokenizer->token_bytes(256), "");
  EXPECT_FALSE(tokenizer->is_special(256));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{97, 300, 98}), "ab");
}

struct TwoFiles {
  std::string vocabulary = R"({"a": 0, "b": 1, "ab": 2, "</s>": 3, "\u0120": 4})";
  std::string merges = "#version: 0.2\na b\r\n";
  VocabFilesExtra extra{};

  BpeTokenizer read() const {
    std::istringstream vocabulary_in(vocabulary), merges_in(merges);
    return BpeTokenizer(read_vocab_files(
        vocabulary_in, merges_in, extra,
        {"vocab.json", "merges.txt", "tokenizer_config.json", "map.json", "added.json"}));
  }
  void expect(Kind kind, const std::string& what) const {
    expect_error([this] { read(); }, kind, what);
  }
};

TEST(VocabFiles, FollowGpt2sRules) {
  TwoFiles files;
  EXPECT_THAT(files.read().encode("ab a", true), ElementsAre(2, 4, 0));
  files.extra.added_tokens = {{"<x>", 5}};
  files.extra.special_tokens_map = {{"eos_token", "</s>"}};
  files.extra.tokenizer_config = {{"add_prefix_space", true},
                                  {"add_eos_token", true},
                                  {"eos_token", "</s>"},
                                  {"added_tokens_decoder", {{"6", {{"content", "<y>"}}}}}};
  EXPECT_THAT(files.read().encode("ab<x><y>", true), ElementsAre(4, 2, 5, 6, 3));
  EXPECT_TRUE(files.read().is_special(3));
}

TEST(VocabFiles, OptBeginsWithItsEndToken) {
  TwoFiles files;
  files.extra.model_type = "opt";
  EXPECT_THAT(files.read().encode("ab", true), ElementsAre(3, 2));
  EXPECT_THAT(files.read().encode("ab</s>", false), ElementsAre(2, 3));
  files.vocabulary = R"({"a": 0, "b": 1, "ab": 2})";
  files.expect(Kind::kBadInput, "vocab.json: OPT's </s> is not in the vocabulary");
}

TEST(VocabFiles, NameTheFileThatIsDamaged) {
  TwoFiles{.vocabulary = "{"}.expect(Kind::kBadInput, "vocab.json: not valid JSON");
  TwoFiles{.vocabulary = "[]"}.expect(Kind::kBadInput, "vocab.json: expected an object");
  TwoFiles{.merges = "a"}.expect(Kind::kBadInput, R"(merges.txt: merge 0 ("a"))");
  TwoFiles{.merges = "a c"}.expect(Kind::kBadInput, R"(merges.txt: merge 0 ("a", "c") names)");
  TwoFiles files;
  files.extra.tokenizer_config = {{"tokenizer_class", "Qwen2Tokenizer"}};
  files.expect(Kind::kUnsupported, "tokenizer_config.json: tokenizer_class: \"Qwen2Tokenizer\"");
  files.extra.tokenizer_config = {{"add_bos_token", true}, {"bos_token", "<b>"}};
  files.expect(Kind::kBadInput, "tokenizer_config.json: bos_token: \"<b>\" is not in");
  files.extra.tokenizer_config = {{"add_bos_token", true}};
  files.expect(Kind::kBadInput, "tokenizer_config.json: \"bos_token\" is missing");
  files.extra.tokenizer_config = {{"added_tokens_decoder", {{"x", {{"content", "<y>"}}}}}};
  files.expect(Kind::kBadInput, "added_tokens_decoder: a key is no id");
  files.extra.tokenizer_config = nullptr;
  files.extra.added_tokens = {{"<x>", -5}};
  files.expect(Kind::kBadInput, "added.json: \"<x>\": id -5 is out of range");
}

TEST(VocabFiles, LlamaConfigOverrulesTheTemplate) {
  TokenizerRules rules;
  rules.added = {{"<s>", 1}};
  const json config = {{"tokenizer_class", "LlamaTokenizer"}, {"bos_token", "<s>"}};
  const auto prefix = [&](const json& add) {
    json changed = config;
    changed["add_bos_token"] = add;
    apply_llama_config(changed, "tokenizer_config.json", rules);
    return rules.prefix;
  };
  EXPECT_THAT(prefix(true), ElementsAre(1));
  EXPECT_THAT(prefix(true), ElementsAre(1));
  EXPECT_THAT(prefix(nullptr), ElementsAre(1));
  EXPECT_THAT(prefix(false), ElementsAre());
}

}  // namespace
}  // namespace transload::engine::test
