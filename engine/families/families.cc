// The table of families, and the choice by configuration.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "engine/families/family.h"

namespace transload::engine {
namespace {

using layout::Role;
using nlohmann::json;

std::string supported() {
  std::string names;
  for (const Family& family : families())
    names += (names.empty() ? "" : ", ") + std::string(family.model_type);
  return names;
}

void check_architecture(ConfigReader& config, const Family& family) {
  const json* list = config.find("architectures");
  if (list == nullptr || (list->is_array() && list->empty())) return;
  const bool listed =
      list->is_array() && std::find(list->begin(), list->end(), family.architecture) != list->end();
  if (!listed) config.refuse_value("architectures", std::string(family.architecture) + " is");
}

void check_common(ConfigReader& config) {
  config.require("is_encoder_decoder", false);
  const json* types = config.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) config.refuse("layer_types", "is no list");
  for (const json& type : *types)
    if (type != "full_attention") config.refuse_value("layer_types", "only full_attention is");
}

bool before_layers(Role role) {
  return role == Role::kEmbedding || role == Role::kPositions || role == Role::kProjectIn;
}

}  // namespace

std::span<const Family> families() {
  static const std::array<Family, 3> kFamilies = {llama_family(), opt_family(), gpt_neox_family()};
  return kFamilies;
}

const Family& find_family(const json& config, const std::string& where) {
  const auto at = config.find("model_type");
  if (at == config.end() || !at->is_string())
    throw Error(Kind::kBadInput, where + ": 'model_type' is missing, which says what model it is");
  for (const Family& family : families())
    if (*at == family.model_type) return family;
  throw Error(Kind::kUnsupported, fmt::format("{}: model family {} is not supported; {} are", where,
                                              printed(*at), supported()));
}

const Family& find_gguf_family(const json& metadata, const std::string& where) {
  const auto at = metadata.find("general.architecture");
  if (at == metadata.end() || !at->is_string())
    throw Error(Kind::kBadInput, where +
                                     ": 'general.architecture' is missing, which says what "
                                     "model it is");
  std::string names;
  for (const Family& family : families()) {
    if (family.gguf_architecture.empty()) continue;
    if (*at == family.gguf_architecture) return family;
    names += (names.empty() ? "" : ", ") + std::string(family.gguf_architecture);
  }
  throw Error(Kind::kUnsupported,
              fmt::format("{}: GGUF of model family {} is not supported; of {} it is (safetensors: "
                          "of {})",
                          where, printed(*at), names, supported()));
}

Blueprint read_blueprint(const json& config, const std::string& where) {
  ConfigReader reader(config, where);
  const Family& family = find_family(config, where);
  reader.find("model_type");
  check_architecture(reader, family);
  check_common(reader);
  Blueprint blueprint = family.from_config(reader);
  reader.refuse_unread();
  return blueprint;
}

Blueprint read_gguf_blueprint(const Checkpoint& checkpoint) {
  const std::string& where = checkpoint.files.front();
  const Family& family = find_gguf_family(checkpoint.metadata, where);
  ConfigReader reader(checkpoint.metadata, where);
  Blueprint blueprint = family.from_gguf(reader, checkpoint);
  reader.refuse_unread_below(std::string(family.gguf_architecture) + ".");
  for (const auto& [key, values] : checkpoint.number_arrays)
    if (key.starts_with(std::string(family.gguf_architecture) + "."))
      throw Error(Kind::kUnsupported,
                  fmt::format("{}: '{}' has {} values (a model whose layers differ), which is not "
                              "supported",
                              where, key, values.size()));
  return blueprint;
}

std::vector<NamedTensor> execution_order(const Blueprint& blueprint) {
  std::vector<TensorName> sorted = blueprint.tensors;
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorName& a, const TensorName& b) { return a.role < b.role; });
  std::vector<NamedTensor> order, after;
  std::vector<const TensorName*> of_layer;
  for (const TensorName& tensor : sorted) {
    if (tensor.pattern.find("{}") != std::string::npos)
      of_layer.push_back(&tensor);
    else
      (before_layers(tensor.role) ? order : after)
          .push_back({tensor.role, -1, tensor.pattern, tensor.optional});
  }
  for (int32_t layer = 0; layer < blueprint.spec.layers; ++layer)
    for (const TensorName* tensor : of_layer)
      order.push_back({tensor->role, layer, fmt::format(fmt::runtime(tensor->pattern), layer),
                       tensor->optional});
  // Project-out, final norm, head: the head is multiplied last.
  std::stable_partition(after.begin(), after.end(),
                        [](const NamedTensor& tensor) { return tensor.role != Role::kHead; });
  std::move(after.begin(), after.end(), std::back_inserter(order));
  return order;
}

}  // namespace transload::engine
