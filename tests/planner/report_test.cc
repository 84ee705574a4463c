#include "planner/report.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "planner/trace.h"
#include "tests/planner/allocations.h"
#include "tests/planner/models.h"

namespace transload::planner {
namespace {

using testing::HasSubstr;

struct Made {
  layout::Model model = tests::make_model({});
  Plan plan;
  Footprint needs;
  Prediction prediction;

  Made() {
    plan.single_tier = false;
    plan.weights = {0.25, 0.5, 0.25};
    plan.kv = {0, 1, 0};
    plan.batch_size = 3;
    plan.num_batches = 4;
    plan.prefill_tokens = 20;
    plan.chunk_tokens = 16;
    plan.max_tokens = 50;
    plan.piece_bytes = 1 << 14;
    plan = tests::fitted(model, plan, 12, {});
    needs = footprint(model, plan);
    prediction.decode_sweep_s = 0.125;
    prediction.tokens_per_s = 96;
    prediction.simulated_s = 10;
    prediction.busy_s = {9, 1, 3, 0, 5, 0};
    prediction.bytes = {900, 100, 0, 0, 0, 0};
  }
};

TEST(Report, ExplainsAPlacementInAFewLines) {
  const Made made;
  const std::string text = placement_text(made.plan, made.needs, made.prediction);
  EXPECT_THAT(text, HasSubstr("weights 25/50/25, KV cache 0/100/0, activations 100/0/0\n"));
  EXPECT_THAT(text, HasSubstr("\nKV cache: float32\n"));
  EXPECT_THAT(text, HasSubstr("batch size 3, number of batches 4, effective batch 12\n"));
  EXPECT_THAT(text, HasSubstr("predicted: 0.125 s a decode sweep, 96 tokens/s\n"));
  EXPECT_THAT(text,
              HasSubstr("predicted: disk-bound: the disk_read lane is busy 90 % of the time"));
  EXPECT_THAT(text, HasSubstr("\nprocess: "));
  EXPECT_THAT(text, HasSubstr("\ndevice: "));
  EXPECT_THAT(text, HasSubstr("\nhost: "));
  EXPECT_THAT(text, Not(HasSubstr("\ndisk: ")));  // only KV blocks are bytes of the disk tier
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(Report, NamesTheFormatOfKeysAndValuesAlsoWhereNoneAreKept) {
  Plan plan;
  plan.kv_bits = 16;
  EXPECT_EQ(kv_text(plan), "float16");
  plan.work = Work::kScore;
  EXPECT_EQ(kv_text(plan), "none (K and V in float16)");
}

TEST(Report, NamesEachBottleneck) {
  Prediction prediction;
  prediction.simulated_s = 1;
  const auto sentence = [&](Lane lane) {
    prediction.busy_s = {};
    prediction.busy_s[static_cast<size_t>(lane)] = 0.5;
    return bottleneck_sentence(prediction);
  };
  EXPECT_EQ(sentence(Lane::kDiskWrite), "disk-bound: the disk_write lane is busy 50 % of the time");
  EXPECT_THAT(sentence(Lane::kHostToDevice), testing::StartsWith("link-bound: the host_to_device"));
  EXPECT_THAT(sentence(Lane::kDeviceCompute),
              testing::StartsWith("compute-bound: the device_comp"));
}

TEST(Report, JsonHasThePlanTheBytesAndThePrediction) {
  const Made made;
  const nlohmann::json json = placement_json(made.plan, made.needs, made.prediction);
  EXPECT_EQ(to_json(plan_from_json(json["plan"])), to_json(made.plan));
  EXPECT_EQ(json["batch"]["effective_batch"], 12);
  EXPECT_EQ(json["memory"]["device"]["bytes"], made.needs.bytes[0]);
  EXPECT_EQ(json["memory"]["process_bytes"], made.needs.process_bytes);
  EXPECT_EQ(json["memory"]["host"]["parts"]["weights"], made.needs.host.resident.bytes);
  EXPECT_EQ(json["predicted"]["lanes"]["disk_read"]["bytes"], 900);
  EXPECT_DOUBLE_EQ(json["predicted"]["lanes"]["host_to_device"]["busy_share"], 0.3);
}

// The parts that are listed are all there is, but for what aligns them.
TEST(Report, PartsAddUpToTheTier) {
  const Made made;
  std::map<std::string_view, int64_t> sum;
  for (const Line& line : made.needs.lines()) sum[line.tier] += line.bytes;
  EXPECT_NEAR(static_cast<double>(sum["device"]), static_cast<double>(made.needs.bytes[0]), 40000);
  EXPECT_NEAR(static_cast<double>(sum["host"]), static_cast<double>(made.needs.bytes[1]), 40000);
}

TEST(Trace, HasARowALaneAndAnEventATask) {
  const std::string path = testing::TempDir() + "/planner-trace.json";
  Task task;
  task.lane = Lane::kHostToDevice;
  task.kind = TaskKind::kCopyPiece;
  task.id = 7;
  task.sweep = 2;
  task.layer = 3;
  task.batch = -1;
  task.bytes = 4096;
  {
    TraceWriter writer(path, "predicted");
    writer.add(task, 0.5, 0.75);
    writer.finish();
  }
  std::ifstream file(path);
  const nlohmann::json events = nlohmann::json::parse(file);
  ASSERT_EQ(events.size(), 1 + kLanes + 1);
  EXPECT_EQ(events[0]["args"]["name"], "predicted");
  EXPECT_EQ(events[3]["args"]["name"], "host_to_device");
  const nlohmann::json& event = events.back();
  EXPECT_EQ(event["name"], "copy_piece");
  EXPECT_EQ(event["tid"], events[3]["tid"]);
  EXPECT_DOUBLE_EQ(event["ts"], 500000);
  EXPECT_DOUBLE_EQ(event["dur"], 250000);
  EXPECT_EQ(event["args"]["bytes"], 4096);
  EXPECT_EQ(event["args"]["layer"], 3);
  std::remove(path.c_str());
}

TEST(Trace, WritesWithoutGrowing) {
  TraceWriter writer("/dev/null", "run");
  Task task;
  writer.add(task, 0, 1);
  writer.add(task, 1000, 1001);
  const int64_t before = tests::allocations();
  for (int i = 0; i < 1000; ++i) writer.add(task, 1, 2);
  EXPECT_EQ(tests::allocations(), before);
}

TEST(Trace, NamesAFileThatCannotBeWritten) {
  try {
    TraceWriter writer(testing::TempDir() + "/no such folder/trace.json", "run");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kIo);
    EXPECT_THAT(error.what(), HasSubstr("/no such folder/trace.json"));
  }
  TraceWriter full("/dev/full", "run");
  EXPECT_THROW(full.finish(), Error);
}

}  // namespace
}  // namespace transload::planner
