#include "base/units.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/error.h"

namespace transload {
namespace {

TEST(Units, ReadsDecimalAndBinarySizes) {
  EXPECT_EQ(parse_bytes("64MiB", "--x"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("2GB", "--x"), 2 * kGB);
  EXPECT_EQ(parse_bytes("1.5 GB", "--x"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("4096", "--x"), 4096);
  EXPECT_EQ(parse_bytes("0", "--x"), 0);
}

TEST(Units, RefusesWhatIsNoSizeAndNamesTheFlag) {
  for (const char* text : {"", "x", "-1", "1QB", "1e300GB", "nan", "12 MBs", "99999999TB"}) {
    try {
      parse_bytes(text, "--device-memory");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Kind::kUsage);
      EXPECT_NE(std::string(error.what()).find("--device-memory"), std::string::npos);
    }
  }
}

TEST(Units, PrintsThreeDigits) {
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(24'000'000), "24.0 MB");
  EXPECT_EQ(format_bytes(2'630'000'000), "2.63 GB");
  EXPECT_EQ(format_bytes(123'400'000), "123 MB");
}

TEST(Check, ThrowsInternalWithItsPlace) {
  EXPECT_NO_THROW(check(true, "fine"));
  try {
    check(false, "broken invariant");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::kInternal);
    EXPECT_NE(std::string(error.what()).find("units_test.cc"), std::string::npos);
  }
}

TEST(ErrorKinds, HaveDistinctExitStatus) {
  EXPECT_EQ(exit_status(Kind::kUsage), 2);
  EXPECT_EQ(exit_status(Kind::kInternal), 70);
  EXPECT_EQ(code(Kind::kDoesNotFit), "does_not_fit");
}

}  // namespace
}  // namespace transload
