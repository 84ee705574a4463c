// Tables and merging.
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "engine/tokenizer/merge_symbols.h"
#include "engine/tokenizer/merges.h"
#include "engine/tokenizer/vocabulary.h"
#include "tests/engine/tokenizer/test_data.h"

namespace transload::engine::test {
namespace {

TEST(Vocabulary, FindsWhatWasInserted) {
  StringTable strings;
  for (int i = 0; i < 1000; ++i) append(strings, "token " + std::to_string(i));
  Vocabulary vocabulary(strings);
  for (int32_t i = 0; i < 1000; i += 2) EXPECT_TRUE(vocabulary.insert(i));
  EXPECT_FALSE(vocabulary.insert(0));
  for (int32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(vocabulary.find("token " + std::to_string(i)), i % 2 == 0 ? i : kNoToken);
  }
  EXPECT_EQ(vocabulary.find(""), kNoToken);
}

RC_GTEST_PROP(MergeTable, EqualsAMap, (const std::vector<std::pair<uint8_t, uint8_t>>& pairs)) {
  MergeTable table(static_cast<int64_t>(pairs.size()));
  std::map<std::pair<int32_t, int32_t>, uint32_t> expected;
  for (uint32_t rank = 0; rank < pairs.size(); ++rank) {
    const auto [left, right] = pairs[rank];
    table.insert(left, right, {rank, 7});
    expected[{left, right}] = rank;
  }
  for (int32_t left = -1; left < 256; left += 5) {
    for (int32_t right = -1; right < 256; ++right) {
      const auto at = expected.find({left, right});
      const Merge found = table.find(left, right);
      RC_ASSERT((found.token == kNoToken) == (at == expected.end()));
      if (at != expected.end()) RC_ASSERT(found.rank == at->second);
    }
  }
}

// The definition: again and again the lowest rank, leftmost first.
std::vector<int32_t> merged_by_definition(std::vector<int32_t> tokens, const MergeTable& merges) {
  while (true) {
    size_t best = tokens.size();
    Merge best_merge;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Merge merge = merges.find(tokens[i], tokens[i + 1]);
      if (merge.token == kNoToken) continue;
      if (best == tokens.size() || merge.rank < best_merge.rank) {
        best = i;
        best_merge = merge;
      }
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = best_merge.token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<int32_t> merged(const std::vector<int32_t>& tokens, const MergeTable& merges,
                            bool by_heap) {
  std::vector<Symbol> symbols;
  for (uint32_t i = 0; i < tokens.size(); ++i) symbols.push_back({tokens[i], i, i + 1});
  MergeScratch scratch;
  const auto lookup = [&](const Symbol& left, const Symbol& right) {
    return merges.find(left.token, right.token);
  };
  if (by_heap) {
    HeapMerging(symbols, scratch, lookup).run();
  } else {
    merge_by_scan(symbols, scratch, lookup);
  }
  std::vector<int32_t> result;
  for (const Symbol& symbol : symbols) result.push_back(symbol.token);
  return result;
}

RC_GTEST_PROP(MergeSymbols, ScanAndHeapEqualTheDefinition, ()) {
  const auto token = rc::gen::inRange(0, 6);
  const auto tokens = *rc::gen::container<std::vector<int32_t>>(token);
  MergeTable merges(12);
  for (uint32_t rank = 0; rank < 12; ++rank) {
    const int32_t left = *token, right = *token;
    if (merges.find(left, right).token == kNoToken) merges.insert(left, right, {rank, *token});
  }
  const auto expected = merged_by_definition(tokens, merges);
  RC_ASSERT(merged(tokens, merges, false) == expected);
  RC_ASSERT(merged(tokens, merges, true) == expected);
}

// Quadratic merging would take hours.
TEST(BpeTokenizer, EncodesALongWordInReasonableTime) {
  const std::string word(300'000, 'a');
  const auto ids = smollm2().encode(word, false);
  EXPECT_EQ(smollm2().decode(ids), word);
  EXPECT_LT(ids.size(), word.size() / 2);
}

TEST(BpeTokenizer, EncodesOnSeveralThreadsAtOnce) {
  const std::string text = "Hello world, 123 caf\xC3\xA9 " + std::string(100, 'a');
  const auto expected = smollm2().encode(text, false);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 50; ++k) wrong += smollm2().encode(text, false) != expected ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(smollm2().decode(expected), text);
}

// SentencePiece's kind from pieces in the order of their ids.
BpeTokenizer scored(const std::vector<std::tuple<std::string, double, int>>& pieces,
                    const nlohmann::json& extra = {}) {
  nlohmann::json fields = {{"tokenizer.ggml.model", "llama"},
                           {"tokenizer.ggml.add_space_prefix", false},
                           {"tokenizer.ggml.add_bos_token", false}};
  for (const auto& [text, score, type] : pieces) {
    fields["tokenizer.ggml.tokens"].push_back(text);
    fields["tokenizer.ggml.scores"].push_back(score);
    fields["tokenizer.ggml.token_type"].push_back(type);
  }
  fields.update(extra.is_null() ? nlohmann::json::object() : extra);
  return BpeTokenizer(rules_of_gguf(fields));
}

TEST(ScoredTokenizer, MergesTheBestScoreFirstAndLeftmostAmongEquals) {
  const BpeTokenizer tokenizer = scored(
      {{"a", -9, 1}, {"b", -9, 1}, {"c", -9, 1}, {"ab", -3, 1}, {"bc", -2, 1}, {"aa", -1, 1}});
  EXPECT_THAT(tokenizer.encode("abc", false), testing::ElementsAre(0, 4));
  EXPECT_THAT(tokenizer.encode("aaa", false), testing::ElementsAre(5, 0));
}

TEST(ScoredTokenizer, TakesUnusedTokensApartAgain) {
  const BpeTokenizer tokenizer =
      scored({{"a", -9, 1}, {"b", -9, 1}, {"c", -9, 1}, {"ab", -1, 5}, {"abc", -2, 1}});
  EXPECT_THAT(tokenizer.encode("abc", false), testing::ElementsAre(4));
  EXPECT_THAT(tokenizer.encode("aba", false), testing::ElementsAre(0, 1, 0));
}

TEST(ScoredTokenizer, FallsBackToBytesThenToUnknown) {
  const BpeTokenizer bytes = scored({{"a", -1, 1}, {"<0xC3>", 0, 6}, {"<0xA9>", 0, 6}});
  EXPECT_THAT(bytes.encode("a\xC3\xA9", false), testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(bytes.decode(bytes.encode("a\xC3\xA9", false)), "a\xC3\xA9");
  const BpeTokenizer unknown =
      scored({{"<unk>", 0, 2}, {"a", -1, 1}}, {{"tokenizer.ggml.unknown_token_id", 0}});
  EXPECT_THAT(unknown.encode("axya", false), testing::ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace transload::engine::test
