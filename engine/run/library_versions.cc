#include "engine/run/library_versions.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <simdjson.h>

#include "engine/tokenizer/library_versions.h"
#include "kernels/library_versions.h"
#include "offload/library_versions.h"

namespace transload::engine {

std::map<std::string, std::string> library_versions() {
  std::map<std::string, std::string> all{
      {"fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"glibc", gnu_get_libc_version()},
      {"simdjson", fmt::format("{}.{}.{}", static_cast<int>(simdjson::SIMDJSON_VERSION_MAJOR),
                               static_cast<int>(simdjson::SIMDJSON_VERSION_MINOR),
                               static_cast<int>(simdjson::SIMDJSON_VERSION_REVISION))}};
  all.merge(kernels::library_versions());
  all.merge(offload::library_versions());
  all.merge(tokenizer_library_versions());
  return all;
}

}  // namespace transload::engine
