#include "layout/slices.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

namespace transload::layout {
namespace {

// Three layers of matrices in two formats, tied or not.
Model small_model(bool tied) {
  Model model;
  model.spec.layers = 3;
  model.spec.tied_head = tied;
  int64_t offset = 1000;
  const auto add = [&](Role role, int32_t layer, quant::Format format, int64_t rows, int64_t cols) {
    Weight weight{.role = role,
                  .layer = layer,
                  .name = "",
                  .format = format,
                  .rows = rows,
                  .cols = cols,
                  .extent = {}};
    weight.extent = {.file = 0, .offset = offset, .bytes = rows * weight.row_bytes()};
    offset += weight.extent.bytes;
    model.weights.push_back(weight);
  };
  add(Role::kEmbedding, -1, quant::Format::kQ8_0, 1000, 64);
  add(Role::kProjectIn, -1, quant::Format::kF32, 64, 64);
  for (int32_t layer = 0; layer < 3; ++layer) {
    for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kO, Role::kUp, Role::kDown})
      add(role, layer, quant::Format::kQ4_1, 72 + 8 * static_cast<int64_t>(role), 128);
    add(Role::kNorm1, layer, quant::Format::kF32, 1, 64);
  }
  if (!tied) add(Role::kHead, -1, quant::Format::kF16, 1000, 64);
  return model;
}

std::vector<Shares> some_shares() {
  std::vector<Shares> all = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0.25, 0.5, 0.25}, {0.5, 0, 0.5}};
  std::mt19937_64 engine(7);
  for (int i = 0; i < 100; ++i) {
    const double a = static_cast<double>(engine() % 101) / 100;
    const double b = (1 - a) * static_cast<double>(engine() % 101) / 100;
    all.push_back({a, b, 1 - a - b});
  }
  return all;
}

TEST(Slices, EachRowLiesOnOneTierInGranules) {
  for (const bool tied : {true, false})
    for (const Shares& shares : some_shares()) {
      const Model model = small_model(tied);
      const WeightSlices slices = cut_weights(model, shares, 4096);
      for (size_t i = 0; i < model.weights.size(); ++i) {
        const Weight& weight = model.weights[i];
        if (!is_matrix(weight.role)) continue;
        const MatrixCut& cut = slices.cuts[i];
        ASSERT_EQ(cut.begin[0], 0);
        ASSERT_EQ(cut.begin[3], weight.rows);
        const int64_t granule = weight.layer < 0 && weight.role != Role::kProjectIn ? 64 : 8;
        for (int t = 1; t < kTiers; ++t) {
          const int64_t begin = cut.begin[static_cast<size_t>(t)];
          ASSERT_LE(cut.begin[static_cast<size_t>(t) - 1], begin);
          ASSERT_TRUE(begin == weight.rows || begin % granule == 0) << begin;
        }
      }
    }
}

TEST(Slices, BytesFollowTheShares) {
  for (const Shares& shares : some_shares()) {
    Model model = small_model(false);
    std::erase_if(model.weights, [](const Weight& w) { return w.role == Role::kProjectIn; });
    const WeightSlices slices = cut_weights(model, shares, 4096);
    const auto all = static_cast<double>(slices.bytes[0] + slices.bytes[1] + slices.bytes[2]);
    // A granule of the head is the largest that a tier can be off by.
    const double granule = 64 * 128;
    EXPECT_NEAR(static_cast<double>(slices.bytes[0]), shares.device * all, granule);
    EXPECT_NEAR(static_cast<double>(slices.bytes[1]), shares.host * all, 2 * granule);
    EXPECT_NEAR(static_cast<double>(slices.bytes[2]), shares.disk * all, 2 * granule);
  }
}

TEST(Slices, WholeSharesAreWhole) {
  const Model model = small_model(false);
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    Shares shares{tier == Tier::kDevice ? 1.0 : 0, tier == Tier::kHost ? 1.0 : 0,
                  tier == Tier::kDisk ? 1.0 : 0};
    const WeightSlices slices = cut_weights(model, shares, 4096);
    for (size_t i = 0; i < model.weights.size(); ++i) {
      const Weight& weight = model.weights[i];
      if (!is_matrix(weight.role)) continue;
      const Tier home = weight.role == Role::kProjectIn ? Tier::kDevice : tier;
      EXPECT_EQ(slices.cuts[i].rows(home), weight.rows) << name(weight.role);
    }
  }
}

TEST(Slices, StreamedPiecesCoverAllRowsOffTheDeviceOnceInOrder) {
  for (const bool tied : {true, false})
    for (const Shares& shares : some_shares()) {
      const Model model = small_model(tied);
      const WeightSlices slices = cut_weights(model, shares, 4096);
      ASSERT_EQ(slices.stages.size(), 4U);
      for (size_t s = 0; s < slices.stages.size(); ++s) {
        std::map<int32_t, int64_t> next;  // by weight: the row expected
        int64_t bytes = 0;
        for (const Piece& piece : slices.stages[s].pieces) {
          const auto i = static_cast<size_t>(piece.weight);
          const Weight& weight = model.weights[i];
          ASSERT_EQ(weight.layer, s == 3 ? -1 : static_cast<int32_t>(s));
          next.try_emplace(piece.weight, slices.cuts[i].begin[1]);
          ASSERT_EQ(piece.first_row, next[piece.weight]);
          next[piece.weight] += piece.rows;
          ASSERT_EQ(piece.bytes, piece.rows * weight.row_bytes());
          ASSERT_EQ(piece.file_offset, weight.extent.offset + piece.first_row * weight.row_bytes());
          ASSERT_TRUE(piece.bytes <= 4096 || piece.rows <= (weight.layer < 0 ? 64 : 8));
          bytes += piece.bytes;
        }
        ASSERT_EQ(bytes, slices.stages[s].bytes);
        for (const auto& [weight, row] : next)
          ASSERT_EQ(row, model.weights[static_cast<size_t>(weight)].rows);
      }
    }
}

TEST(Slices, TheHeadIsTheEmbeddingWhereTied) {
  const Model tied = small_model(true);
  EXPECT_EQ(head_weight(tied).role, Role::kEmbedding);
  const Model separate = small_model(false);
  EXPECT_EQ(head_weight(separate).role, Role::kHead);
  // An embedding that is not the head is gathered, never streamed.
  const WeightSlices slices = cut_weights(separate, {0, 0, 1}, 4096);
  for (const Stage& stage : slices.stages)
    for (const Piece& piece : stage.pieces) EXPECT_NE(piece.weight, 0);
}

}  // namespace
}  // namespace transload::layout
