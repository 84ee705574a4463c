#include "planner/placement.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/units.h"
#include "tests/planner/models.h"

namespace transload::planner {
namespace {

using layout::Shares;
using testing::HasSubstr;

const layout::Model& model() {
  static const layout::Model smollm2 = tests::smollm2();
  return smollm2;
}

PlacementInput input(const Wishes& wishes) {
  return {.model = model(),
          .workload = {.work = Work::kGenerate,
                       .requests = 100,
                       .max_prompt_tokens = 600,
                       .mean_prompt_tokens = 150,
                       .max_new_tokens = 48,
                       .max_total_tokens = 648},
          .wishes = wishes,
          .free = {.memory = 4 * kGB, .disk = 20 * kGB},
          .machine = {.disk_read_bytes_per_s = 1e9,
                      .disk_write_bytes_per_s = 5e8,
                      .link_bytes_per_s = 4e9,
                      .compute_flops_per_s = 5e10,
                      .compute_bytes_per_s = 2e9,
                      .task_s = 2e-6}};
}

std::string refusal(const PlacementInput& asked) {
  try {
    place(asked);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kDoesNotFit);
    return error.what();
  }
  return "no error";
}

void expect_fits(const Plan& plan) {
  const Footprint needs = footprint(model(), plan);
  EXPECT_NO_THROW(check_fits(model(), plan, needs));
  for (size_t t = 0; t < layout::kTiers; ++t) EXPECT_LE(needs.bytes[t], plan.budget_bytes[t]);
}

TEST(Placement, WithoutWishesEverythingLiesOnOneTier) {
  const Placement made = place(input({}));
  EXPECT_TRUE(made.plan.single_tier);
  EXPECT_EQ(made.plan.weights, (Shares{1, 0, 0}));
  EXPECT_EQ(made.plan.kv, (Shares{1, 0, 0}));
  EXPECT_EQ(made.plan.weight_ring_bytes, 0);
  EXPECT_GT(made.plan.row_slots(), 1);
  EXPECT_GT(made.prediction.tokens_per_s, 0);
  EXPECT_EQ(made.needs.bytes[1] + made.needs.bytes[2], 0);
  expect_fits(made.plan);
}

TEST(Placement, WeightsOnTheDiskAloneStayOnOneTier) {
  Wishes wishes;
  wishes.weights = Shares{0, 0, 1};
  wishes.disk_bytes_per_s = 1e7;
  const Placement made = place(input(wishes));
  EXPECT_TRUE(made.plan.single_tier);
  EXPECT_EQ(made.plan.weights, (Shares{0, 0, 1}));
  EXPECT_EQ(made.plan.kv, (Shares{1, 0, 0}));
  EXPECT_EQ(made.prediction.bottleneck(), Lane::kDiskRead);
  expect_fits(made.plan);
}

TEST(Placement, ADeviceBudgetHasTheHostBehindIt) {
  Wishes wishes;
  wishes.budget_bytes[0] = 24 * kMB;
  const Placement made = place(input(wishes));
  EXPECT_FALSE(made.plan.single_tier);
  EXPECT_EQ(made.plan.budget_bytes[0], 24 * kMB);
  EXPECT_EQ(made.plan.weights.disk, 0);
  EXPECT_EQ(made.plan.budget_bytes[1], made.needs.bytes[1]);
  EXPECT_GT(made.plan.row_slots(), 1);
  expect_fits(made.plan);
}

TEST(Placement, SixteenTimesFourSequencesGoThrough24MegabytesOfDevice) {
  for (const Shares& kv : {Shares{0, 1, 0}, Shares{0, 0, 1}, Shares{0, 0.5, 0.5}}) {
    Wishes wishes;
    wishes.budget_bytes[0] = 24 * kMB;
    wishes.batch_size = 16;
    wishes.num_batches = 4;
    wishes.kv = kv;
    const Placement made = place(input(wishes));
    EXPECT_EQ(made.plan.batch_size, 16);
    EXPECT_EQ(made.plan.num_batches, 4);
    EXPECT_EQ(made.plan.kv, kv);
    EXPECT_GE(made.plan.prefill_tokens, 600);
    expect_fits(made.plan);
  }
}

TEST(Placement, GrowingDeviceBudgetsAreUsed) {
  double before = 0;
  for (const int64_t budget : {16 * kMB, 32 * kMB, 64 * kMB, 128 * kMB, 256 * kMB}) {
    Wishes wishes;
    wishes.budget_bytes[0] = budget;
    wishes.batch_size = 4;
    wishes.num_batches = 1;
    const Placement made = place(input(wishes));
    expect_fits(made.plan);
    const double there = made.plan.weights.device + made.plan.kv.device;
    EXPECT_GE(there, before) << budget;
    before = there;
  }
  EXPECT_EQ(before, 2);
}

TEST(Placement, SharesThatAreGivenAreKeptExactly) {
  Wishes wishes;
  wishes.weights = Shares{0.25, 0.5, 0.25};
  wishes.kv = Shares{0.5, 0.25, 0.25};
  wishes.activations = Shares{0.5, 0.5, 0};
  const Placement made = place(input(wishes));
  EXPECT_EQ(made.plan.weights, *wishes.weights);
  EXPECT_EQ(made.plan.kv, *wishes.kv);
  EXPECT_EQ(made.plan.activations, *wishes.activations);
  const auto blocks =
      static_cast<double>(made.plan.kv_blocks[0] + made.plan.kv_blocks[1] + made.plan.kv_blocks[2]);
  EXPECT_NEAR(static_cast<double>(made.plan.kv_blocks[0]) / blocks, 0.5, 0.001);
  EXPECT_NEAR(static_cast<double>(made.plan.kv_blocks[1]) / blocks, 0.25, 0.001);
  const auto& bytes = made.needs.slices.bytes;
  const auto weights = static_cast<double>(bytes[0] + bytes[1] + bytes[2]);
  EXPECT_NEAR(static_cast<double>(bytes[0]) / weights, 0.25, 0.01);
  EXPECT_NEAR(static_cast<double>(bytes[2]) / weights, 0.25, 0.01);
  EXPECT_EQ(made.plan.budget_bytes, made.needs.bytes);
  expect_fits(made.plan);
}

TEST(Placement, ASmallHostSendsTheRestToTheDisk) {
  Wishes wishes;
  wishes.budget_bytes[0] = 24 * kMB;
  wishes.budget_bytes[1] = 40 * kMB;
  wishes.batch_size = 2;
  wishes.num_batches = 2;
  const Placement made = place(input(wishes));
  EXPECT_GT(made.plan.weights.disk, 0);
  EXPECT_LE(made.needs.bytes[1], 40 * kMB);
  expect_fits(made.plan);
}

TEST(Placement, TheSmallestBudgetsAreBelow15Megabytes) {
  for (const bool host : {false, true}) {
    Wishes wishes;
    wishes.weights = host ? Shares{0, 0.5, 0.5} : Shares{0, 0, 1};
    const Plan plan = smallest_plan(input(wishes));
    EXPECT_EQ(plan.single_tier, !host);
    EXPECT_EQ(plan.batch_size, 1);
    EXPECT_LT(plan.budget_bytes[0], 15 * kMB);
    expect_fits(plan);
    // No byte less.
    Plan less = plan;
    --less.budget_bytes[0];
    EXPECT_THROW(check_fits(model(), less, footprint(model(), less)), Error);
    // And those budgets are enough to be placed in.
    wishes.budget_bytes[0] = plan.budget_bytes[0];
    if (host) wishes.budget_bytes[1] = plan.budget_bytes[1];
    if (host) expect_fits(place(input(wishes)).plan);
  }
}

TEST(Placement, RefusalsNameTierBytesAndTheNearestPlan) {
  Wishes wishes;
  wishes.budget_bytes[0] = 2 * kMB;
  EXPECT_THAT(refusal(input(wishes)),
              testing::AllOf(testing::StartsWith("device: --batch-size 1 --num-batches 1 needs "),
                             HasSubstr("there are 2.00 MB (2000000 bytes)"),
                             HasSubstr("the least is --batch-size 1 with --device-memory ")));
  wishes.budget_bytes[0] = 24 * kMB;
  wishes.batch_size = 512;
  EXPECT_THAT(refusal(input(wishes)), HasSubstr("the nearest plan that fits has --batch-size "));
  wishes.batch_size = 1;
  wishes.kv = Shares{0, 0, 1};
  wishes.budget_bytes[2] = 100;
  EXPECT_THAT(refusal(input(wishes)), testing::StartsWith("disk: "));
  wishes = {};
  wishes.budget_bytes[1] = 1000;
  wishes.activations = Shares{0, 1, 0};
  EXPECT_THAT(refusal(input(wishes)), testing::StartsWith("host: "));
  PlacementInput full = input({});
  full.free.memory = 25 * kMB;
  EXPECT_THAT(refusal(full), testing::StartsWith("device: "));
  full.wishes.budget_bytes[0] = 24 * kMB;
  full.wishes.budget_bytes[1] = 24 * kMB;
  EXPECT_THAT(refusal(full), testing::StartsWith("memory: "));
}

TEST(Placement, ABudgetAboveTheMachinesMemoryIsRefusedWithThatMemory) {
  for (const auto& [tier, flag] : {std::pair{0, "--device-memory"}, {1, "--host-memory"}}) {
    PlacementInput asked = input({});
    asked.wishes.budget_bytes[static_cast<size_t>(tier)] = 4 * kGB + 1;
    EXPECT_THAT(refusal(asked),
                testing::AllOf(HasSubstr(flag), HasSubstr("(4000000001 bytes)"),
                               HasSubstr("this machine has only 4.00 GB (4000000000 bytes)")));
    asked.wishes.budget_bytes[static_cast<size_t>(tier)] = kGB;
    asked.wishes.reserve_bytes = 3 * kGB + 1;
    EXPECT_THAT(refusal(asked), HasSubstr("only 1.00 GB (999999999 bytes) of memory free beside"));
    asked.wishes.reserve_bytes = 2 * kGB;
    expect_fits(place(asked).plan);
  }
}

TEST(Placement, AFullDiskIsNamedWhateverItsBudget) {
  for (const bool has_budget : {false, true}) {
    Wishes wishes;
    wishes.kv = Shares{0, 0, 1};
    if (has_budget) wishes.budget_bytes[2] = kGB;
    PlacementInput asked = input(wishes);
    asked.free.disk = kMB;
    EXPECT_THAT(refusal(asked),
                testing::AllOf(testing::StartsWith("disk: "), HasSubstr("(1000000 bytes) free"),
                               HasSubstr("--disk-dir")));
  }
}

// What the printed least says is enough.
TEST(Placement, TheLeastOfARefusalFits) {
  Wishes wishes;
  wishes.budget_bytes[0] = 2 * kMB;
  const std::string text = refusal(input(wishes));
  const auto number = [&](const std::string& flag) {
    return std::stoll(text.substr(text.find(flag) + flag.size()));
  };
  wishes.budget_bytes[0] = number("--device-memory ");
  wishes.budget_bytes[1] = number("--host-memory ");
  wishes.batch_size = 1;
  expect_fits(place(input(wishes)).plan);
}

TEST(Placement, WishesThatContradictThemselvesAreRefused) {
  Wishes wishes;
  wishes.prefill_tokens = 599;
  EXPECT_THROW(place(input(wishes)), Error);
  wishes = {};
  wishes.batch_size = 0;
  EXPECT_THROW(place(input(wishes)), Error);
  wishes = {};
  wishes.attention = AttentionSite::kHost;
  wishes.kv = Shares{1, 0, 0};
  EXPECT_THROW(place(input(wishes)), Error);
  wishes = {};
  wishes.weights = Shares{0.5, 0.6, 0};
  EXPECT_THROW(place(input(wishes)), Error);
}

TEST(Placement, FreeMemoryLessTheReserveIsAllThereIs) {
  PlacementInput asked = input({});
  asked.wishes.reserve_bytes = asked.free.memory - 100 * kMB;
  const Placement made = place(asked);
  EXPECT_LE(made.needs.bytes[0] + made.needs.process_bytes, 100 * kMB);
  EXPECT_LT(made.plan.weights.device, 1);
  expect_fits(made.plan);
}

TEST(Placement, ASlowerLinkMakesLargerBatches) {
  const auto rows = [](double link) {
    Wishes wishes;
    wishes.budget_bytes[0] = 24 * kMB;
    wishes.link_bytes_per_s = link;
    return place(input(wishes)).plan.row_slots();
  };
  EXPECT_GE(rows(1e7), rows(1e10));
}

TEST(Placement, ScoringNeedsNoKvCache) {
  PlacementInput asked = input({});
  asked.workload.work = Work::kScore;
  asked.workload.max_new_tokens = 0;
  asked.workload.max_total_tokens = 600;
  asked.wishes.budget_bytes[0] = 24 * kMB;
  const Placement made = place(asked);
  EXPECT_THAT(made.plan.kv_blocks, testing::Each(0));
  expect_fits(made.plan);
}

}  // namespace
}  // namespace transload::planner
