// What this machine offers, and what of it is used.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace transload::engine {

struct DoctorOptions {
  std::string disk_directory;
  int threads = 1;
  std::string instructions;  // TRANSLOAD_CPU
  bool selftest = false;
};

// {"cpu", "memory", "disk", "chat", "versions"}, and "selftest" where it is asked for. What cannot
// be found out is there with its reason. Writes 64 MiB to the disk directory, unlinked.
nlohmann::ordered_json examine(const DoctorOptions& options);

// The same for people, a line a fact.
std::string doctor_text(const nlohmann::ordered_json& report);

// False when a disk engine is missing altogether or the selftest fails.
bool is_healthy(const nlohmann::ordered_json& report);

}  // namespace transload::engine
