#include "tests/bench/ratios/ratios.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace transload::bench {
namespace {

using testing::HasSubstr;

Ratios attention() {
  return {"kv_bytes", "GB/s", {{"read: attention", "Read/1/", "Attend/1/", true, 0.6}}};
}

TEST(Ratios, ComparesWhatEndsAlikeByTheBestRepetition) {
  Ratios ratios("products", "G products/s", {{"old: new", "Old/", "New/", false, {}}});
  ratios.add("Old/a", 1e9);
  ratios.add("Old/a", 2e9);
  ratios.add("New/a", 5e9);
  ratios.add("New/b", 9e9);
  EXPECT_EQ(ratios.text(),
            "\nold: new\n  a                           2.0 :      5.0 G products/s    2.50 x\n");
  EXPECT_TRUE(ratios.held());
}

TEST(Ratios, SaysNothingOfWhatWasNotRun) {
  const Ratios ratios("products", "G products/s", {{"old: new", "Old/", "New/", false, {}}});
  EXPECT_EQ(ratios.text(), "");
  EXPECT_TRUE(ratios.held());
}

TEST(Ratios, HoldsEachShapeToTheGate) {
  Ratios ratios = attention();
  ratios.add("Read/1/MiB:288", 10e9);
  ratios.add("Read/2/MiB:288", 90e9);
  ratios.add("Attend/1/heads:0", 6e9);
  EXPECT_THAT(ratios.text(), HasSubstr("0.60 x  (at least 0.60: held)"));
  EXPECT_TRUE(ratios.held());
  ratios.add("Attend/1/heads:1", 5e9);
  EXPECT_THAT(ratios.text(), HasSubstr("0.50 x  (at least 0.60: missed)"));
  EXPECT_FALSE(ratios.held());
}

TEST(Ratios, MissesAGateThatWasNotMeasured) {
  Ratios ratios = attention();
  ratios.add("Attend/1/heads:0", 6e9);
  EXPECT_THAT(ratios.text(), HasSubstr("read: attention\n  not measured\n"));
  EXPECT_FALSE(ratios.held());
}

}  // namespace
}  // namespace transload::bench
