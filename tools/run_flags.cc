#include "tools/run_flags.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "tools/command.h"

namespace transload::tools {
namespace {

std::optional<int64_t> bytes_of(const std::string& text, const char* flag) {
  if (text.empty()) return std::nullopt;
  return parse_bytes(text, flag);
}

double rate_of(const std::string& text, const char* flag) {
  if (text.empty()) return 0;
  const int64_t rate = parse_bytes(text, flag);
  if (rate < 1)
    throw Error(Kind::kUsage, std::string(flag) + ": a rate is at least 1 byte a second");
  return static_cast<double>(rate);
}

// "25/50/25" or "100/0": percent on device, host (and disk).
std::optional<layout::Shares> shares_of(const std::string& text, const char* flag, size_t parts) {
  if (text.empty()) return std::nullopt;
  std::vector<double> percent;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    double value = 0;
    const auto [next, status] = std::from_chars(at, end, value);
    if (status != std::errc() || !(value >= 0)) break;
    percent.push_back(value);
    at = next;
    if (at == end || *at != '/') break;
    ++at;
  }
  double sum = 0;
  for (const double value : percent) sum += value;
  const bool counted = percent.size() == parts || (parts == 2 && percent.size() == 3);
  if (at != end || !counted || sum < 99.99 || sum > 100.01)
    throw Error(Kind::kUsage, fmt::format("{}: '{}' is not {} percentages with sum 100, such as {}",
                                          flag, text, parts, parts == 3 ? "25/50/25" : "100/0"));
  layout::Shares shares{percent[0] / sum, percent[1] / sum, 0};
  if (percent.size() == 3) shares.disk = percent[2] / sum;
  return shares;
}

std::optional<int64_t> count_of(int64_t value) {
  return value > 0 ? std::optional<int64_t>(value) : std::nullopt;
}

kernels::Compute compute_of(const std::string& text) {
  for (const kernels::Compute compute : {kernels::Compute::kFloat32, kernels::Compute::kFast})
    if (text == name(compute)) return compute;
  throw Error(Kind::kUsage, "--compute: '" + text + "' is neither float32 nor fast");
}

int64_t kv_bits_of(const std::string& text, kernels::Compute compute) {
  if (text.empty()) return compute == kernels::Compute::kFast ? 16 : 32;
  if (text == "16") return 16;
  if (text == "32") return 32;
  throw Error(Kind::kUsage, "--kv-bits: '" + text + "' is neither 16 nor 32");
}

std::string cache_directory() {
  if (const char* cache = std::getenv("TRANSLOAD_CACHE"); cache != nullptr && *cache != 0)
    return cache;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : ".") + "/.cache/transload";
}

// A plan file fixes rates, reserve and the KV cache's numbers too.
void refuse_beside_plan(const RunFlags& flags) {
  const std::array<std::pair<const char*, const std::string&>, 4> fixed = {
      {{"--kv-bits", flags.kv_bits},
       {"--link-rate", flags.link_rate},
       {"--disk-rate", flags.disk_rate},
       {"--reserve", flags.reserve}}};
  for (const auto& [flag, text] : fixed)
    if (!text.empty())
      throw Error(Kind::kUsage, std::string(flag) + ": --plan fixes it; leave the flag out");
}

void refuse_without_host(const RunFlags& flags) {
  const char* flag = !flags.pinned_memory.empty() ? "--pinned-memory" : "--link-rate";
  if (!flags.pinned_memory.empty() || !flags.link_rate.empty())
    throw Error(Kind::kUsage, std::string(flag) +
                                  ": there is no host tier in this run; give --device-memory, "
                                  "--host-memory or a host share");
}

// Files that are written whole must not take the place of a job.
void refuse_overwriting(const engine::RunOptions& options, const std::string& plan) {
  namespace fs = std::filesystem;
  const auto same = [](const std::string& one, const std::string& other) {
    std::error_code error;
    return fs::equivalent(one, other, error) ||
           fs::weakly_canonical(one, error) == fs::weakly_canonical(other, error);
  };
  const std::array<std::pair<const char*, const std::string&>, 2> written = {
      {{"--trace", options.trace_file}, {"--dump-activations", options.activations_file}}};
  for (const auto& [flag, path] : written) {
    if (path.empty()) continue;
    if (options.dry_run)
      throw Error(Kind::kUsage, std::string(flag) + ": a dry run computes nothing; leave it out");
    for (const std::string& other :
         {options.input, options.output, options.output + ".state", options.model, plan})
      if (!other.empty() && same(path, other))
        throw Error(Kind::kUsage,
                    std::string(flag) + ": would overwrite " + other + "; give another path");
  }
  if (!options.trace_file.empty() && !options.activations_file.empty() &&
      same(options.trace_file, options.activations_file))
    throw Error(Kind::kUsage, "--trace: is the file of --dump-activations too; give another path");
}

void add_budgets(CLI::App& command, RunFlags& flags) {
  const std::string budgets =
      "Budgets (64MiB, 2GB or plain bytes; a device or host budget emulates "
      "a small device)";
  command.add_option("--device-memory", flags.device_memory, "Bytes of the device tier")
      ->group(budgets);
  command.add_option("--host-memory", flags.host_memory, "Bytes of the host tier")->group(budgets);
  command.add_option("--disk-memory", flags.disk_memory, "Bytes of the spill file")->group(budgets);
  command
      .add_option("--disk-dir", flags.options.tiers.disk_directory,
                  "Where the spill file goes (unlinked once open)")
      ->default_str("$TRANSLOAD_CACHE/spill")
      ->group(budgets);
  command.add_option("--reserve", flags.reserve, "Free memory to leave alone")->group(budgets);
  command
      .add_option("--pinned-memory", flags.pinned_memory,
                  "Most host memory to page-lock; left out: what the system permits")
      ->group(budgets);
}

void add_placement(CLI::App& command, RunFlags& flags) {
  const std::string placing = "Placement (percent on device/host/disk; left out: chosen)";
  command.add_option("--weights", flags.weights, "As 25/50/25, by rows of each matrix")
      ->group(placing);
  command.add_option("--kv", flags.kv, "As 0/100/0, by KV blocks")->group(placing);
  command.add_option("--activations", flags.activations, "As 100/0, by rows; never on disk")
      ->group(placing);
  command
      .add_option("--attention", flags.attention,
                  "device or host: where attention over host and disk KV runs")
      ->group(placing);
  command.add_option("--batch-size", flags.batch_size, "Sequences computed at once")
      ->check(at_least_one())
      ->group(placing);
  command
      .add_option("--num-batches", flags.num_batches, "Batches that share a sweep over the weights")
      ->check(at_least_one())
      ->group(placing);
  command
      .add_option("--prefill-tokens", flags.prefill_tokens,
                  "Prompt tokens that a batch may admit in one sweep")
      ->check(at_least_one())
      ->group(placing);
  command.add_option("--plan", flags.plan, "Run this plan (JSON, as --dry-run --json prints it)")
      ->group(placing);
}

planner::Wishes read_wishes(const RunFlags& flags, kernels::Compute compute) {
  planner::Wishes wishes = flags.options.wishes;
  wishes.budget_bytes = {bytes_of(flags.device_memory, "--device-memory"),
                         bytes_of(flags.host_memory, "--host-memory"),
                         bytes_of(flags.disk_memory, "--disk-memory")};
  wishes.reserve_bytes = bytes_of(flags.reserve, "--reserve").value_or(0);
  wishes.weights = shares_of(flags.weights, "--weights", 3);
  wishes.kv = shares_of(flags.kv, "--kv", 3);
  wishes.kv_bits = kv_bits_of(flags.kv_bits, compute);
  wishes.activations = shares_of(flags.activations, "--activations", 2);
  if (!flags.attention.empty()) {
    if (flags.attention != "device" && flags.attention != "host")
      throw Error(Kind::kUsage,
                  "--attention: '" + flags.attention + "' is neither device nor host");
    wishes.attention =
        flags.attention == "host" ? planner::AttentionSite::kHost : planner::AttentionSite::kDevice;
  }
  wishes.batch_size = count_of(flags.batch_size);
  wishes.num_batches = count_of(flags.num_batches);
  wishes.prefill_tokens = count_of(flags.prefill_tokens);
  wishes.threads = flags.threads > 0
                       ? flags.threads
                       : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  wishes.link_bytes_per_s = rate_of(flags.link_rate, "--link-rate");
  wishes.disk_bytes_per_s = rate_of(flags.disk_rate, "--disk-rate");
  return wishes;
}

}  // namespace

void add_run_flags(CLI::App& command, RunFlags& flags) {
  engine::RunOptions& o = flags.options;
  command.add_option("--model", o.model, "A folder with safetensors, or a .gguf file")->required();
  command.add_option("--input", o.input, "JSON lines; - is standard input")->required();
  command
      .add_option("--output", o.output,
                  "JSON lines; - is standard output. An output that is there is resumed")
      ->required();
  command.add_option("--device", flags.device, "cpu")->capture_default_str();
  command
      .add_option("--compute", flags.compute,
                  "float32, or fast: 4-bit, 8-bit and 16-bit weights multiplied as stored")
      ->capture_default_str();
  command.add_option("--kv-bits", flags.kv_bits,
                     "16 or 32 bits a number in the KV cache; left out: 16 with --compute fast, 32 "
                     "with float32");
  add_budgets(command, flags);
  add_placement(command, flags);
  command.add_option("--threads", flags.threads, "Compute threads; left out: the cores at hand")
      ->check(at_least_one());
  command.add_option("--link-rate", flags.link_rate, "Emulated host-device rate, bytes/s each way");
  command.add_option("--disk-rate", flags.disk_rate, "Emulated disk rate, bytes/s");
  command.add_option("--trace", o.trace_file, "Write a Chrome trace of the run, a row a lane");
  command.add_option("--dump-activations", o.activations_file,
                     "Write norms and hashes of hidden rows after each layer (JSON lines)");
  command.add_flag("--json", o.json, "Summary (or plan) as JSON on standard output");
}

engine::RunOptions read_run_flags(const RunFlags& flags) {
  engine::RunOptions options = flags.options;
  if (flags.device != "cpu")
    throw Error(Kind::kUnsupported, "--device: '" + flags.device + "' is not there; use cpu");
  options.compute = compute_of(flags.compute);
  options.tiers.pinned_bytes = bytes_of(flags.pinned_memory, "--pinned-memory").value_or(-1);
  options.wishes = read_wishes(flags, options.compute);
  if (!flags.plan.empty()) {
    refuse_beside_plan(flags);
    options.plan = engine::read_plan(flags.plan);
  } else if (!planner::wants_two_tiers(options.wishes)) {
    refuse_without_host(flags);
  }
  refuse_overwriting(options, flags.plan);
  if (options.tiers.disk_directory.empty()) options.tiers.disk_directory = spill_directory();
  if (const char* forced = std::getenv("TRANSLOAD_CPU"); forced != nullptr)
    options.instructions = forced;
  return options;
}

std::string spill_directory() { return cache_directory() + "/spill"; }

int status_of(engine::Outcome outcome) {
  switch (outcome) {
    case engine::Outcome::kDone:
      return 0;
    case engine::Outcome::kPartial:
      return kPartial;
    case engine::Outcome::kInterrupted:
      return engine::kInterruptedStatus;
  }
  return kPartial;
}

}  // namespace transload::tools
