// Binds a checkpoint's tensors to the roles that its configuration asks for.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/families/family.h"
#include "engine/families/gguf_rotary.h"

namespace transload::engine {
namespace {

using layout::Role;
using layout::Weight;
using nlohmann::json;

// A name without the prefix that base models leave out.
std::string_view short_name(const Family& family, std::string_view name) {
  for (const std::string_view prefix : family.prefixes)
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

const std::string& file_of(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  return checkpoint.files[static_cast<size_t>(tensor.extent.file)];
}

class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const Family& family)
      : checkpoint_(checkpoint), family_(family) {
    for (const TensorInfo& tensor : checkpoint.tensors)
      if (!tensors_.emplace(short_name(family, tensor.name), &tensor).second)
        throw Error(Kind::kBadInput,
                    fmt::format("{}: tensor '{}' is there twice, with and without its prefix",
                                file_of(checkpoint, tensor), tensor.name));
  }

  // Appends the tensor to the model. Returns false where it is optional and not there.
  void bind(const NamedTensor& wanted, layout::Model& model) {
    const auto at = tensors_.find(short_name(family_, wanted.name));
    if (at == tensors_.end()) {
      if (wanted.optional) return;
      throw Error(Kind::kBadInput,
                  fmt::format("{}: tensor '{}' is missing, which the configuration asks for",
                              checkpoint_.path, wanted.name));
    }
    const TensorInfo& tensor = *at->second;
    check_shape(tensor, wanted.role, model.spec);
    const layout::Shape shape = layout::shape_of(model.spec, wanted.role);
    model.weights.push_back({wanted.role, wanted.layer, tensor.name, tensor.format, shape.rows,
                             shape.cols, tensor.extent});
    tensors_.erase(at);
  }

  // Every tensor has a place: what a checkpoint carries beyond its family is computed with
  // somewhere, only not here.
  void refuse_rest(const layout::Model& model) const {
    const TensorInfo* first = nullptr;
    for (const auto& [name, tensor] : tensors_) {
      const bool unused = is_unused_buffer(name) || tensor->name == kRopeFactors ||
                          name.ends_with(".attn_rot_embd") ||
                          (model.spec.tied_head && name == family_.unused_head);
      if (!unused && (first == nullptr || tensor->name < first->name)) first = tensor;
    }
    if (first == nullptr) return;
    throw Error(Kind::kUnsupported,
                fmt::format("{}: tensor '{}' is no part of a {} model as its configuration "
                            "describes it",
                            file_of(checkpoint_, *first), first->name, model.spec.family));
  }

 private:
  void check_shape(const TensorInfo& tensor, Role role, const layout::DecoderSpec& spec) const {
    const layout::Shape shape = layout::shape_of(spec, role);
    std::vector<int64_t> want = {shape.rows, shape.cols};
    if (!layout::is_matrix(role)) want = {shape.cols};
    if (tensor.shape == want) return;
    throw Error(Kind::kBadInput,
                fmt::format("{}: tensor '{}' has shape [{}] where the configuration needs [{}]",
                            file_of(checkpoint_, tensor), tensor.name,
                            fmt::join(tensor.shape, ", "), fmt::join(want, ", ")));
  }

  const Checkpoint& checkpoint_;
  const Family& family_;
  std::unordered_map<std::string_view, const TensorInfo*> tensors_;
};

// Each layer has tensors: a damaged count is noticed before anything of its size is made.
void check_layers(const Checkpoint& checkpoint, const layout::DecoderSpec& spec) {
  if (spec.layers > static_cast<int64_t>(checkpoint.tensors.size()))
    throw Error(Kind::kBadInput,
                fmt::format("{}: its configuration has {} layers but its files have {} tensors",
                            checkpoint.path, spec.layers, checkpoint.tensors.size()));
}

std::string model_name(const Checkpoint& checkpoint) {
  const auto at = checkpoint.metadata.find("general.name");
  if (at != checkpoint.metadata.end() && at->is_string()) return at->get<std::string>();
  std::error_code ignored;
  const auto path = std::filesystem::absolute(
      checkpoint.kind == Checkpoint::Kind::kGguf ? checkpoint.path : checkpoint.folder, ignored);
  const auto name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return name.string();
}

// Appends the tokens of an eos_token_id: a number or a list.
void add_tokens(const std::string& where, const json& object, const char* key,
                std::vector<int32_t>& tokens) {
  if (!object.is_object() || !object.contains(key) || object[key].is_null()) return;
  const json list = object[key].is_array() ? object[key] : json::array({object[key]});
  for (const json& token : list) {
    if (!token.is_number_integer() || token < -1 || token > INT32_MAX)
      throw Error(Kind::kBadInput,
                  fmt::format("{}: '{}' holds {}, which is no token", where, key, printed(token)));
    // -1 says "none" in some files, 4294967295 in GGUF.
    if (token >= 0) tokens.push_back(token.get<int32_t>());
  }
}

}  // namespace

layout::Model load_model(const Checkpoint& checkpoint) {
  const bool gguf = checkpoint.kind == Checkpoint::Kind::kGguf;
  const std::string where = checkpoint.folder + "/config.json";
  const Family& family = gguf ? find_gguf_family(checkpoint.metadata, checkpoint.files.front())
                              : find_family(checkpoint.config, where);
  const Blueprint blueprint =
      gguf ? read_gguf_blueprint(checkpoint) : read_blueprint(checkpoint.config, where);
  layout::Model model;
  model.name = model_name(checkpoint);
  model.spec = blueprint.spec;
  model.files = checkpoint.files;
  check_layers(checkpoint, model.spec);
  Binder binder(checkpoint, family);
  for (const NamedTensor& wanted : execution_order(blueprint)) binder.bind(wanted, model);
  binder.refuse_rest(model);
  return model;
}

std::vector<int32_t> end_tokens(const Checkpoint& checkpoint) {
  std::vector<int32_t> tokens;
  add_tokens(checkpoint.folder + "/generation_config.json", checkpoint.generation_config,
             "eos_token_id", tokens);
  if (tokens.empty())
    add_tokens(checkpoint.folder + "/config.json", checkpoint.config, "eos_token_id", tokens);
  if (checkpoint.kind == Checkpoint::Kind::kGguf)
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"})
      add_tokens(checkpoint.path, checkpoint.metadata, key, tokens);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

}  // namespace transload::engine
