// The one exception type of the project and its kinds.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace transload {

enum class Kind { kUsage, kBadInput, kDoesNotFit, kIo, kUnsupported, kInternal };

// Ends a run. The text is one line: what, where, what to do.
class Error : public std::runtime_error {
 public:
  Error(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// Stable code of a kind, as printed before the text ("does_not_fit") and written to error records.
std::string_view code(Kind kind);

// Exit status of the process for a kind: usage 2, bad input 3, does not fit 4, I/O 5,
// unsupported 6, internal 70.
int exit_status(Kind kind);

// The one place where errno becomes an Error. `doing` names the call and the file.
[[noreturn]] void throw_errno(int error_number, const std::string& doing);

}  // namespace transload
