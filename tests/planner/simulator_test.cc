#include "planner/simulator.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/units.h"
#include "tests/planner/random_case.h"
#include "tests/planner/recorder.h"

namespace transload::planner {
namespace {

using tests::Case;
using tests::Driver;
using tests::Recorder;

Machine even_machine() {
  return {.disk_read_bytes_per_s = 100,
          .disk_write_bytes_per_s = 50,
          .link_bytes_per_s = 200,
          .compute_flops_per_s = 1000,
          .compute_bytes_per_s = 400,
          .task_s = 0};
}

Task make(Lane lane, TaskId id, int64_t bytes, const Dependencies& needs = {}) {
  Task task;
  task.lane = lane;
  task.id = id;
  task.bytes = bytes;
  task.needs = needs;
  return task;
}

Dependencies after(Lane lane, TaskId id) {
  Dependencies needs;
  needs.add(lane, id);
  return needs;
}

TEST(Machine, TimesATaskByItsLane) {
  Machine machine = even_machine();
  EXPECT_DOUBLE_EQ(seconds(machine, make(Lane::kDiskRead, 1, 300)), 3);
  EXPECT_DOUBLE_EQ(seconds(machine, make(Lane::kDiskWrite, 1, 300)), 6);
  EXPECT_DOUBLE_EQ(seconds(machine, make(Lane::kHostToDevice, 1, 300)), 1.5);
  EXPECT_DOUBLE_EQ(seconds(machine, make(Lane::kDeviceToHost, 1, 300)), 1.5);
  Task compute = make(Lane::kDeviceCompute, 1, 300);
  compute.flops = 2000;
  EXPECT_DOUBLE_EQ(seconds(machine, compute), 0.75 + 2);
  machine.task_s = 0.25;
  EXPECT_DOUBLE_EQ(seconds(machine, compute), 3);
  EXPECT_THROW(seconds(Machine{}, compute), Error);
}

TEST(Machine, EmulatedRatesOnlySlowItDown) {
  Plan plan;
  plan.link_bytes_per_s = 20;
  plan.disk_bytes_per_s = 75;
  const Machine slower = limited(even_machine(), plan);
  EXPECT_EQ(slower.link_bytes_per_s, 20);
  EXPECT_EQ(slower.disk_read_bytes_per_s, 75);
  EXPECT_EQ(slower.disk_write_bytes_per_s, 50);
}

TEST(VirtualClock, StartsATaskWhenLaneAndNeedsAreReady) {
  std::vector<std::pair<double, double>> times;
  VirtualClock clock({}, even_machine(), [&](const Task&, double start_s, double end_s) {
    times.emplace_back(start_s, end_s);
  });
  clock.emit(make(Lane::kDiskRead, 1, 100), {});                                      // 0 .. 1
  clock.emit(make(Lane::kHostToDevice, 1, 100, after(Lane::kDiskRead, 1)), {});       // 1 .. 1.5
  clock.emit(make(Lane::kDiskRead, 2, 200), {});                                      // 1 .. 3
  clock.emit(make(Lane::kDeviceCompute, 1, 400, after(Lane::kHostToDevice, 1)), {});  // 1.5 .. 2.5
  clock.emit(make(Lane::kHostToDevice, 2, 100, after(Lane::kDiskRead, 2)), {});       // 3 .. 3.5
  clock.run();
  using Pair = std::pair<double, double>;
  EXPECT_THAT(times, testing::UnorderedElementsAre(Pair{0, 1}, Pair{1, 1.5}, Pair{1, 3},
                                                   Pair{1.5, 2.5}, Pair{3, 3.5}));
  EXPECT_DOUBLE_EQ(clock.now(), 3.5);
  EXPECT_DOUBLE_EQ(clock.busy()[static_cast<size_t>(Lane::kDiskRead)], 3);
  EXPECT_EQ(clock.bytes()[static_cast<size_t>(Lane::kHostToDevice)], 200);
}

TEST(VirtualClock, EmulatedDiskIsOneForBothDirections) {
  Plan plan;
  plan.disk_bytes_per_s = 50;
  VirtualClock shared(plan, even_machine());
  VirtualClock apart({}, even_machine());
  for (VirtualClock* clock : {&shared, &apart}) {
    clock->emit(make(Lane::kDiskRead, 1, 100), {});
    clock->emit(make(Lane::kDiskWrite, 1, 100), {});
    clock->run();
  }
  EXPECT_DOUBLE_EQ(shared.now(), 4);
  EXPECT_DOUBLE_EQ(apart.now(), 2);
}

TEST(VirtualClock, TasksThatWaitForEachOtherAreABug) {
  VirtualClock clock({}, even_machine());
  clock.emit(make(Lane::kDiskRead, 1, 100, after(Lane::kHostToDevice, 1)), {});
  clock.emit(make(Lane::kHostToDevice, 1, 100, after(Lane::kDiskRead, 1)), {});
  EXPECT_THROW(clock.run(), Error);
}

// A model whose layers cost all there is, streamed from the disk through a ring of two layers.
struct Streaming {
  layout::Model model = tests::make_model({.layers = 12,
                                           .hidden = 128,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .head_dim = 32,
                                           .ffn = 512,
                                           .vocab = 64});
  Plan plan;
  Footprint needs;
  Machine machine = even_machine();

  // Load and compute of a decode sweep take a second each; `layers` fit the ring.
  explicit Streaming(double layers) {
    plan.weights = {0, 0, 1};
    plan.prefill_tokens = 1;
    plan.chunk_tokens = 16;
    plan.max_tokens = 60;
    plan.piece_bytes = 16 * kKiB;
    plan = tests::fitted(model, plan, 1, {});
    const Footprint least = footprint(model, plan);
    plan.weight_ring_bytes =
        std::max(plan.weight_ring_bytes,
                 static_cast<int64_t>(layers * static_cast<double>(least.largest_stage_bytes)) +
                     plan.piece_bytes);
    needs = footprint(model, plan);
    int64_t read = 0;
    int64_t computed = 0;
    Schedule schedule(model, plan, needs);
    Driver driver(plan, schedule, {{1, 3, 3}});
    Recorder recorder;
    driver.run(recorder);
    for (const Task& task : recorder.tasks())
      if (task.sweep == 2) (task.lane == Lane::kDiskRead ? read : computed) += task.bytes;
    machine.disk_read_bytes_per_s = static_cast<double>(read);
    machine.compute_bytes_per_s = static_cast<double>(computed);
    machine.compute_flops_per_s = 1e18;
  }
  double sweep_s() const {
    const std::vector<RequestLength> requests = {{1, 40, 1}};
    return simulate(model, plan, needs, machine, requests).decode_sweep_s;
  }
};

TEST(Simulator, WithLoadTimeEqualToComputeTimeASweepTakesAtMost1Point2TimesOneOfThem) {
  EXPECT_LE(Streaming(2).sweep_s(), 1.2);
  EXPECT_GE(Streaming(2).sweep_s(), 1.0);
}

TEST(Simulator, ARingOfOneLayerOverlapsLess) {
  EXPECT_GT(Streaming(1).sweep_s(), Streaming(2).sweep_s());
  EXPECT_LT(Streaming(1).sweep_s(), 2.0);
}

TEST(Simulator, TwiceTheDiskRateHalvesADiskBoundSweep) {
  Streaming job(2);
  job.machine.disk_read_bytes_per_s /= 20;
  const double slow_s = job.sweep_s();
  job.machine.disk_read_bytes_per_s *= 2;
  EXPECT_NEAR(job.sweep_s() / slow_s, 0.5, 0.03);
}

TEST(Simulator, CountsWhatAJobTakes) {
  const Streaming job(2);
  const std::vector<RequestLength> requests = {{1, 3, 1}, {1, 4, 1}};
  const Prediction made = simulate(job.model, job.plan, job.needs, job.machine, requests);
  EXPECT_EQ(made.sweeps, 7);  // one row: the requests follow each other
  EXPECT_EQ(made.tokens, 7);
  EXPECT_FALSE(made.extrapolated);
  EXPECT_DOUBLE_EQ(made.tokens_per_s, 7 / made.seconds);
  EXPECT_GT(made.first_sweep_s, 0);
  EXPECT_EQ(made.bottleneck(), Lane::kDiskRead);
}

TEST(Simulator, ExtrapolatesBeyondItsLimit) {
  const Streaming job(2);
  const std::vector<RequestLength> requests(10, {1, 10, 1});
  const double all_s = simulate(job.model, job.plan, job.needs, job.machine, requests).seconds;
  const Prediction part =
      simulate(job.model, job.plan, job.needs, job.machine, requests, {.max_sweeps = 20});
  EXPECT_TRUE(part.extrapolated);
  EXPECT_EQ(part.sweeps, 20);
  EXPECT_NEAR(part.seconds / all_s, 1, 0.05);
}

TEST(Simulator, FinishesEveryJob) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Case made = tests::random_case(seed);
    std::vector<RequestLength> requests;
    for (const tests::Request& request : made.requests)
      requests.push_back({request.prompt_tokens, request.max_new_tokens, request.head_rows});
    const Footprint needs = footprint(made.model, made.plan);
    const Prediction out = simulate(made.model, made.plan, needs, even_machine(), requests);
    ASSERT_FALSE(out.extrapolated) << seed;
    // The lane that samples is never busy for longer than the run lasts.
    ASSERT_LE(out.busy_s[static_cast<size_t>(Lane::kDeviceCompute)], out.simulated_s * 1.000001)
        << seed;
  }
}

// The states that a run recorded give the run's tasks again.
TEST(Simulator, ReplaysTheTasksOfARun) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case made = tests::random_case(seed);
    const Footprint needs = footprint(made.model, made.plan);
    Schedule schedule(made.model, made.plan, needs);
    Driver driver(made.plan, schedule, made.requests);
    Recorder run;
    driver.run(run);
    const std::vector<Task> again = replay(made.model, made.plan, needs, driver.states());
    ASSERT_EQ(again.size(), run.tasks().size()) << seed;
    for (size_t i = 0; i < again.size(); ++i) {
      ASSERT_EQ(tests::describe(again[i]), tests::describe(run.tasks()[i]));
      ASSERT_EQ(again[i].bytes, run.tasks()[i].bytes);
      ASSERT_EQ(again[i].flops, run.tasks()[i].flops);
    }
  }
}

}  // namespace
}  // namespace transload::planner
