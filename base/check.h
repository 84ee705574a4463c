// Checks of our own invariants: a failure is a bug in this program.
#pragma once

#include <source_location>
#include <string_view>

namespace transload {

[[noreturn]] void fail_check(std::string_view what, const std::source_location& where);

// Throws Kind::kInternal with file and line unless `holds`.
inline void check(bool holds, std::string_view what,
                  const std::source_location& where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    fail_check(what, where);
}

// As check, for inner loops: absent in builds with NDEBUG.
inline void dcheck(
    [[maybe_unused]] bool holds, [[maybe_unused]] std::string_view what,
    [[maybe_unused]] const std::source_location& where = std::source_location::current()) {
#ifndef NDEBUG
  if (!holds) [[unlikely]]
    fail_check(what, where);
#endif
}

}  // namespace transload
