// Synthetic models, and plans with the rings that they need.
#pragma once

#include <cstdint>

#include "layout/weights.h"
#include "planner/footprint.h"
#include "planner/plan.h"

namespace transload::tests {

struct ModelShape {
  int64_t layers = 2;
  int64_t hidden = 64;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 16;
  int64_t ffn = 96;
  int64_t vocab = 320;
  quant::Format format = quant::Format::kQ4_1;
  bool tied = true;
  bool opt = false;  // OPT's form: learned positions, biases, projected embeddings, no gate
  int32_t files = 1;
};

// Weights in execution order, extents behind one another (not page-aligned) in `files` files.
layout::Model make_model(const ModelShape& shape);

// SmolLM2-135M in Q4_1 with a Q8_0 embedding: 30 layers of 2.2 MB, 30 MB of embedding.
layout::Model smollm2();

// How much more than the least the rings of a plan get.
struct Slack {
  int64_t weight_ring_bytes = 0;
  int64_t staging_bytes = 0;
  int64_t kv_ring_blocks = 0;
};

// The plan with the smallest rings and KV arenas for `sequences` whole sequences by its shares, and
// with budgets that are exactly what it needs.
planner::Plan fitted(const layout::Model& model, planner::Plan plan, int64_t sequences,
                     const Slack& slack);

}  // namespace transload::tests
