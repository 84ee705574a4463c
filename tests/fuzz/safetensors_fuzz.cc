// A safetensors header, followed by as many bytes of data as the first two bytes of input say.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "engine/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace transload;
  if (size < 2) return 0;
  const int64_t data_bytes = data[0] + 256 * data[1];
  const auto head = std::as_bytes(std::span(data, size)).subspan(2);
  const engine::MemorySource source("input", head, static_cast<int64_t>(head.size()) + data_bytes);
  try {
    for (const engine::TensorInfo& tensor : engine::parse_safetensors_header(source, 0))
      if (tensor.extent.offset + tensor.extent.bytes > source.bytes()) __builtin_trap();
  } catch (const Error& error) {
    if (error.kind() == Kind::kInternal) __builtin_trap();
  }
  return 0;
}
