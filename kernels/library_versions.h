// Versions of the libraries that kernels/ runs on.
#pragma once

#include <map>
#include <string>

namespace transload::kernels {

// By name; what the library itself says, else what it was compiled with.
std::map<std::string, std::string> library_versions();

}  // namespace transload::kernels
