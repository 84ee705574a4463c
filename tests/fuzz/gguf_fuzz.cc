// A GGUF header, followed by as many bytes of data as the first two bytes of input say; a sound one
// is also read as a model.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "engine/checkpoint/gguf.h"

namespace {

void read(const transload::engine::ByteSource& source) {
  using namespace transload::engine;
  GgufHeader header = parse_gguf_header(source);
  for (const TensorInfo& tensor : header.tensors)
    if (tensor.extent.offset + tensor.extent.bytes > source.bytes()) __builtin_trap();
  Checkpoint checkpoint;
  checkpoint.kind = Checkpoint::Kind::kGguf;
  checkpoint.path = "input";
  checkpoint.files = {"input"};
  checkpoint.metadata = std::move(header.metadata);
  checkpoint.string_arrays = std::move(header.string_arrays);
  checkpoint.number_arrays = std::move(header.number_arrays);
  checkpoint.tensors = std::move(header.tensors);
  end_tokens(checkpoint);
  load_model(checkpoint);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace transload;
  if (size < 2) return 0;
  const int64_t data_bytes = data[0] + 256 * data[1];
  const auto head = std::as_bytes(std::span(data, size)).subspan(2);
  try {
    read(engine::MemorySource("input", head, static_cast<int64_t>(head.size()) + data_bytes));
  } catch (const Error& error) {
    if (error.kind() == Kind::kInternal) __builtin_trap();
  }
  return 0;
}
