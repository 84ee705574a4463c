// Runs a tiny job under faults, to see on this machine what the tests see on others.
#pragma once

#include <string>
#include <vector>

namespace transload::engine {

struct SelftestResult {
  std::string fault;  // "short I/O"
  bool passed = false;
  std::string what;  // what happened
};

// A model of random weights is written below `directory` (and removed), its weights and KV lie on
// the disk. Faults that a run overcomes must leave its tokens as they were; the others must end it
// with an error that names the cause, and a run after them must be sound. Takes about a second.
// Errors: kIo where `directory` cannot be written.
std::vector<SelftestResult> run_selftest(const std::string& directory, int threads);

}  // namespace transload::engine
