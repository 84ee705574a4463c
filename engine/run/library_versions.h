// Versions of the libraries that a run depends on.
#pragma once

#include <map>
#include <string>

namespace transload::engine {

// By name; what the library itself says, else what it was compiled with. Those of kernels/ and
// offload/ are among them.
std::map<std::string, std::string> library_versions();

}  // namespace transload::engine
