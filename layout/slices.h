// Cutting a model's matrices into row slices on the tiers, and the streamed slices into pieces.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "layout/tier.h"
#include "layout/weights.h"

namespace transload::layout {

// Rows [begin[t], begin[t + 1]) of a matrix lie on tier t: device first, then host, then disk.
struct MatrixCut {
  std::array<int64_t, kTiers + 1> begin{};

  int64_t rows(Tier tier) const {
    const auto t = static_cast<size_t>(tier);
    return begin[t + 1] - begin[t];
  }
};

// Part of a matrix that moves as one.
struct Piece {
  int32_t weight = 0;  // index into Model::weights
  Tier home = Tier::kDevice;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t file_offset = 0;  // in the weight's file
  int64_t bytes = 0;
};

// One visit of the weight stream: the pieces of a layer, or of the head, in order of use.
struct Stage {
  std::vector<Piece> pieces;
  int64_t bytes = 0;
};

// Where every matrix lies, for one set of shares.
struct WeightSlices {
  std::vector<MatrixCut> cuts;  // by weight; vectors have no rows here
  std::vector<Piece> resident;  // device and host slices, by tier and then file position
  std::vector<Stage> stages;    // streamed pieces of layers 0.., then of the head
  std::array<int64_t, kTiers> bytes{};
};

// Cuts at whole rows so that the bytes of each tier follow `shares` of all placed matrices as
// closely as granules of 8 rows (64 for embedding and head) allow: the rounding of one matrix is
// made good by the next. Positions and projections always lie on the device. No piece is larger
// than piece_bytes unless a single granule is.
WeightSlices cut_weights(const Model& model, const Shares& shares, int64_t piece_bytes);

// The matrix that the head multiplies with: kHead, or kEmbedding where tied.
const Weight& head_weight(const Model& model);

}  // namespace transload::layout
