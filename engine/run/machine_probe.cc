#include "engine/run/machine_probe.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "kernels/backend.h"
#include "offload/disk.h"
#include "offload/region.h"

namespace transload::engine {
namespace {

constexpr double kProbeSeconds = 0.03;  // of each rate, at least one round
constexpr int64_t kCopyBytes = 16 * kMiB;
constexpr int64_t kReadBytes = 32 * kMiB;
constexpr int64_t kManyRows = 64;
constexpr double kTaskSeconds = 2e-5;  // handing a task to a lane's thread and back

// Rounds of `work` a second.
template <class Work>
double rate(Work work) {
  using Clock = std::chrono::steady_clock;
  work();
  const Clock::time_point start = Clock::now();
  int64_t rounds = 0;
  double seconds = 0;
  do {
    work();
    ++rounds;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  } while (seconds < kProbeSeconds);
  return static_cast<double>(rounds) / seconds;
}

double copy_rate() {
  std::vector<char> from(kCopyBytes, 1);
  std::vector<char> to(kCopyBytes, 2);
  return static_cast<double>(kCopyBytes) *
         rate([&] { std::memcpy(to.data(), from.data(), from.size()); });
}

double read_rate(const std::string& path) {
  const offload::File file = offload::File::open_read(path, true);
  const int64_t bytes =
      std::max(kPageBytes, round_down(std::min(file.bytes(), kReadBytes), kPageBytes));
  offload::Region memory("probe", bytes, 0);
  const auto lane = offload::make_disk_lane({});
  lane->add_file(file.descriptor(), file.bytes(), file.name(), file.direct());
  const offload::DiskRequest request{0, 0, bytes, memory.data()};
  return static_cast<double>(bytes) * rate([&] {
           lane->submit({&request, 1}, false, 0);
           lane->finish();
         });
}

// The format that most of the model's bytes are in.
const layout::Weight& common_weight(const layout::Model& model) {
  std::map<quant::Format, int64_t> bytes;
  const layout::Weight* best = nullptr;
  for (const layout::Weight& weight : model.weights)
    if (weight.layer >= 0 && is_matrix(weight.role)) bytes[weight.format] += weight.extent.bytes;
  for (const layout::Weight& weight : model.weights)
    if (weight.layer >= 0 && is_matrix(weight.role) &&
        (best == nullptr || bytes[weight.format] > bytes[best->format]))
      best = &weight;
  return *best;
}

void probe_compute(const layout::Model& model, int threads, const std::string& instructions,
                   planner::Machine& machine) {
  const layout::Weight& weight = common_weight(model);
  const int64_t rows = std::max<int64_t>(64, 4 * kMiB / weight.row_bytes());
  const std::vector<std::byte> data(static_cast<size_t>(rows * weight.row_bytes()));
  const std::vector<float> x(static_cast<size_t>(kManyRows * weight.cols), 0.5F);
  std::vector<float> y(static_cast<size_t>(kManyRows * rows));
  const auto backend = kernels::make_cpu_backend(
      {.threads = threads, .max_cols = weight.cols, .instructions = instructions});
  const kernels::WeightSlice slice{data.data(), weight.format, 0, rows, weight.cols};
  const auto multiply = [&](int64_t m) {
    backend->matmul({.x = x.data(),
                     .ld_x = weight.cols,
                     .m = m,
                     .slices = {&slice, 1},
                     .bias = nullptr,
                     .y = y.data(),
                     .ld_y = rows});
  };
  const double one = 1 / rate([&] { multiply(1); });
  const double many = 1 / rate([&] { multiply(kManyRows); });
  machine.compute_bytes_per_s = static_cast<double>(data.size()) / one;
  machine.compute_flops_per_s =
      2.0 * static_cast<double>((kManyRows - 1) * rows * weight.cols) / std::max(many - one, 1e-9);
}

int64_t number_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word)
    if (key.empty() || word == key) {
      int64_t value = 0;
      if (key.empty()) return std::strtoll(word.c_str(), nullptr, 10);
      return file >> value ? value : 0;
    }
  return 0;
}

}  // namespace

planner::Machine probe_machine(const layout::Model& model, int threads,
                               const std::string& instructions) {
  planner::Machine machine;
  machine.link_bytes_per_s = copy_rate();
  machine.disk_read_bytes_per_s = read_rate(model.files.front());
  machine.disk_write_bytes_per_s = machine.disk_read_bytes_per_s;
  machine.task_s = kTaskSeconds;
  probe_compute(model, threads, instructions, machine);
  return machine;
}

planner::FreeBytes probe_free(const std::string& directory) {
  planner::FreeBytes free;
  free.memory = number_in("/proc/meminfo", "MemAvailable:") * kKiB;
  const int64_t group_limit = number_in("/sys/fs/cgroup/memory.max", "");
  if (group_limit > 0)
    free.memory =
        std::min(free.memory, group_limit - number_in("/sys/fs/cgroup/memory.current", ""));
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path place = fs::absolute(directory, error);
  while (!place.empty() && !fs::exists(place, error) && place != place.root_path())
    place = place.parent_path();
  struct statvfs space {};
  if (statvfs(place.c_str(), &space) == 0)
    free.disk = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  return free;
}

}  // namespace transload::engine
