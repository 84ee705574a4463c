#include "engine/families/synthetic.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "engine/families/family.h"

namespace transload::engine {
namespace {

using layout::Role;
using nlohmann::json;
using quant::Format;

constexpr int64_t kLayerLimit = 10'000;

// Mixes a counter into 64 random bits. Source: splitmix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t counter) {
  uint64_t z = counter * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Value = centre + spread * u with u uniform in [-1, 1).
struct Range {
  float centre = 0, spread = 0;
};

Range range_of(const layout::DecoderSpec& spec, const NamedTensor& tensor) {
  if (tensor.role == Role::kNorm1 || tensor.role == Role::kNorm2 || tensor.role == Role::kFinalNorm)
    return {1.0F, 0.0F};
  if (!layout::is_matrix(tensor.role)) return {0.0F, 0.1F};
  const layout::Shape shape = layout::shape_of(spec, tensor.role);
  double variance = 1.0 / static_cast<double>(shape.cols);
  if (tensor.role == Role::kO || tensor.role == Role::kDown)
    variance /= 2.0 * static_cast<double>(spec.layers);
  return {0.0F, static_cast<float>(std::sqrt(3.0 * variance))};
}

// Fills pieces of one tensor after another from a table of its 65536 possible values: a value costs
// 16 random bits and a look-up. Value i of a tensor depends on seed, name and i alone.
template <class Value>
class Filler {
 public:
  Filler(uint64_t seed, Value (*encode)(float)) : seed_(seed), encode_(encode), table_(65536) {}

  void begin(const std::string& name, const Range& range) {
    stream_ = mix(seed_ + 1);
    for (const char c : name) stream_ = mix(stream_ + static_cast<unsigned char>(c) + 1);
    for (size_t i = 0; i < table_.size(); ++i)
      table_[i] = encode_(range.centre + range.spread * (static_cast<float>(i) / 32768.0F - 1.0F));
  }

  void fill(int64_t offset, std::span<std::byte> out) const {
    const size_t count = out.size() / sizeof(Value);
    const uint64_t first = static_cast<uint64_t>(offset) / sizeof(Value) / 4;
    std::array<Value, 4> four{};
    for (size_t i = 0; i < count; i += 4) {
      const uint64_t bits = mix(stream_ + first + i / 4);
      for (size_t k = 0; k < 4; ++k) four[k] = table_[(bits >> (16 * k)) & 0xFFFF];
      std::memcpy(out.data() + i * sizeof(Value), four.data(),
                  std::min<size_t>(4, count - i) * sizeof(Value));
    }
  }

 private:
  uint64_t seed_;
  Value (*encode_)(float);
  std::vector<Value> table_;
  uint64_t stream_ = 0;
};

template <class Value>
int64_t write_weights(const SyntheticModel& model, const Blueprint& blueprint,
                      const std::string& folder, Value (*encode)(float)) {
  const std::vector<NamedTensor> order = execution_order(blueprint);
  std::vector<TensorPlan> plans;
  for (const NamedTensor& tensor : order) {
    const layout::Shape shape = layout::shape_of(blueprint.spec, tensor.role);
    plans.push_back({tensor.name, model.format, {shape.cols}});
    if (layout::is_matrix(tensor.role)) plans.back().shape = {shape.rows, shape.cols};
  }
  Filler<Value> filler(model.seed, encode);
  return write_safetensors(folder, plans, model.shards,
                           [&](size_t i, int64_t offset, std::span<std::byte> out) {
                             if (offset == 0)
                               filler.begin(order[i].name, range_of(blueprint.spec, order[i]));
                             filler.fill(offset, out);
                           });
}

int64_t write_weights(const SyntheticModel& model, const Blueprint& blueprint,
                      const std::string& folder) {
  switch (model.format) {
    case Format::kF32:
      return write_weights<float>(model, blueprint, folder, [](float value) { return value; });
    case Format::kF16:
      return write_weights(model, blueprint, folder, quant::float_to_half);
    case Format::kBF16:
      return write_weights(model, blueprint, folder, quant::float_to_bfloat16);
    default:
      break;
  }
  throw Error(Kind::kUsage, "--dtype: float32, float16 and bfloat16 can be written");
}

const char* dtype_name(Format format) {
  return format == Format::kF32 ? "float32" : format == Format::kF16 ? "float16" : "bfloat16";
}

void check_sizes(const SyntheticModel& model) {
  const int64_t kv_heads = model.kv_heads == 0 ? model.heads : model.kv_heads;
  for (const int64_t size : {model.hidden, model.layers, model.heads, model.ffn, model.vocab,
                             model.max_positions, kv_heads})
    if (size < 1 || size > ConfigReader::kCountLimit)
      throw Error(Kind::kUsage, fmt::format("--shape: {} is no size; give counts from 1 to {}",
                                            size, ConfigReader::kCountLimit));
  if (model.layers > kLayerLimit)
    throw Error(Kind::kUsage, fmt::format("--shape: {} layers; at most {} can be written",
                                          model.layers, kLayerLimit));
  if (model.vocab < 3)
    throw Error(Kind::kUsage, "--shape: a vocabulary holds 3 tokens at least (1 begins, 2 ends)");
  if (model.hidden % model.heads != 0)
    throw Error(Kind::kUsage, fmt::format("--shape: {} heads do not divide hidden {}", model.heads,
                                          model.hidden));
  if (model.heads % kv_heads != 0)
    throw Error(Kind::kUsage,
                fmt::format("--kv-heads: {} do not divide the {} heads", kv_heads, model.heads));
  if (model.family != "llama" && kv_heads != model.heads)
    throw Error(Kind::kUsage, "--kv-heads: only llama has fewer KV heads than heads");
}

// What the family's configuration says beyond that of all families.
json family_fields(const SyntheticModel& model) {
  if (model.family == "opt")
    return {{"architectures", {"OPTForCausalLM"}}, {"ffn_dim", model.ffn},
            {"activation_function", "relu"},       {"do_layer_norm_before", true},
            {"word_embed_proj_dim", model.hidden}, {"tie_word_embeddings", true}};
  if (model.family == "llama")
    return {{"architectures", {"LlamaForCausalLM"}},
            {"intermediate_size", model.ffn},
            {"num_key_value_heads", model.kv_heads == 0 ? model.heads : model.kv_heads},
            {"hidden_act", "silu"},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000.0},
            {"tie_word_embeddings", false}};
  if (model.family == "gpt_neox")
    return {{"architectures", {"GPTNeoXForCausalLM"}},
            {"intermediate_size", model.ffn},
            {"hidden_act", "gelu"},
            {"layer_norm_eps", 1e-5},
            {"rotary_pct", 0.25},
            {"rotary_emb_base", 10000},
            {"use_parallel_residual", true},
            {"tie_word_embeddings", false}};
  throw Error(Kind::kUsage, fmt::format("--family: '{}' is not supported; opt, llama and "
                                        "gpt_neox are",
                                        model.family));
}

}  // namespace

json synthetic_config(const SyntheticModel& model) {
  check_sizes(model);
  json config = {{"model_type", model.family},
                 {"hidden_size", model.hidden},
                 {"num_hidden_layers", model.layers},
                 {"num_attention_heads", model.heads},
                 {"vocab_size", model.vocab},
                 {"max_position_embeddings", model.max_positions},
                 {"bos_token_id", 1},
                 {"eos_token_id", 2},
                 {"torch_dtype", dtype_name(model.format)}};
  config.update(family_fields(model));
  return config;
}

int64_t write_synthetic(const SyntheticModel& model, const std::string& folder) {
  namespace fs = std::filesystem;
  const json config = synthetic_config(model);
  const Blueprint blueprint = read_blueprint(config, "--shape");
  check_shards(model.shards, execution_order(blueprint).size());
  std::error_code code;
  fs::create_directories(folder, code);
  if (code || !fs::is_directory(folder))
    throw Error(Kind::kIo, folder + ": cannot be made a folder: " + code.message());
  if (!fs::is_empty(folder))
    throw Error(Kind::kUsage, folder + ": is not empty; name a new folder, nothing is overwritten");
  const int64_t bytes = write_weights(model, blueprint, folder);
  const json generation = {{"bos_token_id", 1}, {"eos_token_id", 2}};
  write_new_file(folder + "/generation_config.json", generation.dump(2) + "\n");
  // Last, so that a folder left half-written is no checkpoint.
  write_new_file(folder + "/config.json", config.dump(2) + "\n");
  return bytes;
}

}  // namespace transload::engine
