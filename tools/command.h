// The subcommands of `transload`, a file each. Each adds itself to the app; when chosen, it runs in
// its callback and leaves the exit status in `status` (errors are thrown and reported by main).
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

namespace transload::tools {

// Of counts that cannot be 0 and of which 32 bits hold all. (CLI::PositiveNumber prints the largest
// double.)
inline CLI::Validator at_least_one() {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return CLI::Validator(
      [](std::string& text) -> std::string {
        int64_t value = 0;
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = status == std::errc() && end == text.data() + text.size();
        if (whole && value >= 1 && value <= kMost) return {};
        return "'" + text + "' is no integer from 1 to " + std::to_string(kMost);
      },
      "");
}

// Of seeds: CLI11 would take what is above 64 bits for the largest, and what is negative too.
inline CLI::Validator seed() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        uint64_t value = 0;
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (status == std::errc() && end == text.data() + text.size()) return {};
        return "'" + text + "' is no integer from 0 to 18446744073709551615";
      },
      "");
}

void add_generate(CLI::App& app, int& status);
void add_score(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);
void add_synth(CLI::App& app, int& status);
void add_tokenize(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);

inline constexpr const char* kVersion = "0.1.0";

// Exit status of a job that finished with error records.
inline constexpr int kPartial = 1;

}  // namespace transload::tools
