#include "engine/families/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/checkpoint/files.h"

namespace transload::engine {
namespace {

using layout::Role;
using ::testing::HasSubstr;
using transload::testing::Folder;
using transload::testing::read_file;
using transload::testing::thrown_by;

SyntheticModel small(const char* family) {
  SyntheticModel model;
  model.family = family;
  model.hidden = 64;
  model.layers = 2;
  model.heads = 4;
  model.ffn = 96;
  model.vocab = 101;
  model.max_positions = 33;
  return model;
}

std::vector<float> values_of(const layout::Model& model, Role role, int32_t layer) {
  const layout::Weight* weight = model.find(role, layer);
  const std::string bytes = read_file(model.files[static_cast<size_t>(weight->extent.file)])
                                .substr(static_cast<size_t>(weight->extent.offset),
                                        static_cast<size_t>(weight->extent.bytes));
  std::vector<float> values(static_cast<size_t>(weight->rows * weight->cols));
  quant::decode(weight->format, std::as_bytes(std::span(bytes)), values);
  return values;
}

TEST(Synthetic, GivesModelsOfAllFamiliesAndFormats) {
  for (const char* family : {"opt", "llama", "gpt_neox"})
    for (const auto format : {quant::Format::kF16, quant::Format::kF32, quant::Format::kBF16}) {
      Folder folder;
      SyntheticModel wanted = small(family);
      wanted.format = format;
      if (wanted.family == "llama") wanted.kv_heads = 2;
      write_synthetic(wanted, folder / "m");
      const Checkpoint checkpoint = open_checkpoint(folder / "m");
      const layout::Model model = load_model(checkpoint);
      EXPECT_EQ(model.spec.family, family);
      EXPECT_EQ(model.spec.kv_width(), wanted.family == "llama" ? 32 : 64);
      EXPECT_EQ(model.spec.max_positions, 33);
      EXPECT_EQ(model.weights[0].format, format);
      EXPECT_THAT(end_tokens(checkpoint), ::testing::ElementsAre(2));
    }
}

// Uniform with variance 1 / inputs: over n values the sample variance is within 4 sigma,
// sigma = variance * sqrt(0.8 / n) (a uniform distribution's excess kurtosis is -1.2).
TEST(Synthetic, WeightsHaveTheSpreadThatKeepsActivationsFinite) {
  Folder folder;
  write_synthetic(small("llama"), folder / "m");
  const layout::Model model = load_model(open_checkpoint(folder / "m"));
  const auto check = [&](Role role, double want) {
    const auto values = values_of(model, role, 1);
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const auto n = static_cast<double>(values.size());
    EXPECT_NEAR(squares / n, want, 4 * want * std::sqrt(0.8 / n) + 1e-3 * want);
    EXPECT_NEAR(sum / n, 0, 4 * std::sqrt(want / n));
  };
  check(Role::kQ, 1.0 / 64);
  check(Role::kDown, 1.0 / 96 / 4);
  for (const float value : values_of(model, Role::kNorm1, 0)) EXPECT_EQ(value, 1.0F);
  EXPECT_NE(values_of(model, Role::kK, 0), values_of(model, Role::kK, 1));
}

TEST(Synthetic, DependsOnTheSeedAndNotOnTheShards) {
  Folder folder;
  SyntheticModel wanted = small("opt");
  write_synthetic(wanted, folder / "one");
  wanted.shards = 3;
  write_synthetic(wanted, folder / "three");
  wanted.seed = 1;
  write_synthetic(wanted, folder / "other");
  const auto model = [&](const char* name) { return load_model(open_checkpoint(folder / name)); };
  EXPECT_EQ(model("three").files.size(), 3U);
  for (const Role role : {Role::kQ, Role::kUp, Role::kUpBias}) {
    const auto values = values_of(model("one"), role, 1);
    EXPECT_EQ(values, values_of(model("three"), role, 1));
    EXPECT_NE(values, values_of(model("other"), role, 1));
  }
}

TEST(Synthetic, OverwritesNothing) {
  Folder folder;
  transload::testing::write_file(folder / "note", "mine");
  const auto error = thrown_by([&] { write_synthetic(small("opt"), folder.path()); });
  EXPECT_EQ(error.kind, Kind::kUsage);
  EXPECT_THAT(error.text, HasSubstr("is not empty"));
  EXPECT_EQ(thrown_by([&] { write_synthetic(small("opt"), folder / "note"); }).kind, Kind::kIo);
}

TEST(Synthetic, RefusesSizesThatMakeNoModel) {
  const auto refusal = [](const std::function<void(SyntheticModel&)>& change) {
    SyntheticModel model = small("llama");
    change(model);
    const auto error = thrown_by([&] { synthetic_config(model); });
    EXPECT_EQ(error.kind, Kind::kUsage);
    return error.text;
  };
  EXPECT_THAT(refusal([](SyntheticModel& m) { m.hidden = 0; }), HasSubstr("0 is no size"));
  EXPECT_THAT(refusal([](SyntheticModel& m) { m.layers = 10'001; }), HasSubstr("at most 10000"));
  EXPECT_THAT(refusal([](SyntheticModel& m) { m.vocab = 2; }), HasSubstr("3 tokens"));
  EXPECT_THAT(refusal([](SyntheticModel& m) { m.heads = 5; }), HasSubstr("do not divide"));
  EXPECT_THAT(refusal([](SyntheticModel& m) { m.kv_heads = 3; }), HasSubstr("do not divide"));
  EXPECT_THAT(refusal([](SyntheticModel& m) { m.family = "bloom"; }), HasSubstr("'bloom'"));
  EXPECT_THAT(refusal([](SyntheticModel& m) {
                m.family = "opt";
                m.kv_heads = 2;
              }),
              HasSubstr("only llama"));
  Folder folder;
  SyntheticModel packed = small("llama");
  packed.format = quant::Format::kQ4_0;
  EXPECT_THAT(thrown_by([&] { write_synthetic(packed, folder.path()); }).text,
              HasSubstr("--dtype"));
}

}  // namespace
}  // namespace transload::engine
