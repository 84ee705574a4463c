// UTF-8, the byte alphabet, and decoding piece by piece.
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/utf8.h"
#include "tests/engine/tokenizer/test_data.h"

namespace transload::engine::test {
namespace {

constexpr const char* kMark = "\xEF\xBF\xBD";

std::string repaired(std::string_view bytes) {
  std::string text;
  append_repaired(text, bytes, false);
  return text;
}

TEST(Utf8, EachMaximalInvalidPartBecomesOneMark) {
  const std::string mark = kMark;
  EXPECT_EQ(repaired("a\xC3\xA9\xF0\x9F\x98\x80"), "a\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(repaired("\x80"), mark);
  EXPECT_EQ(repaired("\xE2\x82"
                     "a"),
            mark + "a");
  EXPECT_EQ(repaired("\xF0\x9F\x98"), mark);
  EXPECT_EQ(repaired("\xED\xA0\x80"), mark + mark + mark);             // a surrogate
  EXPECT_EQ(repaired("\xC0\xAF"), mark + mark);                        // overlong
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), mark + mark + mark + mark);  // above U+10FFFF
  EXPECT_EQ(repaired("\xF1\x80\xF1\x80\x80\xE1\x80"), mark + mark + mark);
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("plain ascii text \xD0\xB6"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("0123456789\xFF"), 10u);
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x82"), 2u);
}

RC_GTEST_PROP(Utf8, EveryScalarValueComesBack, ()) {
  const auto code = *rc::gen::suchThat(rc::gen::inRange<uint32_t>(0, 0x110000),
                                       [](uint32_t c) { return c < 0xD800 || c > 0xDFFF; });
  std::string text;
  append_utf8(text, static_cast<char32_t>(code));
  const Utf8Part part = next_utf8(text);
  RC_ASSERT(part.kind == Utf8Part::Kind::kCharacter);
  RC_ASSERT(part.code_point == code);
  RC_ASSERT(part.bytes == text.size());
}

RC_GTEST_PROP(ByteLevel, AnyBytesComeBack, (const std::string& bytes)) {
  RC_ASSERT(bytes_of_spelling(spelling_of_bytes(bytes)) == bytes);
}

TEST(ByteLevel, SpellsAsGpt2) {
  EXPECT_EQ(spelling_of_bytes(" a\n\xC3\xA9"),
            "\xC4\xA0"
            "a\xC4\x8A\xC3\x83\xC2\xA9");
  EXPECT_EQ(bytes_of_spelling(" "), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\xE2\x96\x81"), std::nullopt);
}

std::string incrementally(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  IncrementalDecoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.add(id);
    // Never half a character, nor a mark that a later token could make good.
    if (find_invalid_utf8(part) != std::string_view::npos) return "not UTF-8";
    text += part;
  }
  return text + decoder.finish();
}

const Tokenizer& llama2() {
  static const BpeTokenizer tokenizer(rules_of_gguf(read_data_json("llama2.gguf.json.zst")));
  return tokenizer;
}

RC_GTEST_PROP(IncrementalDecoder, EqualsTheWholeForAnyBytes, (const std::vector<uint8_t>& bytes)) {
  static const auto tokenizer = tokenizer_of_json(bytes_json());
  const std::vector<int32_t> ids(bytes.begin(), bytes.end());
  RC_ASSERT(incrementally(*tokenizer, ids) == tokenizer->decode(ids));
}

RC_GTEST_PROP(IncrementalDecoder, EqualsTheWholeForAnyTokens, (bool byte_level)) {
  const Tokenizer& tokenizer = byte_level ? smollm2() : llama2();
  const auto below = static_cast<int32_t>(tokenizer.vocab_size());
  // Half of them single bytes: these split characters.
  const auto ids = *rc::gen::container<std::vector<int32_t>>(
      rc::gen::oneOf(rc::gen::inRange(0, below), rc::gen::inRange(0, 300)));
  RC_ASSERT(incrementally(tokenizer, ids) == tokenizer.decode(ids));
}

TEST(IncrementalDecoder, EqualsTheWholeForRealText) {
  const std::string text =
      "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 "                  // emoji, joined
      "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C "              // Chinese
      "\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 caf\xC3\xA9";  // Russian, French
  for (const Tokenizer* tokenizer : {&smollm2(), &llama2()}) {
    const auto ids = tokenizer->encode(text, false);
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(incrementally(*tokenizer, ids), text);
  }
}

TEST(IncrementalDecoder, WaitsForTheRestOfACharacter) {
  const auto tokenizer = tokenizer_of_json(bytes_json());
  IncrementalDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.add(0xE2), "");
  EXPECT_EQ(decoder.add(0x82), "");
  EXPECT_EQ(decoder.add(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(decoder.add(0xE2), "");
  EXPECT_EQ(decoder.add('a'), std::string(kMark) + "a");
  EXPECT_EQ(decoder.add(0xF0), "");
  EXPECT_EQ(decoder.finish(), kMark);
  EXPECT_EQ(decoder.finish(), "");
}

TEST(IncrementalDecoder, StripsTheSpaceOfSentencePieceOnlyAtTheBegin) {
  const auto ids = llama2().encode("a b", false);
  EXPECT_EQ(llama2().decode(ids), "a b");
  EXPECT_EQ(llama2().token_text(ids.back()), " b");
  EXPECT_EQ(incrementally(llama2(), ids), "a b");
  IncrementalDecoder after(llama2(), IncrementalDecoder::Place::kContinuation);
  std::string text;
  for (const int32_t id : ids) text += after.add(id);
  EXPECT_EQ(text + after.finish(), " a b");
}

}  // namespace
}  // namespace transload::engine::test
