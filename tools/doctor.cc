// transload doctor: what this machine offers and what of it is used.
#include "engine/run/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#ifdef TRANSLOAD_MIMALLOC
#include <mimalloc.h>
#endif

#include "tools/command.h"
#include "tools/run_flags.h"

namespace transload::tools {
namespace {

struct Options {
  engine::DoctorOptions doctor;
  bool json = false;
};

// Of the allocator, which the command alone is linked with.
void add_allocator([[maybe_unused]] nlohmann::ordered_json& libraries) {
#ifdef TRANSLOAD_MIMALLOC
  const int version = mi_version();  // 209 is 2.0.9
  libraries["mimalloc"] = fmt::format("{}.{}.{}", version / 100, version / 10 % 10, version % 10);
#endif
}

int run(Options& options) {
  engine::DoctorOptions& doctor = options.doctor;
  if (doctor.disk_directory.empty()) doctor.disk_directory = spill_directory();
  doctor.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (const char* forced = std::getenv("TRANSLOAD_CPU"); forced != nullptr)
    doctor.instructions = forced;
  auto report = engine::examine(doctor);
  report["versions"]["transload"] = kVersion;
  add_allocator(report["versions"]["libraries"]);
  fmt::print("{}", options.json ? report.dump(2) + "\n" : engine::doctor_text(report));
  return engine::is_healthy(report) ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Shows the processor's features and the kernels chosen, free and page-lockable memory, which "
      "disk engines work and why, the disk's rate, and versions, those of libraries too. Exit "
      "status 1 when the disk tier or the selftest fails.");
  const auto options = std::make_shared<Options>();
  command->add_option("--disk-dir", options->doctor.disk_directory,
                      "Where the disk tier would lie; left out: as generate");
  command->add_flag(
      "--selftest", options->doctor.selftest,
      "Run a tiny job under faults: short I/O, EIO, no space, denied io_uring, failed "
      "allocation");
  command->add_flag("--json", options->json, "The report as JSON");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace transload::tools
