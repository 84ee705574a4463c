// OUT.state: what a resumed run must have in common with the run that wrote OUT.
#pragma once

#include <optional>
#include <string>

#include "engine/job/job.h"

namespace transload::engine {

inline constexpr size_t kStateLimitBytes = 4096;

// Null where there is no file. Errors: kBadInput when it is damaged or of another version, kIo.
std::optional<RunIdentity> read_state(const std::string& path);

// Written beside, synced and renamed into place. Errors: kIo; kUsage above kStateLimitBytes.
void write_state(const std::string& path, const RunIdentity& identity);

// Errors: kUsage naming each item that differs with both values.
void check_same_run(const std::string& output, const RunIdentity& before, const RunIdentity& now);

}  // namespace transload::engine
