#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/families/family.h"
#include "tests/engine/checkpoint/files.h"

namespace transload::engine {
namespace {

using layout::DecoderSpec;
using layout::Role;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transload::testing::copy_model;
using transload::testing::data;
using transload::testing::Folder;
using transload::testing::read_file;
using transload::testing::thrown_by;
using transload::testing::write_file;

json config_of(const std::string& model) {
  return json::parse(read_file(data(model) + "/config.json"));
}

DecoderSpec spec_of(const json& config) { return read_blueprint(config, "config.json").spec; }

std::vector<Role> roles_of(const layout::Model& model, int32_t layer) {
  std::vector<Role> roles;
  for (const layout::Weight& weight : model.weights)
    if (weight.layer == layer) roles.push_back(weight.role);
  return roles;
}

layout::Model tiny(const std::string& name) { return load_model(open_checkpoint(data(name))); }

TEST(Families, ReadLlama) {
  const layout::Model model = tiny("llama-mha");
  const DecoderSpec& spec = model.spec;
  EXPECT_EQ(spec.family, "llama");
  EXPECT_EQ(spec.layers, 3);
  EXPECT_EQ(spec.heads, 4);
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.ffn, 160);
  EXPECT_EQ(spec.vocab, 512);
  EXPECT_EQ(spec.max_positions, 256);
  EXPECT_EQ(spec.norm, layout::NormKind::kRms);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-6F);
  EXPECT_EQ(spec.rotary_style, layout::RotaryStyle::kHalves);
  EXPECT_EQ(spec.inverse_frequencies.size(), 8U);
  EXPECT_TRUE(spec.gated && spec.pre_norm && spec.final_norm);
  EXPECT_FALSE(spec.tied_head || spec.parallel_residual);
  EXPECT_THAT(roles_of(model, 1), ElementsAre(Role::kQ, Role::kK, Role::kV, Role::kO, Role::kGate,
                                              Role::kUp, Role::kDown, Role::kNorm1, Role::kNorm2));
  EXPECT_THAT(roles_of(model, -1), ElementsAre(Role::kEmbedding, Role::kFinalNorm, Role::kHead));
  EXPECT_EQ(model.find(Role::kDown, 2)->rows, 64);
  EXPECT_EQ(model.find(Role::kDown, 2)->cols, 160);
}

TEST(Families, ReadOptWithNormsBefore) {
  const layout::Model model = tiny("opt-preln");
  EXPECT_EQ(model.spec.position, layout::PositionKind::kLearned);
  EXPECT_EQ(model.spec.position_offset, 2);
  EXPECT_EQ(model.find(Role::kPositions)->rows, 258);
  EXPECT_EQ(model.spec.norm, layout::NormKind::kLayer);
  EXPECT_EQ(model.spec.activation, layout::Activation::kRelu);
  EXPECT_TRUE(model.spec.pre_norm && model.spec.final_norm && model.spec.tied_head);
  EXPECT_FALSE(model.spec.gated);
  EXPECT_EQ(model.find(Role::kHead), nullptr);
  EXPECT_NE(model.find(Role::kQBias, 0), nullptr);
  EXPECT_EQ(model.weights[1].role, Role::kPositions);
}

TEST(Families, ReadOptWithNormsAfterAndAProjectedEmbedding) {
  const layout::Model model = tiny("opt-350m-style");
  EXPECT_FALSE(model.spec.pre_norm || model.spec.final_norm);
  EXPECT_EQ(model.spec.embed_dim, 32);
  EXPECT_EQ(model.find(Role::kProjectIn)->rows, 64);
  EXPECT_EQ(model.find(Role::kProjectOut)->cols, 64);
  EXPECT_THAT(roles_of(model, -1),
              ElementsAre(Role::kEmbedding, Role::kPositions, Role::kProjectIn, Role::kProjectOut));
  EXPECT_EQ(model.weights.back().role, Role::kProjectOut);
}

TEST(Families, ReadGptNeoxInBothSpellings) {
  const DecoderSpec parallel = tiny("gpt-neox-parallel").spec;
  const DecoderSpec sequential = tiny("gpt-neox-sequential").spec;
  EXPECT_TRUE(parallel.parallel_residual);
  EXPECT_FALSE(sequential.parallel_residual);
  for (const DecoderSpec& spec : {parallel, sequential}) {
    EXPECT_EQ(spec.qkv, layout::QkvLayout::kFusedByHead);
    EXPECT_EQ(spec.rotary_dim, 4);
    EXPECT_EQ(spec.activation, layout::Activation::kGelu);
  }
  EXPECT_EQ(parallel.inverse_frequencies, sequential.inverse_frequencies);
}

TEST(Families, RefuseOthersNamingThemAndThoseSupported) {
  for (const char* name : {"mistral-sliding", "qwen2", "qwen3"}) {
    const json config = config_of(name);
    const auto error = thrown_by([&] { spec_of(config); });
    EXPECT_EQ(error.kind, Kind::kUnsupported);
    EXPECT_THAT(error.text, AllOf(HasSubstr(config["model_type"].get<std::string>()),
                                  HasSubstr("llama, opt, gpt_neox")));
  }
  EXPECT_THAT(thrown_by([] { spec_of(json::object()); }).text,
              HasSubstr("'model_type' is missing"));
  EXPECT_THAT(thrown_by([] { spec_of(json::array()); }).text, HasSubstr("no JSON object"));
}

// CK-10: a changed key changes the spec or the tensors.
struct Flip {
  const char* model;
  const char* key;
  json value;
};
std::ostream& operator<<(std::ostream& out, const Flip& flip) {
  return out << flip.model << " " << flip.key << " " << flip.value;
}

// All of a blueprint, as text.
std::string print_of(const Blueprint& blueprint) {
  const DecoderSpec& s = blueprint.spec;
  json out = {s.layers,
              s.hidden,
              s.heads,
              s.kv_heads,
              s.head_dim,
              s.ffn,
              s.vocab,
              s.embed_dim,
              s.max_positions,
              s.norm,
              s.norm_eps,
              s.pre_norm,
              s.final_norm,
              s.position,
              s.position_offset,
              s.rotary_dim,
              s.rotary_style,
              s.inverse_frequencies,
              s.rotary_magnitude,
              s.activation,
              s.gated,
              s.parallel_residual,
              s.qkv,
              s.tied_head};
  for (const TensorName& tensor : blueprint.tensors) out.push_back(tensor.pattern);
  return out.dump();
}

class HonouredKeys : public ::testing::TestWithParam<Flip> {};

TEST_P(HonouredKeys, ChangeWhatIsComputed) {
  json config = config_of(GetParam().model);
  const std::string before = print_of(read_blueprint(config, "c"));
  config[GetParam().key] = GetParam().value;
  EXPECT_NE(print_of(read_blueprint(config, "c")), before);
}

INSTANTIATE_TEST_SUITE_P(
    Families, HonouredKeys,
    ::testing::Values(
        Flip{"llama-gqa-tied", "rope_theta", 5e5}, Flip{"llama-gqa-tied", "head_dim", 16},
        Flip{"llama-gqa-tied", "rms_norm_eps", 1e-5},
        Flip{"llama-gqa-tied", "num_key_value_heads", 4},
        Flip{"llama-gqa-tied", "num_key_value_heads", nullptr},
        Flip{"llama-gqa-tied", "attention_bias", true}, Flip{"llama-gqa-tied", "mlp_bias", true},
        Flip{"llama-gqa-tied", "hidden_act", "gelu_pytorch_tanh"},
        Flip{"llama-gqa-tied", "tie_word_embeddings", false},
        Flip{"llama-gqa-tied", "max_position_embeddings", 128},
        Flip{"llama-gqa-tied", "intermediate_size", 128},
        Flip{"llama-gqa-tied", "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
        Flip{"llama-gqa-tied", "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}},
        Flip{"llama-gqa-tied",
             "rope_scaling",
             {{"rope_type", "llama3"},
              {"factor", 8.0},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0},
              {"original_max_position_embeddings", 64}}},
        Flip{"llama-mha", "rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}},
        Flip{"opt-preln", "do_layer_norm_before", false},
        Flip{"opt-preln", "_remove_final_layer_norm", true},
        Flip{"opt-preln", "enable_bias", false}, Flip{"opt-preln", "activation_function", "gelu"},
        Flip{"opt-preln", "ffn_dim", 128}, Flip{"opt-preln", "word_embed_proj_dim", 32},
        Flip{"opt-preln", "tie_word_embeddings", false},
        Flip{"gpt-neox-parallel", "use_parallel_residual", false},
        Flip{"gpt-neox-parallel", "rotary_pct", 0.5},
        Flip{"gpt-neox-parallel", "rotary_emb_base", 5e5},
        Flip{"gpt-neox-parallel", "layer_norm_eps", 1e-6},
        Flip{"gpt-neox-parallel", "hidden_act", "gelu_fast"},
        Flip{"gpt-neox-parallel", "attention_bias", false},
        Flip{"gpt-neox-parallel", "tie_word_embeddings", true},
        Flip{"gpt-neox-sequential",
             "rope_parameters",
             {{"rope_theta", 1e4}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}));

class RefusedKeys : public ::testing::TestWithParam<Flip> {};

TEST_P(RefusedKeys, AreNamed) {
  json config = config_of(GetParam().model);
  config[GetParam().key] = GetParam().value;
  const auto error = thrown_by([&] { read_blueprint(config, "config.json"); });
  EXPECT_TRUE(error.kind == Kind::kUnsupported || error.kind == Kind::kBadInput);
  EXPECT_THAT(error.text, AllOf(HasSubstr("config.json"), HasSubstr(GetParam().key)));
}

INSTANTIATE_TEST_SUITE_P(
    Families, RefusedKeys,
    ::testing::Values(
        Flip{"llama-mha", "sliding_window", 4096},
        Flip{"llama-mha", "quantization_config", {{"quant_method", "gptq"}}},
        Flip{"llama-mha", "attn_logit_softcapping", 50.0},
        Flip{"llama-mha", "embedding_multiplier", 12.0}, Flip{"llama-mha", "logits_scaling", 8.0},
        Flip{"llama-mha", "residual_multiplier", 0.2},
        Flip{"llama-mha", "attention_multiplier", 0.1}, Flip{"llama-mha", "logit_scale", 2.0},
        Flip{"llama-mha", "partial_rotary_factor", 0.5},
        Flip{"llama-mha", "rope_interleaved", true}, Flip{"llama-mha", "qk_layernorm", true},
        Flip{"llama-mha", "num_local_experts", 8}, Flip{"llama-mha", "clip_qkv", 8.0},
        Flip{"llama-mha", "original_max_position_embeddings", 64},
        Flip{"llama-mha", "layer_types", {"full_attention", "sliding_attention"}},
        Flip{"llama-mha", "layer_types", 3}, Flip{"llama-mha", "is_encoder_decoder", true},
        Flip{"llama-mha", "add_cross_attention", true},
        Flip{"llama-mha", "pruned_heads", {{"0", {1}}}},
        Flip{"llama-mha", "architectures", {"LlamaForSequenceClassification"}},
        Flip{"llama-mha", "hidden_act", "relu2"}, Flip{"llama-mha", "hidden_act", 3},
        Flip{"llama-mha", "rms_norm_eps", 0.0}, Flip{"llama-mha", "rms_norm_eps", "small"},
        Flip{"llama-mha", "attention_bias", "yes"}, Flip{"llama-mha", "num_hidden_layers", 0},
        Flip{"llama-mha", "hidden_size", nullptr}, Flip{"llama-mha", "hidden_size", 1e18},
        Flip{"llama-mha", "num_key_value_heads", 3}, Flip{"llama-mha", "rope_theta", 5.0},
        Flip{"llama-mha", "rope_theta", -1.0},
        Flip{"llama-mha", "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
        Flip{"llama-gqa-tied", "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
        Flip{"llama-gqa-tied", "rope_scaling", {{"type", "longrope"}}},
        Flip{"llama-gqa-tied", "rope_scaling", {{"type", "linear"}}},
        Flip{"llama-gqa-tied", "rope_scaling", {{"rope_type", "yarn"}, {"type", "linear"}}},
        Flip{"llama-gqa-tied",
             "rope_scaling",
             {{"rope_type", "linear"}, {"factor", 2.0}, {"mrope_section", {1, 2}}}},
        Flip{"llama-gqa-tied",
             "rope_scaling",
             {{"rope_type", "llama3"},
              {"factor", 8.0},
              {"low_freq_factor", 4.0},
              {"high_freq_factor", 4.0}}},
        Flip{"opt-preln", "layer_norm_elementwise_affine", false},
        Flip{"opt-preln", "scale_embeddings", true}, Flip{"opt-preln", "hidden_size", 65},
        Flip{"gpt-neox-parallel", "hidden_size", 65},
        Flip{"gpt-neox-parallel", "sliding_window", 8},
        Flip{"gpt-neox-sequential", "rotary_pct", 0.5}));

TEST(Families, AcceptKeysThatChangeNothing) {
  json config = config_of("llama-gqa-tied");
  const std::string before = print_of(read_blueprint(config, "c"));
  config.update({{"attention_dropout", 0.1},
                 {"sliding_window", nullptr},
                 {"_name_or_path", "x"},
                 {"layer_types", {"full_attention"}},
                 {"use_sliding_window", false},
                 {"pruned_heads", json::object()},
                 {"_attn_implementation", "sdpa"},
                 {"unsloth_version", "1"},
                 {"architectures", json::array()}});
  EXPECT_EQ(print_of(read_blueprint(config, "c")), before);
}

// CK-07: a tied flag wins over a head that is there, as in transformers 4; bytes count once.
TEST(Families, TieTheHeadWhereTheConfigurationSaysSoThoughAHeadIsThere) {
  Folder folder;
  copy_model("llama-mha", folder.path(),
             [](json& config) { config["tie_word_embeddings"] = true; });
  const layout::Model tied = load_model(open_checkpoint(folder.path()));
  EXPECT_TRUE(tied.spec.tied_head);
  EXPECT_EQ(tied.find(Role::kHead), nullptr);
  EXPECT_EQ(tiny("llama-mha").weight_bytes() - tied.weight_bytes(), 512 * 64 * 4);
  EXPECT_EQ(tiny("llama-gqa-tied").find(Role::kHead), nullptr);
}

TEST(Families, NameAMissingTensorAWrongShapeAndAStrangeTensor) {
  Folder folder;
  const auto load = [&](const char* model, const char* key, const json& value) {
    copy_model(model, folder.path(), [&](json& config) { config[key] = value; });
    return thrown_by([&] { load_model(open_checkpoint(folder.path())); });
  };
  EXPECT_THAT(load("llama-mha", "mlp_bias", true).text,
              AllOf(HasSubstr("model.layers.0.mlp.gate_proj.bias"), HasSubstr("is missing")));
  EXPECT_THAT(
      load("llama-mha", "intermediate_size", 128).text,
      AllOf(HasSubstr("mlp.gate_proj.weight"), HasSubstr("[160, 64]"), HasSubstr("[128, 64]")));
  const auto extra = load("llama-mha", "num_hidden_layers", 2);
  EXPECT_EQ(extra.kind, Kind::kUnsupported);
  EXPECT_THAT(extra.text, HasSubstr("'model.layers.2.input_layernorm.weight' is no part"));
  EXPECT_THAT(load("llama-mha", "num_hidden_layers", 1 << 27).text,
              HasSubstr("134217728 layers but its files have 30 tensors"));
  EXPECT_THAT(load("llama-mha", "head_dim", 1 << 27).text, HasSubstr("at most 65536"));
  EXPECT_THAT(load("llama-mha", "head_dim", 15).text, HasSubstr("15 of 15 dimensions"));
}

// Base models are saved without the prefix of the class around them.
TEST(Families, AcceptTensorNamesWithoutThePrefix) {
  const std::pair<const char*, const char*> cases[] = {{"llama-gqa-tied", "model."},
                                                       {"opt-preln", "model."},
                                                       {"opt-350m-style", "model.decoder."},
                                                       {"gpt-neox-parallel", "gpt_neox."}};
  for (const auto& [name, prefix] : cases) {
    Checkpoint checkpoint = open_checkpoint(data(name));
    for (TensorInfo& tensor : checkpoint.tensors)
      if (tensor.name.starts_with(prefix)) tensor.name.erase(0, std::string(prefix).size());
    EXPECT_EQ(load_model(checkpoint).weight_bytes(), tiny(name).weight_bytes());
    checkpoint.tensors.push_back(checkpoint.tensors[0]);
    EXPECT_THAT(thrown_by([&] { load_model(checkpoint); }).text, HasSubstr("is there twice"));
  }
}

// GS-02
TEST(EndTokens, AreThoseOfGenerationConfigElseOfConfig) {
  Folder folder;
  copy_model("llama-mha", folder.path(), [](json&) {});
  EXPECT_THAT(end_tokens(open_checkpoint(folder.path())), ElementsAre(2));
  const auto with = [&](const char* generation) {
    write_file(folder / "generation_config.json", generation);
    return end_tokens(open_checkpoint(folder.path()));
  };
  EXPECT_THAT(with(R"({"eos_token_id": [9, 7, 8, 9]})"), ElementsAre(7, 8, 9));
  EXPECT_THAT(with(R"({"eos_token_id": 5})"), ElementsAre(5));
  EXPECT_THAT(with(R"({"eos_token_id": null})"), ElementsAre(2));
  EXPECT_THAT(with(R"({"temperature": 1})"), ElementsAre(2));
  EXPECT_THAT(thrown_by([&] { with(R"({"eos_token_id": "</s>"})"); }).text,
              AllOf(HasSubstr("generation_config.json"), HasSubstr("</s>")));
}

}  // namespace
}  // namespace transload::engine
