#include "planner/footprint.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "tests/planner/random_case.h"

namespace transload::planner {
namespace {

using layout::Tier;
using testing::HasSubstr;
using tests::Case;

void expect_apart(std::vector<Place> places, int64_t tier_bytes) {
  std::erase_if(places, [](const Place& place) { return place.bytes == 0; });
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.offset < b.offset; });
  for (size_t i = 0; i + 1 < places.size(); ++i) ASSERT_LE(places[i].end(), places[i + 1].offset);
  if (!places.empty()) {
    ASSERT_LE(places.back().end(), tier_bytes);
  }
}

TEST(Footprint, PlacesOfATierNeverOverlap) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Case made = tests::random_case(seed);
    const Footprint needs = footprint(made.model, made.plan);
    const DevicePlaces& d = needs.device;
    expect_apart({d.vectors, d.resident, d.weight_ring, d.kv, d.kv_ring, d.hidden, d.hidden_work,
                  d.visit, d.chunk, d.head_input, d.logits, d.gather},
                 needs.bytes[0]);
    const HostPlaces& h = needs.host;
    expect_apart({h.resident, h.staging, h.kv, h.kv_ring, h.hidden, h.query, h.gather},
                 needs.bytes[1]);
    ASSERT_EQ(needs.bytes[2], made.plan.kv_blocks[2] * needs.kv_block_bytes);
  }
}

TEST(Footprint, SixteenBitsHalveTheKvCacheAndItsRings) {
  const layout::Model model = tests::smollm2();
  Plan plan;
  plan.single_tier = false;
  plan.batch_size = 4;
  plan.prefill_tokens = 512;
  plan.chunk_tokens = 64;
  plan.max_tokens = 544;
  plan.piece_bytes = 1 << 20;
  plan.kv = {0.25, 0.25, 0.5};
  const Footprint wide = footprint(model, tests::fitted(model, plan, 4, {}));
  plan.kv_bits = 16;
  const Footprint narrow = footprint(model, tests::fitted(model, plan, 4, {}));
  EXPECT_EQ(narrow.kv_block_bytes, 2 * 3 * 64 * 64 * 2);
  EXPECT_EQ(2 * narrow.device.kv.bytes, wide.device.kv.bytes);
  EXPECT_EQ(2 * narrow.device.kv_ring.bytes, wide.device.kv_ring.bytes);
  EXPECT_EQ(2 * narrow.host.kv.bytes, wide.host.kv.bytes);
  EXPECT_EQ(2 * narrow.host.kv_ring.bytes, wide.host.kv_ring.bytes);
  EXPECT_EQ(2 * narrow.bytes[2], wide.bytes[2]);
  EXPECT_EQ(narrow.device.visit.bytes, wide.device.visit.bytes);
}

// Every resident slice is read from its file into the place where it is looked for.
TEST(Footprint, LoadsBringEachResidentSliceHome) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Case made = tests::random_case(seed);
    SCOPED_TRACE(seed);
    const Footprint needs = footprint(made.model, made.plan);
    ASSERT_EQ(needs.resident_offsets.size(), needs.slices.resident.size());
    for (size_t i = 0; i < needs.slices.resident.size(); ++i) {
      const layout::Piece& piece = needs.slices.resident[i];
      const int32_t file = made.model.weights[static_cast<size_t>(piece.weight)].extent.file;
      const int64_t home = needs.resident_offsets[i];
      int64_t brought = 0;
      for (const ResidentLoad& load : needs.loads) {
        if (load.home != piece.home || load.file != file) continue;
        const int64_t from = load.file_offset + load.skip;
        const int64_t bytes = load.staged ? load.copy_bytes : load.bytes;
        const int64_t begin = std::max(from, piece.file_offset);
        const int64_t end = std::min(from + bytes, piece.file_offset + piece.bytes);
        // The same distance in the file and at home.
        if (begin < end && load.target - from == home - piece.file_offset) brought += end - begin;
      }
      ASSERT_EQ(brought, piece.bytes) << "slice " << i;
      const int64_t place =
          piece.home == Tier::kDevice ? needs.device.resident.bytes : needs.host.resident.bytes;
      ASSERT_LE(home + piece.bytes, place);
    }
    for (const ResidentLoad& load : needs.loads) {
      ASSERT_EQ(load.file_offset % kPageBytes, 0);
      ASSERT_EQ(load.bytes % kPageBytes, 0);
      if (load.staged) {
        ASSERT_LE(load.skip + load.copy_bytes, load.bytes);
      } else {
        ASSERT_EQ(load.target % kPageBytes, 0);
      }
    }
  }
}

struct Fitting {
  layout::Model model = tests::make_model({});
  Plan plan;

  Fitting() {
    plan.single_tier = false;
    plan.weights = {0, 0.5, 0.5};
    plan.kv = {0, 0.5, 0.5};
    plan.batch_size = 2;
    plan.prefill_tokens = 100;
    plan.chunk_tokens = 16;
    plan.max_tokens = 130;
    plan.piece_bytes = 1 << 14;
    plan = tests::fitted(model, plan, 2, {});
  }
  std::string refusal(Kind kind) const {
    try {
      check_fits(model, plan, footprint(model, plan));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "fits";
  }
};

TEST(CheckFits, TakesAPlanWithExactlyWhatItNeeds) {
  EXPECT_EQ(Fitting().refusal(Kind::kInternal), "fits");
}

TEST(CheckFits, NamesTheTierThatLacksAByte) {
  const std::array<const char*, 3> flags = {"--device-memory", "--host-memory", "--disk-memory"};
  for (size_t t = 0; t < layout::kTiers; ++t) {
    Fitting made;
    const int64_t needed = made.plan.budget_bytes[t]--;
    EXPECT_THAT(made.refusal(Kind::kDoesNotFit),
                testing::AllOf(testing::StartsWith(layout::name(static_cast<Tier>(t))),
                               HasSubstr(std::to_string(needed) + " bytes"), HasSubstr(flags[t])));
  }
}

TEST(CheckFits, NamesRingsThatAreTooSmall) {
  const auto without = [](int64_t Plan::*field) {
    Fitting made;
    --(made.plan.*field);
    return made.refusal(Kind::kDoesNotFit);
  };
  EXPECT_THAT(without(&Plan::weight_ring_bytes), HasSubstr("the weight ring holds"));
  EXPECT_THAT(without(&Plan::staging_bytes), HasSubstr("staging holds"));
  EXPECT_THAT(without(&Plan::kv_ring_device_blocks), HasSubstr("a KV ring is smaller"));
  EXPECT_THAT(without(&Plan::kv_ring_host_blocks), HasSubstr("a KV ring is smaller"));
}

TEST(CheckFits, NamesAKvCacheBelowOneSequence) {
  Fitting made;
  made.plan.kv_blocks = {0, 2, 3};
  EXPECT_THAT(made.refusal(Kind::kDoesNotFit), HasSubstr("holds fewer blocks (5)"));
}

TEST(CheckFits, RefusesPlansThatContradictThemselves) {
  Fitting shares;
  shares.plan.weights = {0.5, 0.6, 0};
  EXPECT_THAT(shares.refusal(Kind::kUsage), HasSubstr("--weights: shares must"));
  Fitting kv;
  kv.plan.kv = {1.5, -0.5, 0};
  EXPECT_THAT(kv.refusal(Kind::kUsage), HasSubstr("--kv: shares must"));
  Fitting disk;
  disk.plan.activations = {0, 0, 1};
  EXPECT_THAT(disk.refusal(Kind::kUnsupported), HasSubstr("activations lie on device or host"));
  Fitting single;
  single.plan.single_tier = true;
  EXPECT_THAT(single.refusal(Kind::kInternal), HasSubstr("host share in a plan with a single"));
  Fitting attention;
  attention.plan.kv = {0.5, 0.5, 0};
  attention.plan.attention = AttentionSite::kHost;
  EXPECT_THAT(attention.refusal(Kind::kUnsupported), HasSubstr("--kv 0/x/y"));
  Fitting none;
  none.plan.chunk_tokens = 0;
  EXPECT_THAT(none.refusal(Kind::kUsage), HasSubstr("must be at least 1"));
}

}  // namespace
}  // namespace transload::planner
