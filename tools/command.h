// The subcommands of `transload`, a file each. Each adds itself to the app; when chosen, it runs in
// its callback and leaves the exit status in `status` (errors are thrown and reported by main).
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

namespace transload::tools {

// Of whole numbers, as they are written: CLI11 would take what is above a type's largest for that.
template <class T>
CLI::Validator integer_in(T least, T most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        T value = 0;
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = status == std::errc() && end == text.data() + text.size();
        if (whole && value >= least && value <= most) return {};
        return "'" + text + "' is no integer from " + std::to_string(least) + " to " +
               std::to_string(most);
      },
      "");
}
inline CLI::Validator at_least_one() {
  return integer_in<int64_t>(1, std::numeric_limits<int32_t>::max());
}
inline CLI::Validator seed() {
  return integer_in<uint64_t>(0, std::numeric_limits<uint64_t>::max());
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
