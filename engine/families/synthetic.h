// Checkpoints of random weights, for tests and benchmarks: the sizes of a real model and a sound
// (finite, not degenerate) forward pass, but no meaning.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "quant/format.h"

namespace transload::engine {

struct SyntheticModel {
  std::string family;  // "opt", "llama", "gpt_neox"
  int64_t hidden = 0, layers = 0, heads = 0, ffn = 0, vocab = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t max_positions = 2048;
  int64_t shards = 1;
  uint64_t seed = 0;
  quant::Format format = quant::Format::kF16;  // kF32, kF16 or kBF16
};

// The config.json of such a model. Errors: kUsage for sizes that make no model.
nlohmann::json synthetic_config(const SyntheticModel& model);

// Writes config.json, generation_config.json and the weights into `folder`, which is made if need
// be and must be empty. The same model and seed give the same bytes, whatever the shards.
// Matrices are uniform with variance 1 / inputs (those that end a residual branch a 2 * layers-th
// of it), norms 1, biases within 0.1. Memory: a few MiB. Returns the bytes of the weights' files.
// Errors: kUsage for a folder that is not empty, and as synthetic_config; kIo naming a file.
int64_t write_synthetic(const SyntheticModel& model, const std::string& folder);

}  // namespace transload::engine
