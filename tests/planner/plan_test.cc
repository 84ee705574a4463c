#include "planner/plan.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace transload::planner {
namespace {

using nlohmann::json;

Plan odd_plan() {
  Plan plan;
  plan.model = "tiny";
  plan.work = Work::kScore;
  plan.single_tier = false;
  plan.weights = {0.25, 0.5, 0.25};
  plan.kv = {0, 0.125, 0.875};
  plan.activations = {0.75, 0.25, 0};
  plan.batch_size = 3;
  plan.num_batches = 4;
  plan.prefill_tokens = 600;
  plan.chunk_tokens = 65;
  plan.max_tokens = 648;
  plan.kv_bits = 16;
  plan.visit_buffers = 2;
  plan.attention = AttentionSite::kHost;
  plan.piece_bytes = 1048576;
  plan.weight_ring_bytes = 6000001;
  plan.staging_bytes = 7000000000;
  plan.kv_blocks = {1, 20, 300};
  plan.kv_ring_device_blocks = 11;
  plan.kv_ring_host_blocks = 12;
  plan.threads = 2;
  plan.link_bytes_per_s = 1.5e9;
  plan.disk_bytes_per_s = 2.5e8;
  plan.budget_bytes = {24000000, 1 << 30, 5};
  plan.reserve_bytes = 77;
  return plan;
}

std::string error_of(const json& text) {
  try {
    plan_from_json(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kBadInput);
    return error.what();
  }
  return "no error";
}

TEST(Plan, ComesBackFromJsonWithEveryField) {
  const json written = to_json(odd_plan());
  const Plan plan = plan_from_json(json::parse(written.dump()));
  EXPECT_EQ(to_json(plan), written);
  EXPECT_EQ(plan.staging_bytes, 7000000000);
  EXPECT_EQ(plan.kv, (layout::Shares{0, 0.125, 0.875}));
  EXPECT_EQ(plan.attention, AttentionSite::kHost);
  EXPECT_EQ(plan.work, Work::kScore);
  EXPECT_EQ(plan.threads, 2);
  // No field of the odd plan has its default, so a field that is not written would show.
  const json defaults = to_json(Plan{});
  for (const auto& item : written.items())
    EXPECT_NE(item.value(), defaults[item.key()]) << item.key();
}

TEST(Plan, NamesEachMissingField) {
  const json written = to_json(odd_plan());
  for (const auto& item : written.items()) {
    if (item.key() == "kv_bits") continue;  // older plans lack it
    json cut = written;
    cut.erase(item.key());
    EXPECT_EQ(error_of(cut),
              "plan: field '" + item.key() + "' is missing; write a plan with --dry-run --json");
  }
}

TEST(Plan, WithoutTheBitsOfTheKvCacheHas32) {
  json old = to_json(odd_plan());
  old.erase("kv_bits");
  EXPECT_EQ(plan_from_json(old).kv_bits, 32);
  EXPECT_EQ(plan_from_json(to_json(odd_plan())).kv_bits, 16);
}

TEST(Plan, NamesUnknownAndMalformedFields) {
  const auto with = [](const char* pointer, const json& value) {
    json text = to_json(odd_plan());
    text[json::json_pointer(pointer)] = value;
    return error_of(text);
  };
  using testing::HasSubstr;
  EXPECT_THAT(with("/overlap", true), HasSubstr("'overlap' is unknown"));
  EXPECT_THAT(with("/weights/gpu", 1), HasSubstr("'weights.gpu' is unknown"));
  EXPECT_THAT(with("/weights", 25), HasSubstr("'weights' must be an object"));
  EXPECT_THAT(with("/kv/disk", "all"), HasSubstr("'kv.disk' must be a number"));
  EXPECT_THAT(with("/kv/disk", -1), HasSubstr("'kv.disk' must be a number of at least 0"));
  EXPECT_THAT(with("/batch_size", 1.5), HasSubstr("'batch_size' must be a whole number"));
  EXPECT_THAT(with("/batch_size", -1), HasSubstr("'batch_size' must be a whole number"));
  EXPECT_THAT(with("/threads", 5000000000), HasSubstr("'threads' must be a whole number"));
  EXPECT_THAT(with("/reserve_bytes", 18446744073709551615U), HasSubstr("'reserve_bytes' must be"));
  EXPECT_THAT(with("/single_tier", 1), HasSubstr("'single_tier' must be true or false"));
  EXPECT_THAT(with("/kv_bits", 24), HasSubstr("'kv_bits' must be 32 or 16"));
  EXPECT_THAT(with("/kv_bits", "half"), HasSubstr("'kv_bits' must be a whole number"));
  EXPECT_THAT(with("/model", 1), HasSubstr("'model' must be a text"));
  EXPECT_THAT(with("/work", "train"), HasSubstr("'work' must be generate or score"));
  EXPECT_THAT(with("/attention", "gpu"), HasSubstr("'attention' must be device or host"));
  EXPECT_THAT(error_of(json::array()), HasSubstr("must be an object"));
}

}  // namespace
}  // namespace transload::planner
