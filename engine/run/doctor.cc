#include "engine/run/doctor.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/chat/chat_renderer.h"
#include "engine/run/library_versions.h"
#include "engine/run/machine_probe.h"
#include "engine/run/selftest.h"
#include "kernels/backend.h"
#include "kernels/cpu/instructions.h"
#include "offload/disk.h"
#include "offload/region.h"

namespace transload::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDiskBytes = 64 * kMiB;  // written and read for the rates
constexpr double kProbeSeconds = 0.2;      // of each rate, at least one round

// The first value of `key` in a file of "key : value" lines.
std::string line_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// Of the processor's flags those that kernels are made for.
std::vector<std::string> features() {
  constexpr std::string_view kUseful[] = {
      "sse4_1",      "avx2",        "fma",         "f16c",     "avx_vnni", "avx512f", "avx512bw",
      "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"};
  std::istringstream flags(line_of("/proc/cpuinfo", "flags"));
  std::vector<std::string> found;
  for (std::string flag; flags >> flag;) {
    if (std::find(std::begin(kUseful), std::end(kUseful), flag) != std::end(kUseful))
      found.push_back(flag);
  }
  return found;
}

Json examine_cpu(const DoctorOptions& options) {
  Json sets = Json::array();
  for (const auto set : kernels::cpu::available_instructions())
    sets.push_back(kernels::cpu::name(set));
  const auto backend = kernels::make_cpu_backend(
      {.max_cols = 1, .instructions = options.instructions, .compute = kernels::Compute::kFast});
  Json products;
  for (int i = 0; i < quant::kFormats; ++i) {
    const auto format = static_cast<quant::Format>(i);
    const kernels::Product product = backend->product(format);
    products[std::string(quant::name(format))] =
        fmt::format("{} by {}", product.numbers, product.instructions);
  }
  return {{"processor", line_of("/proc/cpuinfo", "model name")},
          {"cores", std::thread::hardware_concurrency()},
          {"features", features()},
          {"instruction_sets", sets},
          {"kernels", fmt::format("{}, {} threads", backend->description(), options.threads)},
          {"products", products}};
}

Json examine_memory(const DoctorOptions& options) {
  const int64_t free = probe_free(options.disk_directory).memory;
  const std::optional<int64_t> limit = offload::lock_limit_bytes();
  return {{"free_bytes", free},
          {"pinnable_bytes", offload::lockable_bytes(free)},
          {"pin_limit_bytes", limit ? Json(*limit) : Json("unlimited")}};
}

// Bytes per second of whole passes over the file.
double disk_rate(offload::DiskLane& lane, int32_t file, offload::Region& memory, bool write) {
  constexpr int64_t kRequestBytes = 4 * kMiB;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double seconds = 0;
  int64_t bytes = 0;
  do {
    std::vector<offload::DiskRequest> requests;
    for (int64_t at = 0; at < kDiskBytes; at += kRequestBytes)
      requests.push_back({file, at, kRequestBytes, memory.data() + at});
    lane.submit(requests, write, 0);
    lane.finish();
    bytes += kDiskBytes;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  } while (seconds < kProbeSeconds);
  return static_cast<double>(bytes) / seconds;
}

void measure_disk(const std::string& directory, Json& disk) {
  try {
    const offload::File file = offload::File::create_spill(directory, kDiskBytes);
    offload::Region memory("probe", kDiskBytes, 0);
    const auto lane = offload::make_disk_lane({});
    const int32_t number =
        lane->add_file(file.descriptor(), file.bytes(), file.name(), file.direct());
    lane->register_memory(memory.data(), memory.bytes());
    disk["engine"] = lane->description();
    disk["direct"] = file.direct();
    disk["write_bytes_per_s"] = disk_rate(*lane, number, memory, true);
    disk["read_bytes_per_s"] = disk_rate(*lane, number, memory, false);
  } catch (const Error& error) {
    disk["reason"] = error.what();
  }
}

Json examine_disk(const DoctorOptions& options) {
  Json engines = Json::array();
  for (const offload::EngineProbe& probe : offload::probe_disk_engines())
    engines.push_back({{"engine", probe.engine},
                       {"works", probe.works},
                       {"reason", probe.works ? "a read through it works" : probe.reason}});
  Json disk{{"directory", options.disk_directory},
            {"free_bytes", probe_free(options.disk_directory).disk},
            {"engines", engines}};
  measure_disk(options.disk_directory, disk);
  return disk;
}

Json examine_chat() {
  ChatRenderer renderer({"x", "", nlohmann::json::object()}, chat_now());
  const ChatRenderer::Result result = renderer.render("[]");
  return {{"works", result.error.empty()},
          {"reason", result.error.empty() ? renderer.description() : result.error}};
}

Json versions() {
  utsname system{};
  ::uname(&system);
  return {{"system", fmt::format("{} {}", system.sysname, system.release)},
          {"compiler", __VERSION__},
          {"libraries", library_versions()}};
}

Json selftest(const DoctorOptions& options) {
  Json results = Json::array();
  try {
    for (const SelftestResult& result : run_selftest(options.disk_directory, options.threads))
      results.push_back(
          {{"fault", result.fault}, {"passed", result.passed}, {"what", result.what}});
  } catch (const Error& error) {
    results.push_back({{"fault", "none"}, {"passed", false}, {"what", error.what()}});
  }
  return results;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string joined(const Json& list) {
  std::string text;
  for (const Json& item : list) text += (text.empty() ? "" : " ") + text_of(item);
  return text.empty() ? "none" : text;
}

// "a 1, b 2"; lists of names are left out.
std::string named(const Json& versions) {
  std::string text;
  for (const auto& [name, version] : versions.items())
    if (version.is_string())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, text_of(version));
  return text;
}

std::string bytes_of(const Json& value) { return format_bytes(value.get<int64_t>()); }
std::string rate_of(const Json& value) {
  return format_bytes(static_cast<int64_t>(value.get<double>())) + "/s";
}

std::string pin_limit_text(const Json& memory) {
  const Json& limit = memory["pin_limit_bytes"];
  if (!limit.is_number()) return text_of(limit);
  const bool passed = memory["pinnable_bytes"] > round_up(limit.get<int64_t>(), kPageBytes);
  return bytes_of(limit) + (passed ? ", which this process may pass" : "");
}

std::string disk_text(const Json& disk) {
  std::string text = fmt::format("disk      {}, {} free\n", text_of(disk["directory"]),
                                 bytes_of(disk["free_bytes"]));
  for (const Json& engine : disk["engines"])
    text += fmt::format("          {}: {} ({})\n", text_of(engine["engine"]),
                        engine["works"].get<bool>() ? "works" : "does not work",
                        text_of(engine["reason"]));
  if (disk.contains("reason")) return text + "          " + text_of(disk["reason"]) + "\n";
  return text + fmt::format("          chosen: {}\n          writes {}, reads {}{}\n",
                            text_of(disk["engine"]), rate_of(disk["write_bytes_per_s"]),
                            rate_of(disk["read_bytes_per_s"]),
                            disk["direct"].get<bool>() ? "" : " (through the page cache)");
}

}  // namespace

nlohmann::ordered_json examine(const DoctorOptions& options) {
  Json report;
  report["cpu"] = examine_cpu(options);
  report["memory"] = examine_memory(options);
  report["disk"] = examine_disk(options);
  report["chat"] = examine_chat();
  report["versions"] = versions();
  if (options.selftest) report["selftest"] = selftest(options);
  return report;
}

// A line for each product, with the formats that it multiplies.
std::string products_text(const Json& products) {
  std::map<std::string, std::string> formats;
  for (const auto& [format, product] : products.items()) formats[text_of(product)] += " " + format;
  std::string text;
  for (const auto& [product, names] : formats)
    text += fmt::format("          products in {}:{}\n", product, names);
  return text;
}

std::string doctor_text(const nlohmann::ordered_json& report) {
  const Json &cpu = report["cpu"], &memory = report["memory"], &chat = report["chat"];
  std::string text = fmt::format(
      "cpu       {}, {} cores\n          features: {}\n          kernels: {} (of: {})\n{}"
      "memory    {} free, {} of it can be page-locked; limit (ulimit -l) {}\n",
      text_of(cpu["processor"]), text_of(cpu["cores"]), joined(cpu["features"]),
      text_of(cpu["kernels"]), joined(cpu["instruction_sets"]), products_text(cpu["products"]),
      bytes_of(memory["free_bytes"]), bytes_of(memory["pinnable_bytes"]), pin_limit_text(memory));
  text += disk_text(report["disk"]);
  text += fmt::format("chat      {}: {}\n", chat["works"].get<bool>() ? "works" : "does not work",
                      text_of(chat["reason"]));
  text += fmt::format("versions  {}\n          libraries: {}\n", named(report["versions"]),
                      named(report["versions"]["libraries"]));
  if (!report.contains("selftest")) return text;
  for (const Json& result : report["selftest"])
    text += fmt::format("selftest  {} {}: {}\n", result["passed"].get<bool>() ? "passed" : "FAILED",
                        text_of(result["fault"]), text_of(result["what"]));
  return text;
}

bool is_healthy(const nlohmann::ordered_json& report) {
  const auto any_works = [](const Json& engine) { return engine["works"].get<bool>(); };
  const auto passed = [](const Json& result) { return result["passed"].get<bool>(); };
  const Json& engines = report["disk"]["engines"];
  if (std::none_of(engines.begin(), engines.end(), any_works)) return false;
  if (report["disk"].contains("reason")) return false;
  return !report.contains("selftest") ||
         std::all_of(report["selftest"].begin(), report["selftest"].end(), passed);
}

}  // namespace transload::engine
