// A placement explained: in a few lines, and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "planner/footprint.h"
#include "planner/plan.h"
#include "planner/simulator.h"

namespace transload::planner {

// "disk-bound", "link-bound", "compute-bound", and by what: one sentence.
std::string bottleneck_sentence(const Prediction& prediction);

// Format of the KV cache's numbers: "float32", "float16"; said too where nothing is kept of them.
std::string kv_text(const Plan& plan);

// Says that staging is smaller than the largest layer that comes from the disk; else empty.
std::string staging_sentence(const Plan& plan, const Footprint& needs);

// Lines, each ended: where weights, KV cache and activations lie; each tier's bytes against its
// budget; batch size, number of batches and effective batch; what is predicted; what limits it;
// what the process takes besides the tiers.
std::string placement_text(const Plan& plan, const Footprint& needs, const Prediction& prediction);

// {"plan", "memory": {tier: {"bytes", "budget_bytes", "parts": {name: bytes}}, "process_bytes"},
//  "batch": {"batch_size", "num_batches", "effective_batch"},
//  "predicted": {"tokens_per_s", "first_sweep_s", "decode_sweep_s", "seconds", "bottleneck",
//                "staging_limit", "lanes": {lane: {"busy_share", "bytes"}}}}
nlohmann::json placement_json(const Plan& plan, const Footprint& needs,
                              const Prediction& prediction);

}  // namespace transload::planner
