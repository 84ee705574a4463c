// The text of chat_helper.py; CMake puts it into the binary.
#pragma once

#include <string_view>

namespace transload::engine {

extern const std::string_view kChatHelper;

}  // namespace transload::engine
