// Versions of the libraries that tokenizers run on.
#pragma once

#include <map>
#include <string>

namespace transload::engine {

// By name, as the libraries themselves say it.
std::map<std::string, std::string> tokenizer_library_versions();

}  // namespace transload::engine
