#include "tests/planner/models.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/units.h"
#include "layout/kv_table.h"

namespace transload::tests {

using layout::Model;
using layout::Role;
using layout::Tier;

namespace {

// Appends weights with their extents.
class Builder {
 public:
  Builder(Model& model, const ModelShape& shape) : model_(model), shape_(shape) {
    for (int32_t i = 0; i < shape.files; ++i) {
      model.files.push_back("part-" + std::to_string(i) + ".gguf");
      ends_.push_back(4128 + 32 * i);
    }
  }

  void add(Role role, int32_t layer, quant::Format format) {
    const layout::Shape size = layout::shape_of(model_.spec, role);
    const bool matrix = is_matrix(role);
    layout::Weight weight{.role = role,
                          .layer = layer,
                          .name = std::to_string(layer) + "." + std::string(name(role)),
                          .format = matrix ? format : quant::Format::kF32,
                          .rows = size.rows,
                          .cols = size.cols,
                          .extent = {}};
    const auto file = std::min<int32_t>(shape_.files - 1, (layer < 0 ? 0 : layer) * shape_.files /
                                                              static_cast<int32_t>(shape_.layers));
    int64_t& end = ends_[static_cast<size_t>(file)];
    weight.extent = {.file = file, .offset = end, .bytes = weight.rows * weight.row_bytes()};
    end += round_up(weight.extent.bytes, 32);
    model_.weights.push_back(weight);
  }
  void add_all(std::initializer_list<Role> roles, int32_t layer) {
    for (const Role role : roles) add(role, layer, shape_.format);
  }

 private:
  Model& model_;
  const ModelShape& shape_;
  std::vector<int64_t> ends_;
};

layout::DecoderSpec spec_of(const ModelShape& shape) {
  layout::DecoderSpec spec;
  spec.family = shape.opt ? "opt" : "llama";
  spec.layers = shape.layers;
  spec.hidden = shape.hidden;
  spec.heads = shape.heads;
  spec.kv_heads = shape.kv_heads;
  spec.head_dim = shape.head_dim;
  spec.ffn = shape.ffn;
  spec.vocab = shape.vocab;
  spec.embed_dim = shape.opt ? shape.hidden / 2 : shape.hidden;
  spec.max_positions = 2048;
  spec.rotary_dim = shape.head_dim;
  spec.gated = !shape.opt;
  spec.tied_head = shape.tied;
  if (shape.opt) {
    spec.norm = layout::NormKind::kLayer;
    spec.position = layout::PositionKind::kLearned;
    spec.position_offset = 2;
    spec.activation = layout::Activation::kRelu;
  }
  return spec;
}

int64_t part(double share, int64_t blocks) {
  return std::llround(share * static_cast<double>(blocks));
}

}  // namespace

Model make_model(const ModelShape& shape) {
  Model model;
  model.name = "synthetic";
  model.spec = spec_of(shape);
  Builder builder(model, shape);
  builder.add(Role::kEmbedding, -1,
              shape.format == quant::Format::kQ4_1 ? quant::Format::kQ8_0 : shape.format);
  if (shape.opt) builder.add_all({Role::kPositions, Role::kProjectIn}, -1);
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    builder.add_all({Role::kQ, Role::kK, Role::kV, Role::kO}, layer);
    if (!shape.opt) builder.add_all({Role::kGate}, layer);
    builder.add_all({Role::kUp, Role::kDown, Role::kNorm1, Role::kNorm2}, layer);
    if (shape.opt) builder.add_all({Role::kQBias, Role::kOBias, Role::kDownBias}, layer);
  }
  if (shape.opt) builder.add_all({Role::kProjectOut}, -1);
  builder.add_all({Role::kFinalNorm}, -1);
  if (!shape.tied) builder.add_all({Role::kHead}, -1);
  return model;
}

Model smollm2() {
  Model model = make_model({.layers = 30,
                            .hidden = 576,
                            .heads = 9,
                            .kv_heads = 3,
                            .head_dim = 64,
                            .ffn = 1536,
                            .vocab = 49152});
  model.name = "SmolLM2-135M-Instruct";
  return model;
}

planner::Plan fitted(const Model& model, planner::Plan plan, int64_t sequences,
                     const Slack& slack) {
  if (plan.keeps_kv()) {
    const int64_t blocks =
        sequences * model.spec.layers * ceil_div(plan.max_tokens, layout::kKvBlockSlots);
    const int64_t device = part(plan.kv.device, blocks);
    const int64_t host = std::min(part(plan.kv.host, blocks), blocks - device);
    plan.kv_blocks = {device, host, blocks - device - host};
    const int64_t ring = ceil_div(plan.max_tokens, layout::kKvBlockSlots) + slack.kv_ring_blocks;
    const bool on_device = plan.attention == planner::AttentionSite::kDevice;
    const int64_t off_device = plan.kv_blocks[1] + plan.kv_blocks[2];
    plan.kv_ring_device_blocks = off_device > 0 && on_device ? ring : 0;
    plan.kv_ring_host_blocks = plan.kv_blocks[2] > 0 && !plan.single_tier ? ring : 0;
  }
  const planner::Footprint least = planner::footprint(model, plan);
  plan.weight_ring_bytes = planner::smallest_weight_ring(plan, least) + slack.weight_ring_bytes;
  plan.staging_bytes = planner::smallest_staging(plan, least);
  if (!plan.single_tier) plan.staging_bytes += slack.staging_bytes;
  plan.budget_bytes = planner::footprint(model, plan).bytes;
  return plan;
}

}  // namespace transload::tests
