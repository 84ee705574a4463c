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

#include "base/check.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "offload/disk.h"
#include "offload/region.h"

namespace transload::engine {
namespace {

constexpr double kProbeSeconds = 0.03;  // of each rate, at least one round
constexpr int64_t kReadBytes = kMiB;
constexpr int64_t kReadsAhead = 8;
constexpr int64_t kManyRows = 64;
constexpr int64_t kFloat = sizeof(float);
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

double copy_rate(const offload::Region& memory) {
  const int64_t half = memory.bytes() / 2;
  std::memset(memory.data(), 1, static_cast<size_t>(memory.bytes()));
  return static_cast<double>(half) *
         rate([&] { std::memcpy(memory.data() + half, memory.data(), static_cast<size_t>(half)); });
}

// Reads through the file, with as many requests in flight as the memory holds.
double read_rate(const std::string& path, const offload::Region& memory) {
  const offload::File file = offload::File::open_read(path, true);
  const int64_t bytes =
      std::max(kPageBytes, round_down(std::min(file.bytes(), kReadBytes), kPageBytes));
  const int64_t places = memory.bytes() / bytes;
  const int64_t parts = std::max<int64_t>(1, file.bytes() / bytes);
  const auto lane = offload::make_disk_lane({});
  lane->add_file(file.descriptor(), file.bytes(), file.name(), file.direct());
  int64_t part = 0;
  const auto submit = [&] {
    const offload::DiskRequest request{0, part % parts * bytes, bytes,
                                       memory.data() + part % places * bytes};
    lane->submit({&request, 1}, false, 0);
    ++part;
  };
  while (part < std::min(places, kReadsAhead)) submit();
  const double rounds = rate([&] {
    lane->finish();
    submit();
  });
  while (lane->open_transfers() > 0) lane->finish();
  return static_cast<double>(bytes) * rounds;
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
  check(best != nullptr, "layers have matrices");
  return *best;
}

void probe_compute(const layout::Model& model, kernels::CpuOptions cpu,
                   const offload::Region& memory, planner::Machine& machine) {
  const layout::Weight& weight = common_weight(model);
  const int64_t input = kManyRows * weight.cols * kFloat;
  const int64_t row = weight.row_bytes() + kManyRows * kFloat;
  const int64_t rows = std::max<int64_t>(16, (memory.bytes() - input - kPageBytes) / row);
  const int64_t needed = input + rows * row + kPageBytes;
  // Weights with rows of 100,000 numbers and more do not fit the memory at hand.
  const offload::Region own("probe", needed > memory.bytes() ? needed : 0, 0);
  auto* x = reinterpret_cast<float*>(own.bytes() > 0 ? own.data() : memory.data());
  float* y = x + kManyRows * weight.cols;
  auto* data = reinterpret_cast<std::byte*>(y + kManyRows * rows);
  std::memset(data, 0, static_cast<size_t>(rows * weight.row_bytes()));
  std::fill_n(x, kManyRows * weight.cols, 0.5F);
  cpu.max_cols = weight.cols;
  const auto backend = kernels::make_cpu_backend(cpu);
  const kernels::WeightSlice slice{data, weight.format, 0, rows, weight.cols};
  const auto multiply = [&](int64_t m) {
    backend->matmul({.x = x,
                     .ld_x = weight.cols,
                     .m = m,
                     .slices = {&slice, 1},
                     .bias = nullptr,
                     .y = y,
                     .ld_y = rows});
  };
  const double one = 1 / rate([&] { multiply(1); });
  const double many = 1 / rate([&] { multiply(kManyRows); });
  machine.compute_bytes_per_s = static_cast<double>(rows * weight.row_bytes()) / one;
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

planner::Machine probe_machine(const layout::Model& model, const kernels::CpuOptions& cpu) {
  planner::Machine machine;
  const offload::Region memory("probe", planner::kProbeBytes, 0);
  machine.link_bytes_per_s = copy_rate(memory);
  machine.disk_read_bytes_per_s = read_rate(model.files.front(), memory);
  machine.disk_write_bytes_per_s = machine.disk_read_bytes_per_s;
  machine.task_s = kTaskSeconds;
  probe_compute(model, cpu, memory, machine);
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
