// Flags that `generate` and `score` share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine/run/generate.h"

namespace transload::tools {

// The flags as they were typed.
struct RunFlags {
  engine::RunOptions options;
  std::string device = "cpu";
  std::string compute = "fast";
  std::string kv_bits;
  std::string plan;
  std::string device_memory, host_memory, disk_memory, reserve, pinned_memory;
  std::string weights, kv, activations, attention;
  std::string link_rate, disk_rate;
  int64_t batch_size = 0;
  int64_t num_batches = 0;
  int64_t prefill_tokens = 0;
  int threads = 0;
};

void add_run_flags(CLI::App& command, RunFlags& flags);
// Errors: kUsage naming the flag, the value and what it may be.
engine::RunOptions read_run_flags(const RunFlags& flags);
// Where the disk tier lies without --disk-dir.
std::string spill_directory();
int status_of(engine::Outcome outcome);

}  // namespace transload::tools
