// The subcommands of `transload`, a file each. Each adds itself to the app; when chosen, it runs in
// its callback and leaves the exit status in `status` (errors are thrown and reported by main).
#pragma once

#include <CLI/CLI.hpp>

namespace transload::tools {

void add_generate(CLI::App& app, int& status);
void add_score(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);
void add_synth(CLI::App& app, int& status);
void add_tokenize(CLI::App& app, int& status);

// Exit status of a job that finished with error records, and of one that a signal ended.
inline constexpr int kPartial = 1;
inline constexpr int kInterrupted = 75;

}  // namespace transload::tools
