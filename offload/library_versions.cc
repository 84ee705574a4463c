#include "offload/library_versions.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace transload::offload {

std::map<std::string, std::string> library_versions() {
  const unsigned xxhash = XXH_versionNumber();
  return {{"liburing", TRANSLOAD_LIBURING_VERSION},
          {"xxHash", fmt::format("{}.{}.{}", xxhash / 10000, xxhash / 100 % 100, xxhash % 100)}};
}

}  // namespace transload::offload
