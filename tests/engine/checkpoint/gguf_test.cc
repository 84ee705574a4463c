#include "engine/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/checkpoint/files.h"
#include "tests/engine/checkpoint/tiny_gguf.h"

namespace transload::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transload::testing::Folder;
using transload::testing::GgufBuilder;
using transload::testing::read_file;
using transload::testing::thrown_by;
using transload::testing::tiny_llama_gguf;
using transload::testing::write_file;
namespace fs = std::filesystem;

GgufHeader parse(const std::string& bytes) {
  return parse_gguf_header(
      MemorySource("file", std::as_bytes(std::span(bytes)), static_cast<int64_t>(bytes.size())));
}

std::string refusal(const std::string& bytes) {
  const auto error = thrown_by([&] { parse(bytes); });
  EXPECT_EQ(error.kind, Kind::kBadInput) << error.text;
  return error.text;
}

GgufBuilder sample() {
  GgufBuilder builder;
  builder.text("general.architecture", "llama").u32("count", 7).f32("scale", 0.5F);
  builder.flag("yes", true).i32("below", -3).u16("small", 9);
  builder.texts("words", {"a", "", "cde"}).i32s("types", {1, -2}).f32s("scores", {0.25F});
  builder.floats("first", {2, 3}, 1.0F);
  builder.tensor("second", {2, 32}, 8, std::string(2 * 34, 'q'));
  return builder;
}

TEST(Gguf, GivesPairsArraysAndTensors) {
  for (const uint32_t version : {2U, 3U}) {
    GgufBuilder builder = sample();
    builder.version = version;
    const GgufHeader header = parse(builder.bytes());
    EXPECT_EQ(header.metadata["count"], 7);
    EXPECT_EQ(header.metadata["scale"], 0.5);
    EXPECT_EQ(header.metadata["yes"], true);
    EXPECT_EQ(header.metadata["below"], -3);
    EXPECT_EQ(header.metadata["small"], 9);
    const StringTable& words = header.string_arrays.at("words");
    ASSERT_EQ(words.size(), 3);
    EXPECT_EQ(words[0], "a");
    EXPECT_EQ(words[1], "");
    EXPECT_EQ(words[2], "cde");
    EXPECT_THAT(header.number_arrays.at("types"), ElementsAre(1, -2));
    EXPECT_THAT(header.number_arrays.at("scores"), ElementsAre(0.25));
    ASSERT_EQ(header.tensors.size(), 2U);
    EXPECT_THAT(header.tensors[0].shape, ElementsAre(2, 3));
    EXPECT_EQ(header.tensors[1].format, quant::Format::kQ8_0);
    EXPECT_EQ(header.tensors[1].extent.bytes, 68);
    EXPECT_EQ(builder.bytes().substr(static_cast<size_t>(header.tensors[1].extent.offset), 68),
              std::string(68, 'q'));
  }
}

TEST(Gguf, KeepsItsAlignment) {
  GgufBuilder builder;
  builder.alignment = 256;
  builder.u32("general.alignment", 256).floats("a", {1}, 1.0F).floats("b", {1}, 2.0F);
  const GgufHeader header = parse(builder.bytes());
  EXPECT_EQ(header.tensors[0].extent.offset % 256, 0);
  EXPECT_EQ(header.tensors[1].extent.offset - header.tensors[0].extent.offset, 256);
}

TEST(Gguf, RefusesOtherVersionsByteOrdersAndFiles) {
  EXPECT_THAT(refusal("PK\3\4 something else"), HasSubstr("is no GGUF file"));
  EXPECT_THAT(refusal("GG"), HasSubstr("truncated"));
  for (const uint32_t version : {1U, 4U, 0x03000000U}) {
    GgufBuilder builder = sample();
    builder.version = version;
    const auto error = thrown_by([&] { parse(builder.bytes()); });
    EXPECT_EQ(error.kind, Kind::kUnsupported);
    EXPECT_THAT(error.text, HasSubstr("GGUF version " + std::to_string(version)));
    EXPECT_EQ(error.text.find("(big endian)") != std::string::npos, version == 0x03000000U);
  }
}

TEST(Gguf, RefusesOtherTensorTypesByTensorAndType) {
  const std::pair<uint32_t, const char*> cases[] = {{6, "Q5_0"}, {10, "Q2_K"},  {23, "IQ4_XS"},
                                                    {24, "I8"},  {39, "MXFP4"}, {77, "unknown"}};
  for (const auto& [type, name] : cases) {
    GgufBuilder builder;
    builder.tensor("blk.0.odd", {256}, type, std::string(256, 'x'));
    const auto error = thrown_by([&] { parse(builder.bytes()); });
    EXPECT_EQ(error.kind, Kind::kUnsupported);
    EXPECT_THAT(error.text, AllOf(HasSubstr("'blk.0.odd'"), HasSubstr(name), HasSubstr("Q6_K")));
  }
}

TEST(Gguf, ReadsEverySupportedType) {
  const std::pair<uint32_t, quant::Format> cases[] = {
      {0, quant::Format::kF32},   {1, quant::Format::kF16},   {30, quant::Format::kBF16},
      {2, quant::Format::kQ4_0},  {3, quant::Format::kQ4_1},  {8, quant::Format::kQ8_0},
      {12, quant::Format::kQ4_K}, {13, quant::Format::kQ5_K}, {14, quant::Format::kQ6_K}};
  for (const auto& [type, format] : cases) {
    GgufBuilder builder;
    builder.tensor("t", {512}, type, std::string(size_t{4} * 512, 'x'));
    const GgufHeader header = parse(builder.bytes());
    EXPECT_EQ(header.tensors[0].format, format);
    EXPECT_EQ(header.tensors[0].extent.bytes, quant::row_bytes(format, 512));
  }
}

TEST(Gguf, RefusesDamagedPairs) {
  const std::string huge = std::string("\xff\xff\xff\xff\xff\xff\xff\x00", 8);
  const auto array = [](char type, const std::string& count) {
    return std::string{type, 0, 0, 0} + count;
  };
  EXPECT_THAT(refusal(GgufBuilder().raw("k", 13, "x").bytes()),
              HasSubstr("'k' has a value of type 13"));
  EXPECT_THAT(refusal(GgufBuilder().raw("k", GgufBuilder::kBool, "\2").bytes()),
              HasSubstr("a boolean is 2"));
  EXPECT_THAT(refusal(GgufBuilder().raw("k", GgufBuilder::kString, huge).bytes()),
              HasSubstr("the value of 'k'"));
  EXPECT_THAT(refusal(GgufBuilder().raw("k", GgufBuilder::kArray, array(5, huge)).bytes()),
              HasSubstr("'k' claims"));
  EXPECT_THAT(refusal(GgufBuilder().raw("k", GgufBuilder::kArray, array(8, huge)).bytes()),
              HasSubstr("'k' claims"));
  EXPECT_THAT(
      refusal(GgufBuilder()
                  .raw("k", GgufBuilder::kArray, array(9, std::string("\1\0\0\0\0\0\0\0", 8)))
                  .bytes()),
      HasSubstr("array of values of type 9"));
  EXPECT_THAT(refusal(GgufBuilder().u32("k", 1).u32("k", 1).bytes()),
              HasSubstr("'k' is set twice"));
  EXPECT_THAT(refusal(GgufBuilder().u32("", 1).bytes()), HasSubstr("a key is empty"));
}

TEST(Gguf, RefusesTextsAndArraysAboveTheLimitsThoughTheFileHoldsThem) {
  EXPECT_THAT(refusal(GgufBuilder().text(std::string(70000, 'k'), "v").bytes()),
              HasSubstr("a key of 70000 bytes where at most 65535"));
  std::string count(8, '\0');
  count[2] = '\x41';  // 4259840 bytes
  EXPECT_THAT(refusal(GgufBuilder()
                          .raw("k", GgufBuilder::kArray,
                               std::string("\0\0\0\0", 4) + count + std::string(5'000'000, 'x'))
                          .bytes()),
              HasSubstr("at most 4194304"));
}

TEST(Gguf, RefusesDamagedTensors) {
  EXPECT_THAT(refusal(GgufBuilder().tensor("t", {}, 0, "abcdabcdabcd").bytes()),
              HasSubstr("'t' has 0 dimensions"));
  EXPECT_THAT(refusal(GgufBuilder().tensor("t", {1, 1, 1, 1, 1}, 0, "abcd").bytes()),
              HasSubstr("'t' has 5 dimensions"));
  EXPECT_THAT(refusal(GgufBuilder().tensor("t", {0}, 0, "abcd").bytes()),
              HasSubstr("a dimension of 0"));
  EXPECT_THAT(
      refusal(GgufBuilder().tensor("t", {int64_t{1} << 40, int64_t{1} << 40}, 0, "").bytes()),
      HasSubstr("impossible shape"));
  EXPECT_THAT(refusal(GgufBuilder().tensor("t", {33}, 8, std::string(34, 'x')).bytes()),
              HasSubstr("no whole blocks of Q8_0"));
  EXPECT_THAT(refusal(GgufBuilder().floats("t", {8}, 0).floats("t", {8}, 0).bytes()),
              HasSubstr("'t' is listed twice"));
  EXPECT_THAT(refusal(GgufBuilder().u32("general.alignment", 3).floats("t", {8}, 0).bytes()),
              HasSubstr("general.alignment"));
  GgufBuilder packed;
  packed.alignment = 8;  // but the file says nothing, so 32 holds
  packed.floats("a", {2}, 0).floats("b", {2}, 0);
  EXPECT_THAT(refusal(packed.bytes() + std::string(64, 'x')), HasSubstr("'b' begins at byte 8"));
}

// CK-05
TEST(Gguf, NamesTheFirstTensorPastTheEndOfATruncatedFile) {
  Folder folder;
  const std::string whole = tiny_llama_gguf().bytes();
  const GgufHeader header = parse(whole);
  for (const size_t cut : {size_t{40}, size_t{700}, size_t{1500}}) {
    const auto left = static_cast<int64_t>(whole.size() - cut);
    write_file(folder / "m.gguf", whole.substr(0, whole.size() - cut));
    const auto first =
        std::find_if(header.tensors.begin(), header.tensors.end(), [&](const TensorInfo& tensor) {
          return tensor.extent.offset + tensor.extent.bytes > left;
        });
    ASSERT_NE(first, header.tensors.end());
    const auto error = thrown_by([&] { open_checkpoint(folder / "m.gguf"); });
    EXPECT_EQ(error.kind, Kind::kBadInput);
    EXPECT_THAT(error.text, AllOf(HasSubstr(folder / "m.gguf"), HasSubstr("'" + first->name + "'"),
                                  HasSubstr(std::to_string(left) + " bytes"),
                                  HasSubstr(std::to_string(header.data_end) + " expected")));
  }
}

TEST(Gguf, EveryCutInTheHeaderIsAnErrorNamingTheFile) {
  const GgufBuilder builder = sample();
  const std::string whole = builder.bytes();
  for (size_t bytes = 0; bytes < builder.header().size(); ++bytes)
    EXPECT_THAT(thrown_by([&] { parse(whole.substr(0, bytes)); }).text, HasSubstr("file")) << bytes;
}

// Every byte of the header damaged in four ways: an Error or another valid header.
TEST(Gguf, EveryDamagedByteOfAHeaderIsAnErrorOrAValidHeader) {
  const GgufBuilder builder = sample();
  const std::string sound = builder.bytes();
  for (size_t at = 0; at < builder.header().size(); ++at)
    for (const char bits : {'\x01', '\x10', '\x80', '\xff'}) {
      std::string bytes = sound;
      bytes[at] = static_cast<char>(bytes[at] ^ bits);
      try {
        for (const TensorInfo& tensor : parse(bytes).tensors)
          EXPECT_LE(tensor.extent.offset + tensor.extent.bytes, static_cast<int64_t>(bytes.size()));
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), Kind::kInternal) << at;
      }
    }
}

TEST(Gguf, IsRecognisedByItsFirstBytesWhateverItIsCalled) {
  Folder folder;
  tiny_llama_gguf().write(folder / "blob");
  EXPECT_EQ(open_checkpoint(folder / "blob").kind, Checkpoint::Kind::kGguf);
}

// A set of three parts as gguf-split writes it: the first has the metadata and no tensor.
class GgufSplit : public ::testing::Test {
 protected:
  GgufSplit() {
    for (int i = 0; i < 3; ++i) write_part(i, i, 3, 12);
  }
  static bool in_part(const std::string& tensor, int i) {
    return i > 0 && (tensor.starts_with("blk.") ? 1 : 2) == i;
  }
  void write_part(int file, int number, int count, int total) const {
    GgufBuilder builder =
        tiny_llama_gguf([&](const std::string& tensor) { return in_part(tensor, file); });
    builder.u16("split.no", static_cast<uint16_t>(number));
    builder.u16("split.count", static_cast<uint16_t>(count)).i32("split.tensors.count", total);
    builder.write(part(file));
  }
  std::string part(int i) const {
    return folder_ / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf");
  }
  std::string refusal_of(const std::string& path) const {
    const auto error = thrown_by([&] { open_checkpoint(path); });
    EXPECT_EQ(error.kind, Kind::kBadInput);
    return error.text;
  }

  Folder folder_;
};

// CK-06 (a)
TEST_F(GgufSplit, AnyPartStandsForTheSet) {
  for (int i = 0; i < 3; ++i) {
    const Checkpoint checkpoint = open_checkpoint(part(i));
    EXPECT_THAT(checkpoint.files, ElementsAre(part(0), part(1), part(2)));
    const layout::Model model = load_model(checkpoint);
    EXPECT_EQ(model.weights.size(), 12U);
    EXPECT_EQ(model.find(layout::Role::kQ, 0)->extent.file, 1);
    EXPECT_EQ(model.find(layout::Role::kHead)->extent.file, 2);
  }
}

// CK-06 (b)
TEST_F(GgufSplit, NamesTheMissingPart) {
  fs::remove(part(2));
  EXPECT_THAT(refusal_of(part(1)), AllOf(HasSubstr(part(2)), HasSubstr("is missing: part 3 of 3")));
}

// CK-06 (c)
TEST_F(GgufSplit, SaysThatPartsWereJoinedByConcatenation) {
  const std::string joined = read_file(part(0)) + read_file(part(1)) + read_file(part(2));
  for (const char* name : {"joined.gguf", "j-00001-of-00003.gguf"}) {
    write_file(folder_ / name, joined);
    EXPECT_THAT(refusal_of(folder_ / name), HasSubstr("joined by concatenation"));
  }
  write_file(folder_ / "two.gguf", read_file(part(1)) + read_file(part(2)));
  EXPECT_THAT(refusal_of(folder_ / "two.gguf"), HasSubstr("joined by concatenation"));
}

TEST_F(GgufSplit, RefusesPartsThatDoNotBelong) {
  fs::copy_file(part(1), folder_ / "renamed.gguf");
  EXPECT_THAT(refusal_of(folder_ / "renamed.gguf"), HasSubstr("must end in -00002-of-00003.gguf"));
  write_part(2, 1, 3, 12);
  EXPECT_THAT(refusal_of(part(0)), AllOf(HasSubstr(part(2)), HasSubstr("says it is part 2 of 3")));
  write_part(2, 7, 3, 12);
  EXPECT_THAT(refusal_of(part(2)), HasSubstr("says it is part 8 of 3"));
  write_part(2, 2, 3, 13);
  EXPECT_THAT(refusal_of(part(2)), HasSubstr("hold 12 tensors where split.tensors.count says 13"));
  fs::copy_file(part(1), part(2), fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_of(part(0)), HasSubstr("not a valid split"));
  write_part(1, 2, 3, 12);
  fs::rename(part(1), part(2));
  write_part(1, 1, 3, 12);
  EXPECT_THAT(refusal_of(part(0)), HasSubstr("is in two parts"));
}

TEST_F(GgufSplit, RefusesCountsThatAreNone) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.text("split.count", "three").write(folder_ / "odd.gguf");
  EXPECT_THAT(refusal_of(folder_ / "odd.gguf"), HasSubstr("split.count is no count"));
}

}  // namespace
}  // namespace transload::engine
