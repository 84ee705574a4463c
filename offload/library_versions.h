// Versions of the libraries that offload/ runs on.
#pragma once

#include <map>
#include <string>

namespace transload::offload {

// By name; what the library itself says, else what it was compiled with.
std::map<std::string, std::string> library_versions();

}  // namespace transload::offload
