#include "planner/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "layout/kv_table.h"

namespace transload::planner {

using layout::Shares;
using layout::Tier;

namespace {

std::string percent(const Shares& shares) {
  return fmt::format("{:.4g}/{:.4g}/{:.4g}", 100 * shares.device, 100 * shares.host,
                     100 * shares.disk);
}

double busy_share(const Prediction& prediction, Lane lane) {
  if (prediction.simulated_s <= 0) return 0;
  return std::min(1.0, prediction.busy_s[static_cast<size_t>(lane)] / prediction.simulated_s);
}

std::string_view bound(Lane lane) {
  switch (lane) {
    case Lane::kDiskRead:
    case Lane::kDiskWrite:
      return "disk-bound";
    case Lane::kHostToDevice:
    case Lane::kDeviceToHost:
      return "link-bound";
    case Lane::kDeviceCompute:
    case Lane::kHostCompute:
      break;
  }
  return "compute-bound";
}

// "weights 96.6 MB, KV cache 10.0 MB" of a tier.
std::string parts(const Footprint& needs, std::string_view tier) {
  std::string text;
  for (const Line& line : needs.lines()) {
    if (line.tier != tier) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", line.name, format_bytes(line.bytes));
  }
  return text;
}

}  // namespace

std::string bottleneck_sentence(const Prediction& prediction) {
  const Lane lane = prediction.bottleneck();
  return fmt::format("{}: the {} lane is busy {:.0f} % of the time", bound(lane), name(lane),
                     100 * busy_share(prediction, lane));
}

std::string kv_text(const Plan& plan) {
  const std::string format(layout::kv_format_name(plan.kv_bits));
  return plan.keeps_kv() ? format : "none (K and V in " + format + ")";
}

std::string staging_sentence(const Plan& plan, const Footprint& needs) {
  const bool from_disk = plan.staging_bytes > 0 && needs.slices.bytes[2] > 0;
  if (!from_disk || plan.staging_bytes >= needs.largest_stage_bytes) return {};
  return fmt::format(
      "limit: staging of {} holds less than the largest layer ({}), so disk and link wait for each "
      "other within a layer",
      format_bytes(plan.staging_bytes), format_bytes(needs.largest_stage_bytes));
}

std::string placement_text(const Plan& plan, const Footprint& needs, const Prediction& prediction) {
  std::string text =
      fmt::format("placement (percent on {}): weights {}, KV cache {}, activations {}\n",
                  "device/host/disk", percent(plan.weights),
                  plan.keeps_kv() ? percent(plan.kv) : "none", percent(plan.activations));
  text += "KV cache: " + kv_text(plan) + "\n";
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const auto t = static_cast<size_t>(tier);
    if (needs.bytes[t] == 0) continue;
    text += fmt::format("{}: {} of {}: {}\n", name(tier), format_bytes(needs.bytes[t]),
                        format_bytes(plan.budget_bytes[t]), parts(needs, name(tier)));
    if (tier == Tier::kHost && needs.pinned_bytes >= 0)
      text += fmt::format("host: {} of it page-locked\n", format_bytes(needs.pinned_bytes));
  }
  text += fmt::format("process: {} besides the tiers\n", format_bytes(needs.process_bytes));
  text += fmt::format("batch size {}, number of batches {}, effective batch {}\n", plan.batch_size,
                      plan.num_batches, plan.row_slots());
  text += fmt::format("predicted: {:.3g} s a decode sweep, {:.3g} tokens/s\n",
                      prediction.decode_sweep_s, prediction.tokens_per_s);
  text += "predicted: " + bottleneck_sentence(prediction) + "\n";
  const std::string limit = staging_sentence(plan, needs);
  return limit.empty() ? text : text + limit + "\n";
}

nlohmann::json placement_json(const Plan& plan, const Footprint& needs,
                              const Prediction& prediction) {
  nlohmann::json memory = {{"process_bytes", needs.process_bytes}};
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const auto t = static_cast<size_t>(tier);
    nlohmann::json& entry = memory[std::string(name(tier))];
    entry = {{"bytes", needs.bytes[t]},
             {"budget_bytes", plan.budget_bytes[t]},
             {"parts", nlohmann::json::object()}};
    for (const Line& line : needs.lines())
      if (line.tier == name(tier)) entry["parts"][std::string(line.name)] = line.bytes;
  }
  if (needs.pinned_bytes >= 0) memory["host"]["pinned_bytes"] = needs.pinned_bytes;
  nlohmann::json lanes = nlohmann::json::object();
  for (size_t l = 0; l < kLanes; ++l) {
    const auto lane = static_cast<Lane>(l);
    lanes[std::string(name(lane))] = {{"busy_share", busy_share(prediction, lane)},
                                      {"bytes", prediction.bytes[l]}};
  }
  return {{"plan", to_json(plan)},
          {"memory", memory},
          {"batch",
           {{"batch_size", plan.batch_size},
            {"num_batches", plan.num_batches},
            {"effective_batch", plan.row_slots()}}},
          {"predicted",
           {{"tokens_per_s", prediction.tokens_per_s},
            {"first_sweep_s", prediction.first_sweep_s},
            {"decode_sweep_s", prediction.decode_sweep_s},
            {"seconds", prediction.seconds},
            {"bottleneck", bottleneck_sentence(prediction)},
            {"staging_limit", staging_sentence(plan, needs)},
            {"lanes", lanes}}}};
}

}  // namespace transload::planner
