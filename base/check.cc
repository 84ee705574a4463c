#include "base/check.h"

#include <string>

#include "base/error.h"

namespace transload {

void fail_check(std::string_view what, const std::source_location& where) {
  throw Error(Kind::kInternal, std::string(what) + " (" + where.file_name() + ":" +
                                   std::to_string(where.line()) + ")");
}

}  // namespace transload
