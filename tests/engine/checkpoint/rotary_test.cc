// Values by transformers 5.24.0's modeling_rope_utils.py, evaluated in float32.
#include "engine/families/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/checkpoint/files.h"

namespace transload::engine {
namespace {

using nlohmann::json;

layout::DecoderSpec apply(const json& parameters) {
  layout::DecoderSpec spec;
  spec.head_dim = 32;
  spec.max_positions = 131072;
  const json object = {{"rope_parameters", parameters}};
  ConfigReader config(object, "config.json");
  apply_rotary(read_rotary(config, {}, spec), spec);
  return spec;
}

// Relative distance within `units` float32 roundings.
void expect_near(const std::vector<float>& got, const std::vector<float>& want, float units) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], units * 6e-8F * want[i]) << "frequency " << i;
}

TEST(Rotary, LinearDividesFrequencies) {
  const auto spec = apply({{"rope_type", "linear"}, {"rope_theta", 10000.0}, {"factor", 2.5}});
  expect_near(spec.inverse_frequencies,
              {0.400000006F, 0.22493653F, 0.1264911F, 0.0711311772F, 0.0399999991F, 0.0224936511F,
               0.0126491114F, 0.00711311772F, 0.00399999972F, 0.00224936521F, 0.00126491114F,
               0.000711311761F, 0.000400000019F, 0.000224936521F, 0.000126491112F, 7.11311732e-05F},
              2);
  EXPECT_EQ(spec.rotary_magnitude, 1.0F);
}

TEST(Rotary, Llama3SlowsLongWavesAndBlendsBetween) {
  const auto spec = apply({{"rope_type", "llama3"},
                           {"rope_theta", 500000.0},
                           {"factor", 8.0},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 8192}});
  expect_near(spec.inverse_frequencies,
              {1.0F, 0.440366626F, 0.193922758F, 0.0853971019F, 0.0376060307F, 0.0165604409F,
               0.00729266508F, 0.00321144611F, 0.000524846022F, 7.78465546e-05F, 3.42810235e-05F,
               1.50962178e-05F, 6.64786967e-06F, 2.92749974e-06F, 1.28917316e-06F, 5.6770881e-07F},
              8);
}

TEST(Rotary, YarnBlendsByPairAndScalesTheMagnitude) {
  const auto spec = apply({{"rope_type", "yarn"},
                           {"rope_theta", 1000000.0},
                           {"factor", 4.0},
                           {"original_max_position_embeddings", 32768}});
  expect_near(spec.inverse_frequencies,
              {1.0F, 0.421696514F, 0.177827939F, 0.0749894157F, 0.0316227786F, 0.0133352149F,
               0.00477990136F, 0.00165996165F, 0.000549999997F, 0.000168678584F, 4.44569851e-05F,
               1.87473561e-05F, 7.90569356e-06F, 3.33380353e-06F, 1.40585337e-06F, 5.92843435e-07F},
              8);
  EXPECT_FLOAT_EQ(spec.rotary_magnitude, 1.138629436F);
}

TEST(Rotary, YarnTakesItsOptions) {
  json parameters = {{"rope_type", "yarn"}, {"rope_theta", 10000.0},
                     {"factor", 16.0},      {"original_max_position_embeddings", 4096},
                     {"beta_fast", 16},     {"beta_slow", 2},
                     {"mscale", 0.707},     {"mscale_all_dim", 0.5},
                     {"truncate", false}};
  const auto spec = apply(parameters);
  expect_near(spec.inverse_frequencies,
              {1.0F, 0.562341332F, 0.316227764F, 0.177827939F, 0.100000001F, 0.0562341288F,
               0.0316227786F, 0.0151994536F, 0.0059520239F, 0.0018876493F, 0.000240811118F,
               0.000111142464F, 6.2500003e-05F, 3.51463314e-05F, 1.97642366e-05F, 1.11142463e-05F},
              16);
  EXPECT_FLOAT_EQ(spec.rotary_magnitude, 1.050404973F);
  parameters["attention_factor"] = 1.25;
  EXPECT_FLOAT_EQ(apply(parameters).rotary_magnitude, 1.25F);
}

// The one factor that may be left out: YaRN's is then the growth of the context.
TEST(Rotary, YarnWithoutAFactorTakesTheGrowthOfTheContext) {
  json parameters = {
      {"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"original_max_position_embeddings", 32768}};
  const auto grown = apply(parameters);
  parameters["factor"] = 4.0;
  EXPECT_EQ(grown.inverse_frequencies, apply(parameters).inverse_frequencies);
}

TEST(Rotary, RefusesABaseWithoutFiniteFrequencies) {
  const auto error = transload::testing::thrown_by([] {
    apply({{"rope_type", "yarn"}, {"rope_theta", 1.0}, {"factor", 4.0}, {"truncate", false}});
  });
  EXPECT_EQ(error.kind, Kind::kBadInput);
  EXPECT_THAT(error.text, ::testing::HasSubstr("no finite frequencies"));
}

}  // namespace
}  // namespace transload::engine
