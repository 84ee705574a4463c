#include "engine/families/gguf_rotary.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/checkpoint/input_file.h"

namespace transload::engine {

using layout::DecoderSpec;

Rotary read_gguf_rotary(ConfigReader& config, const std::string& prefix, const DecoderSpec& spec) {
  Rotary rotary;
  rotary.theta = config.positive_or(prefix + "rope.freq_base", 10000.0);
  const std::string type_key = prefix + "rope.scaling.type";
  const std::string type = config.text_or(type_key, "");
  // Files from before rope.scaling.type have the factor of linear scaling alone.
  const double old_factor = config.positive_or(prefix + "rope.scale_linear", 1.0);
  rotary.factor = config.positive_or(prefix + "rope.scaling.factor", old_factor);
  rotary.original_positions = static_cast<double>(
      config.count_or(prefix + "rope.scaling.original_context_length", spec.max_positions));
  config.find(prefix + "rope.scaling.finetuned");
  if (type == "yarn") {
    rotary.scaling = RotaryScaling::kYarn;
  } else if (type == "linear" || (type.empty() && rotary.factor != 1.0)) {
    rotary.scaling = RotaryScaling::kLinear;
  } else if (!type.empty() && type != "none") {
    config.refuse_value(type_key, "none, linear and yarn are");
  }
  return rotary;
}

void divide_by_rope_factors(const Checkpoint& checkpoint, DecoderSpec& spec) {
  for (const TensorInfo& tensor : checkpoint.tensors) {
    if (tensor.name != kRopeFactors) continue;
    const std::string& path = checkpoint.files[static_cast<size_t>(tensor.extent.file)];
    std::vector<float> factors(spec.inverse_frequencies.size());
    if (tensor.format != quant::Format::kF32 ||
        tensor.extent.bytes != static_cast<int64_t>(factors.size() * sizeof(float)))
      throw Error(Kind::kBadInput, fmt::format("{}: tensor '{}' must be {} values of F32", path,
                                               tensor.name, factors.size()));
    InputFile(path).read(tensor.extent.offset, std::as_writable_bytes(std::span(factors)));
    for (size_t i = 0; i < factors.size(); ++i) {
      if (!std::isfinite(factors[i]) || factors[i] <= 0)
        throw Error(Kind::kBadInput, fmt::format("{}: tensor '{}': value {} is {}", path,
                                                 tensor.name, i, factors[i]));
      spec.inverse_frequencies[i] /= factors[i];
    }
  }
}

}  // namespace transload::engine
