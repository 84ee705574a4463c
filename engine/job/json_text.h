// Appends JSON text: one spelling for each value, so that equal records have equal bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace transload::engine {

// Quoted; escapes only what JSON demands. Requires valid UTF-8.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, int64_t value);
// The shortest decimal that reads back as the same float or double. Requires a finite value.
void append_json(std::string& out, float value);
void append_json(std::string& out, double value);

}  // namespace transload::engine
