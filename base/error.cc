#include "base/error.h"

#include <cstring>

namespace transload {

std::string_view code(Kind kind) {
  switch (kind) {
    case Kind::kUsage:
      return "usage";
    case Kind::kBadInput:
      return "bad_input";
    case Kind::kDoesNotFit:
      return "does_not_fit";
    case Kind::kIo:
      return "io";
    case Kind::kUnsupported:
      return "unsupported";
    case Kind::kInternal:
      return "internal";
  }
  return "internal";
}

int exit_status(Kind kind) {
  switch (kind) {
    case Kind::kUsage:
      return 2;
    case Kind::kBadInput:
      return 3;
    case Kind::kDoesNotFit:
      return 4;
    case Kind::kIo:
      return 5;
    case Kind::kUnsupported:
      return 6;
    case Kind::kInternal:
      return 70;
  }
  return 70;
}

void throw_errno(int error_number, const std::string& doing) {
  throw Error(Kind::kIo, doing + ": " + std::strerror(error_number));
}

}  // namespace transload
