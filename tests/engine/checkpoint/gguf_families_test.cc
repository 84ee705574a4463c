// LLaMA as GGUF metadata describes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/families/family.h"
#include "tests/engine/checkpoint/files.h"
#include "tests/engine/checkpoint/tiny_gguf.h"

namespace transload::engine {
namespace {

using layout::Role;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transload::testing::Folder;
using transload::testing::GgufBuilder;
using transload::testing::thrown_by;
using transload::testing::tiny_llama_gguf;

std::vector<Role> roles_of(const layout::Model& model, int32_t layer) {
  std::vector<Role> roles;
  for (const layout::Weight& weight : model.weights)
    if (weight.layer == layer) roles.push_back(weight.role);
  return roles;
}

class GgufFamilies : public ::testing::Test {
 protected:
  Checkpoint open(const GgufBuilder& builder) const {
    builder.write(folder_ / "m.gguf");
    return open_checkpoint(folder_ / "m.gguf");
  }
  layout::Model load(const GgufBuilder& builder) const { return load_model(open(builder)); }
  std::string refusal(const GgufBuilder& builder) const {
    return thrown_by([&] { load(builder); }).text;
  }
  // A GGUF of nothing but the keys.
  std::string refusal_of_copy(const std::function<void(GgufBuilder&)>& change) const {
    GgufBuilder builder = tiny_llama_gguf();
    change(builder);
    return refusal(builder);
  }

  Folder folder_;
};

TEST_F(GgufFamilies, ReadLlamaRotatingNeighbours) {
  const layout::Model model = load(tiny_llama_gguf());
  EXPECT_EQ(model.name, "tiny");
  EXPECT_EQ(model.spec.rotary_style, layout::RotaryStyle::kNeighbours);
  EXPECT_EQ(model.spec.head_dim, 4);
  EXPECT_EQ(model.spec.kv_heads, 1);
  EXPECT_EQ(model.spec.vocab, 10);
  EXPECT_FALSE(model.spec.tied_head);
  EXPECT_EQ(model.weights.back().role, Role::kHead);
  EXPECT_THAT(roles_of(model, 0), ElementsAre(Role::kQ, Role::kK, Role::kV, Role::kO, Role::kGate,
                                              Role::kUp, Role::kDown, Role::kNorm1, Role::kNorm2));
}

TEST_F(GgufFamilies, TieTheHeadWhereThereIsNone) {
  const layout::Model model =
      load(tiny_llama_gguf([](const std::string& name) { return name != "output.weight"; }));
  EXPECT_TRUE(model.spec.tied_head);
  EXPECT_EQ(model.find(Role::kHead), nullptr);
}

TEST_F(GgufFamilies, TakeBiasesThatAreThere) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.floats("blk.0.attn_q.bias", {8}, 1.0F);
  const layout::Model model = load(builder);
  EXPECT_NE(model.find(Role::kQBias, 0), nullptr);
  EXPECT_EQ(model.find(Role::kKBias, 0), nullptr);
}

TEST_F(GgufFamilies, DivideFrequenciesByTheFactorsOfTheFile) {
  const auto plain = load(tiny_llama_gguf()).spec.inverse_frequencies;
  GgufBuilder builder = tiny_llama_gguf();
  builder.floats("rope_freqs.weight", {2}, 4.0F);
  const auto divided = load(builder).spec.inverse_frequencies;
  EXPECT_THAT(divided, ElementsAre(plain[0] / 4, plain[1] / 4));
  EXPECT_THAT(refusal_of_copy([](GgufBuilder& b) { b.floats("rope_freqs.weight", {2}, 0.0F); }),
              HasSubstr("value 0 is 0"));
  EXPECT_THAT(refusal_of_copy([](GgufBuilder& b) { b.floats("rope_freqs.weight", {3}, 1.0F); }),
              HasSubstr("must be 2 values"));
}

TEST_F(GgufFamilies, ScaleRotaryAsTheMetadataSays) {
  const auto plain = load(tiny_llama_gguf()).spec.inverse_frequencies;
  GgufBuilder linear = tiny_llama_gguf();
  linear.text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 2.0F);
  EXPECT_THAT(load(linear).spec.inverse_frequencies, ElementsAre(plain[0] / 2, plain[1] / 2));
  GgufBuilder old = tiny_llama_gguf();
  old.f32("llama.rope.scale_linear", 2.0F);
  EXPECT_EQ(load(old).spec.inverse_frequencies, load(linear).spec.inverse_frequencies);
  GgufBuilder yarn = tiny_llama_gguf();
  yarn.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0F);
  yarn.u32("llama.rope.scaling.original_context_length", 16);
  EXPECT_FLOAT_EQ(load(yarn).spec.rotary_magnitude, 1.0F + 0.1F * std::log(4.0F));
  GgufBuilder none = tiny_llama_gguf();
  none.text("llama.rope.scaling.type", "none");
  EXPECT_EQ(load(none).spec.inverse_frequencies, plain);
}

TEST_F(GgufFamilies, RefuseWhatChangesTheArithmeticByKey) {
  const auto named = [&](const char* key, const std::function<void(GgufBuilder&)>& change) {
    EXPECT_THAT(refusal_of_copy(change), HasSubstr(key));
  };
  named("llama.rope.scaling.type",
        [](GgufBuilder& b) { b.text("llama.rope.scaling.type", "longrope"); });
  named("llama.attention.sliding_window",
        [](GgufBuilder& b) { b.u32("llama.attention.sliding_window", 8); });
  named("llama.expert_count", [](GgufBuilder& b) { b.u32("llama.expert_count", 8); });
  named("llama.logit_scale", [](GgufBuilder& b) { b.f32("llama.logit_scale", 2.0F); });
  named("llama.attention.value_length",
        [](GgufBuilder& b) { b.u32("llama.attention.value_length", 8); });
  named("llama.attention.windows", [](GgufBuilder& b) {
    b.i32s("llama.attention.windows", {1, 2});
  });
  named("blk.0.attn_q_norm.weight",
        [](GgufBuilder& b) { b.floats("blk.0.attn_q_norm.weight", {4}, 1.0F); });
}

TEST_F(GgufFamilies, RefuseOtherArchitecturesAndMissingKeys) {
  EXPECT_THAT(refusal(GgufBuilder().text("general.architecture", "gptneox")),
              AllOf(HasSubstr("gptneox"), HasSubstr("of llama it is")));
  EXPECT_THAT(refusal(GgufBuilder().u32("x", 1)), HasSubstr("'general.architecture' is missing"));
  EXPECT_THAT(refusal(GgufBuilder().text("general.architecture", "llama")),
              HasSubstr("'llama.embedding_length' is missing"));
}

TEST_F(GgufFamilies, GiveAllEndTokensOfTheFile) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.u32("tokenizer.ggml.eos_token_id", 9).u32("tokenizer.ggml.eot_token_id", 4);
  builder.u32("tokenizer.ggml.eom_token_id", 9);
  EXPECT_THAT(end_tokens(open(builder)), ElementsAre(4, 9));
}

}  // namespace
}  // namespace transload::engine
