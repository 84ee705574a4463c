// Scoring, and every position's log-probabilities, against the tiny reference models.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/checkpoint/input_file.h"
#include "tests/engine/executor/plans.h"
#include "tests/planner/models.h"

namespace transload::engine::testing {
namespace {

// Logits of every position of a reference sequence: [tokens, vocab].
struct Reference {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  int64_t vocab = 0;

  double logprob(int64_t position, int32_t token) const {
    const float* row = logits.data() + position * vocab;
    const double largest = *std::max_element(row, row + vocab);
    double sum = 0;
    for (int64_t i = 0; i < vocab; ++i) sum += std::exp(row[i] - largest);
    return row[token] - largest - std::log(sum);
  }
  int32_t best(int64_t position) const {
    const float* row = logits.data() + position * vocab;
    return static_cast<int32_t>(std::max_element(row, row + vocab) - row);
  }
};

// The checkpoints' own reader refuses the integer tensors that this file has besides.
std::vector<Reference> references(const std::string& name) {
  const InputFile file(std::string(TRANSLOAD_TEST_DATA) + "/tiny/" + name +
                       "/reference.safetensors");
  uint64_t header_bytes = 0;
  file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  std::string header(header_bytes, ' ');
  file.read(8, std::as_writable_bytes(std::span(header)));
  const nlohmann::json tensors = nlohmann::json::parse(header);
  std::vector<Reference> all;
  for (const TinySequence& sequence : tiny_reference(name)) {
    const nlohmann::json& tensor = tensors.at("logits_" + std::to_string(all.size()));
    const auto begin = tensor.at("data_offsets").at(0).get<int64_t>();
    Reference reference;
    reference.tokens = sequence.input;
    reference.vocab = tensor.at("shape").at(1);
    reference.logits.resize(sequence.input.size() * static_cast<size_t>(reference.vocab));
    file.read(8 + static_cast<int64_t>(header_bytes) + begin,
              std::as_writable_bytes(std::span(reference.logits)));
    all.push_back(std::move(reference));
  }
  return all;
}

// Scores tokens [begin + 1, end) of texts, each window in one pass.
class WindowFeed : public Feed {
 public:
  struct Window {
    const std::vector<int32_t>* tokens = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t first_scored = 0;
  };
  explicit WindowFeed(std::vector<Window> windows) : windows_(std::move(windows)) {}

  std::optional<Sequence> next() override {
    if (next_ == windows_.size()) return std::nullopt;
    const Window& window = windows_[next_];
    Sequence sequence;
    sequence.request = static_cast<int64_t>(next_++);
    sequence.tokens.assign(window.tokens->begin() + window.begin,
                           window.tokens->begin() + window.end);
    sequence.prompt_tokens = window.end - window.begin - 1;
    sequence.head_rows = window.end - window.first_scored;
    return sequence;
  }
  bool advance(Sequence& sequence) override {
    scored[sequence.request] = sequence.scored;
    if (!sequence.error.empty()) errors[sequence.request] = sequence.error;
    return false;
  }
  bool stop_requested() override { return false; }
  void tick(int64_t, int64_t, int64_t) override {}

  std::map<int64_t, std::vector<ScoredToken>> scored;
  std::map<int64_t, std::string> errors;

 private:
  std::vector<Window> windows_;
  size_t next_ = 0;
};

planner::Plan score_plan(const layout::Model& model, bool single_tier, int64_t chunk) {
  planner::Plan plan;
  plan.model = model.name;
  plan.work = planner::Work::kScore;
  plan.single_tier = single_tier;
  plan.weights = single_tier ? layout::Shares{.5, 0, .5} : layout::Shares{.2, .3, .5};
  if (!single_tier) plan.activations = {.5, .5, 0};
  plan.batch_size = 2;
  plan.num_batches = 2;
  plan.visit_buffers = single_tier ? 1 : 2;
  plan.prefill_tokens = 60;
  plan.chunk_tokens = chunk;
  plan.max_tokens = 45;
  plan.piece_bytes = 16384;
  return tests::fitted(model, plan, 0, {});
}

class TinyScores : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyScores, OfEveryTokenEqualTheReference) {
  const layout::Model model = tiny_model(GetParam());
  const std::vector<Reference> all = references(GetParam());
  ASSERT_EQ(all.size(), 2U);
  // Each text from its beginning, as a whole and in part: windows that begin later would see less.
  std::vector<WindowFeed::Window> windows;
  for (const Reference& text : all) {
    const auto length = static_cast<int64_t>(text.tokens.size());
    windows.push_back({&text.tokens, 0, length, 1});
    windows.push_back({&text.tokens, 0, length, length - 1});
    windows.push_back({&text.tokens, 0, 2, 1});
    windows.push_back({&text.tokens, 0, length / 2, length / 4});
  }
  for (const bool single_tier : {true, false})
    for (const int64_t chunk : {1, 7, 64}) {
      SCOPED_TRACE("chunk " + std::to_string(chunk) + (single_tier ? ", one tier" : ", two tiers"));
      const planner::Plan plan = score_plan(model, single_tier, chunk);
      WindowFeed feed(windows);
      Engine engine(model, plan, options_with_spill(::testing::TempDir()));
      engine.run(feed);
      EXPECT_TRUE(feed.errors.empty());
      for (size_t w = 0; w < windows.size(); ++w) {
        const Reference& text = all[w / 4];
        const std::vector<ScoredToken>& scored = feed.scored.at(static_cast<int64_t>(w));
        ASSERT_EQ(static_cast<int64_t>(scored.size()), windows[w].end - windows[w].first_scored);
        for (size_t i = 0; i < scored.size(); ++i) {
          const int64_t at = windows[w].first_scored + static_cast<int64_t>(i);
          const int32_t token = text.tokens[static_cast<size_t>(at)];
          ASSERT_NEAR(scored[i].logprob, text.logprob(at - 1, token), 1e-4)
              << "window " << w << " position " << at;
          EXPECT_EQ(scored[i].is_greedy, text.best(at - 1) == token);
        }
      }
    }
}

TEST_P(TinyScores, AllLogProbabilitiesOfEveryPositionEqualTheReference) {
  const layout::Model model = tiny_model(GetParam());
  for (const Reference& text : references(GetParam())) {
    std::vector<ListFeed::Prompt> prompts;
    for (size_t end = 1; end <= text.tokens.size(); ++end) {
      ListFeed::Prompt prompt;
      prompt.tokens.assign(text.tokens.begin(), text.tokens.begin() + static_cast<int64_t>(end));
      prompt.sampling.logprobs = text.vocab;
      prompts.push_back(prompt);
    }
    ListFeed feed(prompts);
    const planner::Plan plan = plan_for(model, {}, static_cast<int64_t>(text.tokens.size()), 1);
    Engine engine(model, plan, options_with_spill(::testing::TempDir()));
    engine.run(feed);
    for (const auto& [position, sampled] : feed.sampled) {
      EXPECT_EQ(sampled.front().token, text.best(position)) << "position " << position;
      ASSERT_EQ(static_cast<int64_t>(sampled.front().top.size()), text.vocab);
      for (const TokenLogprob& entry : sampled.front().top)
        ASSERT_NEAR(entry.logprob, text.logprob(position, entry.token), 1e-4)
            << "position " << position << " token " << entry.token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, TinyScores,
                         ::testing::Values("opt-preln", "opt-350m-style", "llama-mha",
                                           "llama-gqa-tied", "gpt-neox-parallel",
                                           "gpt-neox-sequential"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TiedHead, IsCountedAndReadOnce) {
  const layout::Model model = tiny_model("llama-gqa-tied");
  ASSERT_EQ(model.find(layout::Role::kHead), nullptr);
  const layout::Weight& embedding = *model.find(layout::Role::kEmbedding);
  int64_t matrices = 0;
  for (const layout::Weight& weight : model.weights)
    if (layout::is_matrix(weight.role)) matrices += weight.extent.bytes;
  const planner::Plan plan = plan_for(model, {}, 45, 4);
  const planner::Footprint needs = planner::footprint(model, plan);
  EXPECT_EQ(needs.slices.bytes[0], matrices);
  EXPECT_LT(needs.device.resident.bytes, matrices + embedding.extent.bytes / 2);
  ListFeed feed({{tiny_reference("llama-gqa-tied")[0].input, 4, {}}});
  Engine engine(model, plan, options_with_spill(::testing::TempDir()));
  const RunStats stats = engine.run(feed);
  const int64_t read = stats.lanes.bytes[static_cast<size_t>(planner::Lane::kDiskRead)];
  EXPECT_GE(read, matrices);
  EXPECT_LT(read, matrices + embedding.extent.bytes / 2);
}

// A copy of llama-mha (untied) whose embedding of a token is NaN.
layout::Model poisoned_model(const tests::ScratchFolder& scratch, int32_t token) {
  const std::string folder = scratch.path("poisoned");
  std::filesystem::copy(std::string(TRANSLOAD_TEST_DATA) + "/tiny/llama-mha", folder);
  layout::Model model = load_model(open_checkpoint(folder));
  const layout::Weight& embedding = *model.find(layout::Role::kEmbedding);
  std::filesystem::permissions(model.files[0], std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::fstream file(model.files[0], std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(embedding.extent.offset + token * embedding.row_bytes());
  file << std::string(static_cast<size_t>(embedding.row_bytes()), '\xFF');
  return model;
}

TEST(NonFiniteWeights, AreAnErrorOfTheirLinesAlone) {
  constexpr int32_t kToken = 511;
  const tests::ScratchFolder scratch;
  const layout::Model sound = tiny_model("llama-mha");
  const layout::Model poisoned = poisoned_model(scratch, kToken);
  std::vector<ListFeed::Prompt> prompts = prompts_of(sound, {5, 9, 20, 3}, 6);
  for (ListFeed::Prompt& prompt : prompts)
    std::replace(prompt.tokens.begin(), prompt.tokens.end(), kToken, int32_t{1});
  prompts[1].tokens[8] = kToken;  // its last token
  prompts[2].tokens[0] = kToken;  // seen by all later ones
  const JobSize size{.prompt_tokens = 20, .new_tokens = 6, .sequences = 4};
  for (const NamedPlan& named : placements(sound, size)) {
    SCOPED_TRACE(named.name);
    const EngineOptions options = options_with_spill(scratch.path("spill"));
    const Answers want = run(sound, named.plan, options, prompts);
    const Answers got = run(poisoned, named.plan, options, prompts);
    ASSERT_EQ(got.errors.size(), 2U);
    EXPECT_NE(got.errors.at(1).find("non-finite logits"), std::string::npos);
    EXPECT_NE(got.errors.at(2).find("non-finite logits"), std::string::npos);
    for (const int64_t line : {0, 3}) {
      EXPECT_EQ(got.tokens.at(line), want.tokens.at(line));
      EXPECT_EQ(got.bits.at(line), want.bits.at(line));
    }
  }
  WindowFeed feed({{&prompts[0].tokens, 0, 5, 1},
                   {&prompts[1].tokens, 0, 9, 1},
                   {&prompts[2].tokens, 0, 20, 1}});
  const planner::Plan plan = score_plan(poisoned, false, 7);
  Engine engine(poisoned, plan, options_with_spill(scratch.path("spill")));
  engine.run(feed);
  // The last token of a text is scored and never embedded.
  EXPECT_EQ(feed.errors.size(), 1U);
  EXPECT_EQ(feed.errors.count(2), 1U);
}

// A copy of llama-mha with one row of the first layer's K or V projection a million times as large.
layout::Model model_beyond_float16(const tests::ScratchFolder& scratch, layout::Role role) {
  const std::string folder = scratch.path("beyond-" + std::string(name(role)));
  std::filesystem::copy(std::string(TRANSLOAD_TEST_DATA) + "/tiny/llama-mha", folder);
  layout::Model model = load_model(open_checkpoint(folder));
  for (const layout::Weight& weight : model.weights) {
    if (weight.role != role || weight.layer != 0) continue;
    std::filesystem::permissions(model.files[0], std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::fstream file(model.files[0], std::ios::in | std::ios::out | std::ios::binary);
    std::vector<std::byte> bytes(static_cast<size_t>(weight.row_bytes()));
    std::vector<float> row(static_cast<size_t>(weight.cols));
    file.seekg(weight.extent.offset);
    file.read(reinterpret_cast<char*>(bytes.data()), weight.row_bytes());
    quant::decode(weight.format, bytes, row);
    for (float& value : row) value *= 1e6F;
    quant::encode(weight.format, row, bytes);
    file.seekp(weight.extent.offset);
    file.write(reinterpret_cast<const char*>(bytes.data()), weight.row_bytes());
  }
  return model;
}

TEST(Float16KvCache, KeysAndValuesBeyondItAreAnErrorThatNamesTheFlagAndNoneInFloat32) {
  const tests::ScratchFolder scratch;
  const EngineOptions options = options_with_spill(scratch.path("spill"));
  for (const layout::Role role : {layout::Role::kK, layout::Role::kV}) {
    const layout::Model model = model_beyond_float16(scratch, role);
    const std::vector<ListFeed::Prompt> prompts = prompts_of(model, {5, 9, 20, 3}, 6);
    JobSize size{.prompt_tokens = 20, .new_tokens = 6, .sequences = 4, .kv_bits = 16};
    for (const NamedPlan& named : placements(model, size)) {
      SCOPED_TRACE(std::string(name(role)) + ", " + named.name);
      const Answers got = run(model, named.plan, options, prompts);
      ASSERT_EQ(got.errors.size(), prompts.size());
      for (const auto& [line, error] : got.errors)
        EXPECT_THAT(error, ::testing::AllOf(::testing::HasSubstr("non-finite logits"),
                                            ::testing::HasSubstr("--kv-bits 32")));
    }
    size.kv_bits = 32;
    EXPECT_TRUE(run(model, plain_plan(model, size), options, prompts).errors.empty());
    WindowFeed feed({{&prompts[2].tokens, 0, 20, 1}});
    planner::Plan plan = score_plan(model, false, 7);
    plan.kv_bits = 16;
    Engine engine(model, plan, options);
    engine.run(feed);
    EXPECT_EQ(feed.errors.size(), 1U);
  }
}

}  // namespace
}  // namespace transload::engine::testing
