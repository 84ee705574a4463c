#include "kernels/library_versions.h"

#include <tbb/version.h>

#include "hwy/highway.h"

namespace transload::kernels {

std::map<std::string, std::string> library_versions() {
  const auto dotted = [](int a, int b, int c) {
    return std::to_string(a) + "." + std::to_string(b) + "." + std::to_string(c);
  };
  return {{"Highway", dotted(HWY_MAJOR, HWY_MINOR, HWY_PATCH)}, {"oneTBB", TBB_runtime_version()}};
}

}  // namespace transload::kernels
