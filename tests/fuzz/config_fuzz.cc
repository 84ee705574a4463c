// A config.json: read into a decoder spec, or refused with an Error.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "engine/families/family.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace transload;
  const auto config = nlohmann::json::parse(data, data + size, nullptr, false);
  if (config.is_discarded()) return 0;
  engine::Checkpoint checkpoint;
  checkpoint.kind = engine::Checkpoint::Kind::kSafetensors;
  checkpoint.path = checkpoint.folder = "input";
  checkpoint.config = config;
  try {
    engine::end_tokens(checkpoint);
    if (engine::read_blueprint(config, "input").spec.layers < 1) __builtin_trap();
  } catch (const Error& error) {
    if (error.kind() == Kind::kInternal) __builtin_trap();
  }
  try {
    engine::load_model(checkpoint);
    __builtin_trap();  // a model without tensors
  } catch (const Error& error) {
    if (error.kind() == Kind::kInternal) __builtin_trap();
  }
  return 0;
}
