#include "planner/schedule.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/units.h"
#include "tests/planner/allocations.h"
#include "tests/planner/random_case.h"
#include "tests/planner/recorder.h"

namespace transload::planner {
namespace {

using tests::Case;
using tests::Driver;
using tests::Recorder;
using tests::Request;

constexpr uint64_t kCases = 200;

class Counter : public TaskSink {
 public:
  void emit(const Task& task, std::span<const planner::Use>) override {
    bytes[static_cast<size_t>(task.lane)] += task.bytes;
    ++tasks;
  }
  std::array<int64_t, kLanes> bytes{};
  int64_t tasks = 0;
};

// A plan on one tier for `batch_size` x `num_batches` sequences of at most 100 tokens.
Plan plain_plan(int64_t batch_size, int64_t num_batches) {
  Plan plan;
  plan.batch_size = batch_size;
  plan.num_batches = num_batches;
  plan.prefill_tokens = 100;
  plan.chunk_tokens = 32;
  plan.max_tokens = 100;
  plan.piece_bytes = 16 * kKiB;
  return plan;
}

std::vector<int64_t> rows_in(const BatchSweep& batch) {
  std::vector<int64_t> slots;
  for (const SweepRow& row : batch.rows) slots.push_back(row.row_slot);
  return slots;
}

TEST(Schedule, AWaitingPromptStartsInTheSweepAfterARowEnds) {
  const layout::Model model = tests::make_model({});
  const Plan plan = tests::fitted(model, plain_plan(2, 1), 2, {});
  const Footprint needs = footprint(model, plan);
  Schedule schedule(model, plan, needs);
  Driver driver(plan, schedule, {{10, 5, 5}, {20, 5, 2}, {30, 5, 5}});
  Counter sink;
  schedule.start(sink);
  EXPECT_EQ(driver.step(sink).admissions.size(), 2U);
  EXPECT_TRUE(driver.step(sink).admissions.empty());  // the second request ends here
  const Sweep& third = driver.step(sink);
  ASSERT_EQ(third.admissions.size(), 1U);
  EXPECT_EQ(third.admissions[0].row_slot, 1);
  ASSERT_EQ(third.batches[0].rows.size(), 2U);
  const SweepRow& decode = third.batches[0].rows[0];
  EXPECT_FALSE(decode.prompt);
  EXPECT_EQ(decode.position, 11);
  EXPECT_EQ(decode.tokens, 1);
  const SweepRow& prompt = third.batches[0].rows[1];
  EXPECT_TRUE(prompt.prompt);
  EXPECT_EQ(prompt.batch_row, 1);
  EXPECT_EQ(prompt.position, 0);
  EXPECT_EQ(prompt.tokens, 30);
  EXPECT_EQ(third.batches[0].tokens, 31);
  EXPECT_EQ(third.head_rows, 2);
}

TEST(Schedule, ARefillPassesNoPromptThatCameFirst) {
  // 60 tokens do not go with 50 in one sweep of 100; the short one behind them waits its turn.
  const layout::Model model = tests::make_model({});
  const Plan plan = tests::fitted(model, plain_plan(3, 1), 3, {});
  const Footprint needs = footprint(model, plan);
  Schedule schedule(model, plan, needs);
  Driver driver(plan, schedule, {{50, 9, 9}, {60, 9, 9}, {1, 9, 9}});
  Counter sink;
  schedule.start(sink);
  EXPECT_EQ(driver.step(sink).admissions.size(), 1U);
  EXPECT_EQ(driver.step(sink).admissions.size(), 2U);
  EXPECT_THAT(rows_in(driver.step(sink).batches[0]), testing::ElementsAre(0, 1, 2));
}

TEST(Schedule, AdmitsInOrderWithinPrefillTokensAndKvBlocks) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(seed);
    const Footprint needs = footprint(made.model, made.plan);
    Schedule schedule(made.model, made.plan, needs);
    Driver driver(made.plan, schedule, made.requests);
    Counter sink;
    driver.run(sink, [&](const Sweep& sweep, const BatchState& state) {
      int64_t running = 0;
      for (size_t i = 0; i < sweep.admissions.size(); ++i)
        ASSERT_EQ(sweep.admissions[i].waiting, static_cast<int64_t>(i));
      for (size_t b = 0; b < sweep.batches.size(); ++b) {
        int64_t prompts = 0;
        for (const SweepRow& row : sweep.batches[b].rows) {
          ASSERT_EQ(row.row_slot / made.plan.batch_size, static_cast<int64_t>(b));
          ++running;
          if (row.prompt) prompts += row.tokens;
        }
        ASSERT_LE(prompts, made.plan.prefill_tokens);
      }
      // Whoever waits still does so for a reason: no row slot, no tokens left, or no KV blocks.
      if (sweep.admissions.size() == state.waiting.size()) return;
      const WaitingPrompt& first = state.waiting[sweep.admissions.size()];
      const int64_t blocks =
          ceil_div(first.prompt_tokens + std::max<int64_t>(first.max_new_tokens - 1, 0),
                   layout::kKvBlockSlots);
      const bool room =
          !made.plan.keeps_kv() || blocks * made.model.spec.layers <= schedule.kv().free_blocks();
      if (room && running < made.plan.row_slots()) {
        ASSERT_GT(sweep.admissions.size(), 0U);
      }
    });
    ASSERT_TRUE(driver.is_done());
  }
}

TEST(Schedule, ReadsEachStreamedPieceOnceASweep) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(seed);
    const Footprint needs = footprint(made.model, made.plan);
    Schedule schedule(made.model, made.plan, needs);
    Driver driver(made.plan, schedule, made.requests);
    Recorder recorder;
    int64_t sweeps = 0;
    driver.run(recorder, [&](const Sweep&, const BatchState&) { ++sweeps; });

    std::map<std::tuple<int64_t, int32_t, int32_t>, int> reads;
    std::map<std::tuple<int64_t, int32_t, int32_t>, int> copies;
    std::map<int64_t, int64_t> disk_bytes;  // by sweep
    std::map<int64_t, int64_t> link_bytes;
    for (const Task& task : recorder.tasks()) {
      if (task.sweep > sweeps) continue;  // loaded ahead, never used
      const auto piece = std::make_tuple(task.sweep, task.layer, task.index);
      if (task.kind == TaskKind::kReadPiece) {
        ASSERT_EQ(++reads[piece], 1) << tests::describe(task);
        disk_bytes[task.sweep] += task.bytes;
      }
      if (task.kind == TaskKind::kCopyPiece) {
        ASSERT_EQ(++copies[piece], 1) << tests::describe(task);
        link_bytes[task.sweep] += task.bytes;
      }
    }
    int64_t disk = 0;
    int64_t link = 0;
    for (const layout::Stage& stage : needs.slices.stages)
      for (const layout::Piece& piece : stage.pieces) {
        if (piece.home == layout::Tier::kDisk) disk += paged_bytes(piece);
        if (!made.plan.single_tier) link += piece.bytes;
      }
    for (int64_t sweep = 1; sweep <= sweeps; ++sweep) {
      ASSERT_EQ(disk_bytes[sweep], disk) << "sweep " << sweep;
      ASSERT_EQ(link_bytes[sweep], link) << "sweep " << sweep;
    }
  }
}

// Both halves of a visit together read every piece of the layer.
TEST(Schedule, AVisitReadsAllPiecesOfItsLayer) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(seed);
    const Footprint needs = footprint(made.model, made.plan);
    Schedule schedule(made.model, made.plan, needs);
    Driver driver(made.plan, schedule, made.requests);
    Recorder recorder;
    driver.run(recorder);
    std::map<std::tuple<int64_t, int32_t, int32_t>, std::multiset<int32_t>> pieces;
    std::set<std::tuple<int64_t, int32_t, int32_t>> visits;
    for (size_t i = 0; i < recorder.tasks().size(); ++i) {
      const Task& task = recorder.tasks()[i];
      if (task.kind != TaskKind::kAttentionIn && task.kind != TaskKind::kAttentionOut) continue;
      const auto visit = std::make_tuple(task.sweep, task.layer, task.batch);
      visits.insert(visit);
      for (const Recorder::Use& use : recorder.uses()[i])
        if (use.use.buffer == Buffer::kWeightRing) {
          ASSERT_EQ(use.writers.size(), 1U) << tests::describe(task);
          pieces[visit].insert(use.writers[0].index);
        }
    }
    for (const auto& visit : visits) {
      const auto& stage = needs.slices.stages[static_cast<size_t>(std::get<1>(visit))];
      ASSERT_EQ(pieces[visit].size(), stage.pieces.size());
      ASSERT_EQ(std::set<int32_t>(pieces[visit].begin(), pieces[visit].end()).size(),
                stage.pieces.size());
    }
  }
}

TEST(Schedule, NoKvBlockBelongsToTwoSequences) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    if (!made.plan.keeps_kv()) continue;
    SCOPED_TRACE(seed);
    const Footprint needs = footprint(made.model, made.plan);
    Schedule schedule(made.model, made.plan, needs);
    Driver driver(made.plan, schedule, made.requests);
    Counter sink;
    driver.run(sink, [&](const Sweep& sweep, const BatchState&) {
      std::set<std::pair<layout::Tier, int32_t>> taken;
      for (const BatchSweep& batch : sweep.batches)
        for (const SweepRow& row : batch.rows) {
          const int64_t blocks = schedule.kv().reserved_blocks(row.row_slot);
          ASSERT_GE(blocks * layout::kKvBlockSlots, row.position + row.tokens);
          for (int64_t layer = 0; layer < made.model.spec.layers; ++layer)
            for (int64_t block = 0; block < blocks; ++block) {
              const layout::KvPlace place = schedule.kv().at(row.row_slot, layer, block);
              ASSERT_TRUE(taken.emplace(place.tier, place.block).second);
              ASSERT_LT(place.block, made.plan.kv_blocks[static_cast<size_t>(place.tier)]);
            }
        }
    });
  }
}

TEST(Schedule, KvBlocksFollowTheTiersCapacity) {
  const layout::Model model = tests::make_model({.layers = 8});
  Plan plan = plain_plan(8, 1);
  plan.single_tier = false;
  plan.max_tokens = 256;
  plan.prefill_tokens = 8 * 200;
  plan.kv = {0.25, 0.5, 0.25};
  plan = tests::fitted(model, plan, 8, {});
  const Footprint needs = footprint(model, plan);
  Schedule schedule(model, plan, needs);
  // Half of the rows: half of each arena.
  Driver driver(plan, schedule, std::vector<Request>(4, {200, 57, 57}));
  Counter sink;
  schedule.start(sink);
  const Sweep& sweep = driver.step(sink);
  ASSERT_EQ(sweep.admissions.size(), 4U);
  std::array<int64_t, layout::kTiers> blocks{};
  for (const SweepRow& row : sweep.batches[0].rows)
    for (int64_t layer = 0; layer < 8; ++layer)
      for (int64_t block = 0; block < 4; ++block)
        ++blocks[static_cast<size_t>(schedule.kv().at(row.row_slot, layer, block).tier)];
  EXPECT_THAT(blocks, testing::ElementsAre(32, 64, 32));
}

TEST(Schedule, AllocatesNothingAfterConstruction) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case made = tests::random_case(seed);
    const Footprint needs = footprint(made.model, made.plan);
    Counter sink;
    // States of a run, made beforehand.
    Schedule first(made.model, made.plan, needs);
    Driver driver(made.plan, first, made.requests);
    driver.run(sink);
    Schedule schedule(made.model, made.plan, needs);
    const int64_t before = tests::allocations();
    schedule.start(sink);
    for (const BatchState& state : driver.states()) schedule.next(state, sink);
    ASSERT_EQ(tests::allocations() - before, 0) << "case " << seed;
  }
}

TEST(Schedule, ScoringLoadsNoWeightsBeyondTheLastSweep) {
  const layout::Model model = tests::make_model({});
  Plan plan = plain_plan(2, 1);
  plan.work = Work::kScore;
  plan.weights = {0, 0, 1};
  plan = tests::fitted(model, plan, 0,
                       {.weight_ring_bytes = 1 << 20, .staging_bytes = 0, .kv_ring_blocks = 0});
  const Footprint needs = footprint(model, plan);
  Schedule schedule(model, plan, needs);
  Driver driver(plan, schedule, std::vector<Request>(4, {50, 0, 1, 49}));
  Recorder recorder;
  driver.run(recorder);
  int64_t last = 0;
  for (const Task& task : recorder.tasks()) last = std::max(last, task.sweep);
  EXPECT_EQ(last, 2);
}

TEST(Schedule, RefusesASweepWithoutRowsAndStatesOfAnotherPlan) {
  const layout::Model model = tests::make_model({});
  const Plan plan = tests::fitted(model, plain_plan(2, 1), 2, {});
  const Footprint needs = footprint(model, plan);
  Schedule schedule(model, plan, needs);
  Counter sink;
  schedule.start(sink);
  BatchState state;
  EXPECT_THROW(schedule.next(state, sink), Error);
  state.active.assign(2, false);
  EXPECT_THROW(schedule.next(state, sink), Error);
}

}  // namespace
}  // namespace transload::planner
