#include "engine/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/checkpoint/safetensors_writer.h"
#include "tests/engine/checkpoint/files.h"

namespace transload::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using transload::testing::copy_model;
using transload::testing::data;
using transload::testing::Folder;
using transload::testing::read_file;
using transload::testing::thrown_by;
using transload::testing::write_file;
namespace fs = std::filesystem;

void keep(json&) {}

// A file with a header and `data_bytes` of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char*>(&bytes), 8) + header +
         std::string(data_bytes, 'x');
}

std::vector<TensorInfo> parse(const std::string& bytes) {
  return parse_safetensors_header(
      MemorySource("file", std::as_bytes(std::span(bytes)), static_cast<int64_t>(bytes.size())), 0);
}

const char* const kTwo = R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
                         R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})";

TEST(Safetensors, GivesTensorsWithOffsetsOfTheFile) {
  const auto tensors = parse(file_of(kTwo, 20));
  const int64_t begin = 8 + static_cast<int64_t>(std::string(kTwo).size());
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].format, quant::Format::kF16);
  EXPECT_THAT(tensors[0].shape, ::testing::ElementsAre(2, 3));
  EXPECT_EQ(tensors[1].extent.offset, begin + 12);
  EXPECT_EQ(tensors[1].extent.bytes, 8);
}

TEST(Safetensors, RefusesDamagedHeadersByNameAndField) {
  const auto entry = [](const char* body) { return std::string(R"({"t":{)") + body + "}}"; };
  const std::pair<std::string, const char*> cases[] = {
      {"[1]", "header is no JSON object"},
      {"{\"t\":", "header is no JSON object"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "'t' is listed twice"},
      {R"({"t":3})", "'t': has no 'dtype'"},
      {entry(R"("dtype":3,"shape":[1],"data_offsets":[0,4])"), "has no 'dtype'"},
      {entry(R"("dtype":"F32","data_offsets":[0,4])"), "has no 'shape'"},
      {entry(R"("dtype":"F32","shape":7,"data_offsets":[0,4])"), "'shape' is no list"},
      {entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "'shape' holds no size"},
      {entry(R"("dtype":"F32","shape":[1])"), "no pair 'data_offsets'"},
      {entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "'data_offsets' is no range"},
      {entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "need 8 bytes"},
      {entry(R"("dtype":"F32","shape":[1152921504606846976,1024],"data_offsets":[0,4])"),
       "more than 2^63"},
      {entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "begins at byte 4"},
  };
  for (const auto& [header, text] : cases) {
    const auto error = thrown_by([&] { parse(file_of(header, 4)); });
    EXPECT_EQ(error.kind, Kind::kBadInput) << header;
    EXPECT_THAT(error.text, AllOf(HasSubstr("file"), HasSubstr(text))) << header;
  }
}

TEST(Safetensors, RefusesImpossibleHeaderLengthsBeforeReadingThem) {
  EXPECT_THAT(thrown_by([] { parse("abc"); }).text, HasSubstr("truncated: has 3 bytes"));
  std::string bytes = file_of(kTwo, 20);
  bytes[7] = '\x7f';
  EXPECT_THAT(thrown_by([&] { parse(bytes); }).text, HasSubstr("claims a header of"));
  bytes = file_of(kTwo, 0);
  bytes.resize(40);
  EXPECT_THAT(thrown_by([&] { parse(bytes); }).text,
              HasSubstr("truncated: its header needs 120 bytes but the file has 40"));
}

TEST(Safetensors, RefusesOtherTypesNamingTheTensor) {
  const auto error = thrown_by(
      [] { parse(file_of(R"({"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4)); });
  EXPECT_EQ(error.kind, Kind::kUnsupported);
  EXPECT_THAT(error.text, AllOf(HasSubstr("'w'"), HasSubstr("F8_E4M3"), HasSubstr("BF16")));
}

TEST(Safetensors, LeavesOutBuffersThatAreNoWeightsWhateverTheirType) {
  const auto tensors = parse(
      file_of(R"({"layers.0.attention.bias":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]},)"
              R"("w":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}})",
              8));
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "w");
}

// CK-05
TEST(Safetensors, NamesTheFirstTensorPastTheEndOfATruncatedFile) {
  Folder folder;
  copy_model("llama-mha", folder.path(), keep);
  fs::remove(folder / "model.safetensors");
  std::string bytes = read_file(data("llama-mha") + "/model.safetensors");
  const size_t whole = bytes.size();
  const auto tensors = parse(bytes);
  for (const size_t cut : {size_t{1}, size_t{100'000}, size_t{400'000}}) {
    const auto left = static_cast<int64_t>(whole - cut);
    const auto first = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) {
      return tensor.extent.offset + tensor.extent.bytes > left;
    });
    ASSERT_NE(first, tensors.end());
    write_file(folder / "model.safetensors", bytes.substr(0, whole - cut));
    const auto error = thrown_by([&] { open_checkpoint(folder.path()); });
    EXPECT_EQ(error.kind, Kind::kBadInput);
    EXPECT_THAT(error.text,
                AllOf(HasSubstr(folder / "model.safetensors"), HasSubstr("'" + first->name + "'"),
                      HasSubstr(std::to_string(left) + " bytes"),
                      HasSubstr("of " + std::to_string(whole) + " expected")));
  }
}

TEST(Safetensors, RefusesBytesBehindTheLastTensor) {
  EXPECT_THAT(thrown_by([] { parse(file_of(kTwo, 20) + file_of(kTwo, 20)); }).text,
              HasSubstr("joined by concatenation"));
}

// Every byte of the header damaged: an Error or another valid header, never anything else.
TEST(Safetensors, EveryDamagedByteOfAHeaderIsAnErrorOrAValidHeader) {
  const std::string sound = file_of(kTwo, 20);
  for (size_t at = 0; at + 20 < sound.size(); ++at)
    for (const char bits : {'\x01', '\x10', '\x80', '\xff'}) {
      std::string bytes = sound;
      bytes[at] = static_cast<char>(bytes[at] ^ bits);
      try {
        for (const TensorInfo& tensor : parse(bytes))
          EXPECT_LE(tensor.extent.offset + tensor.extent.bytes, static_cast<int64_t>(bytes.size()));
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), Kind::kInternal) << at;
      }
    }
}

// CK-11: the folder's name says nothing.
TEST(Safetensors, LoadsFromTheConfigurationAloneWhateverTheFolderIsCalled) {
  Folder folder;
  const std::string odd = folder / "foo-np";
  fs::create_directory(odd);
  copy_model("opt-preln", odd, keep);
  const layout::Model model = load_model(open_checkpoint(odd));
  EXPECT_EQ(model.spec.family, "opt");
  EXPECT_EQ(model.name, "foo-np");
  EXPECT_EQ(load_model(open_checkpoint(odd + "/")).name, "foo-np");
  EXPECT_EQ(load_model(open_checkpoint(odd + "/model.safetensors")).spec.family, "opt");
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    copy_model("opt-preln", folder_.path(), keep);
    fs::remove(folder_ / "model.safetensors");
    const std::string whole = read_file(data("opt-preln") + "/model.safetensors");
    std::vector<TensorPlan> plans;
    const auto tensors = parse(whole);
    for (const TensorInfo& tensor : tensors)
      plans.push_back({tensor.name, tensor.format, tensor.shape});
    write_safetensors(
        folder_.path(), plans, 3, [&](size_t i, int64_t offset, std::span<std::byte> out) {
          std::memcpy(out.data(), whole.data() + tensors[i].extent.offset + offset, out.size());
        });
  }
  std::string shard(int i) const {
    return folder_ / ("model-0000" + std::to_string(i) + "-of-00003.safetensors");
  }
  void change_index(const std::function<void(json&)>& change) {
    const std::string path = folder_ / "model.safetensors.index.json";
    json index = json::parse(read_file(path));
    change(index);
    write_file(path, index.dump());
  }

  Folder folder_;
};

TEST_F(Shards, AreReadAsOneModelWithTheSameBytes) {
  const Checkpoint whole = open_checkpoint(data("opt-preln"));
  const Checkpoint parts = open_checkpoint(folder_.path());
  ASSERT_EQ(parts.files.size(), 3U);
  ASSERT_EQ(parts.tensors.size(), whole.tensors.size());
  const std::string whole_bytes = read_file(whole.files[0]);
  for (const TensorInfo& tensor : parts.tensors) {
    const auto same =
        std::find_if(whole.tensors.begin(), whole.tensors.end(),
                     [&](const TensorInfo& other) { return other.name == tensor.name; });
    ASSERT_NE(same, whole.tensors.end());
    const std::string bytes = read_file(parts.files[static_cast<size_t>(tensor.extent.file)]);
    EXPECT_TRUE(bytes.substr(static_cast<size_t>(tensor.extent.offset),
                             static_cast<size_t>(tensor.extent.bytes)) ==
                whole_bytes.substr(static_cast<size_t>(same->extent.offset),
                                   static_cast<size_t>(same->extent.bytes)))
        << tensor.name;
  }
  EXPECT_EQ(load_model(parts).weight_bytes(), load_model(whole).weight_bytes());
}

TEST_F(Shards, AnyShardStandsForTheSet) { EXPECT_EQ(open_checkpoint(shard(2)).files.size(), 3U); }

TEST_F(Shards, NameTheMissingShard) {
  fs::remove(shard(3));
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder_.path()); }).text,
              AllOf(HasSubstr(shard(3)), HasSubstr("is missing")));
}

TEST_F(Shards, NameATensorThatIsNotWhereTheIndexSays) {
  change_index([](json& index) {
    index["weight_map"]["model.decoder.final_layer_norm.bias"] = "model-00003-of-00003.safetensors";
    index["weight_map"]["extra.weight"] = "model-00001-of-00003.safetensors";
  });
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder_.path()); }).text,
              AllOf(HasSubstr("extra.weight"), HasSubstr("00001-of-00003")));
}

TEST_F(Shards, RefuseIndexesThatLeaveTheFolderOrAreDamaged) {
  change_index([](json& index) { index["weight_map"]["x"] = "../other/model.safetensors"; });
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder_.path()); }).text,
              HasSubstr("no file of the folder"));
  change_index([](json& index) { index.erase("weight_map"); });
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder_.path()); }).text,
              HasSubstr("no 'weight_map'"));
  write_file(folder_ / "model.safetensors.index.json", "{");
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder_.path()); }).text,
              HasSubstr("no JSON object"));
}

TEST_F(Shards, RefuseATensorThatIsInTwoOfThem) {
  fs::copy_file(shard(1), folder_ / "copy.safetensors");
  change_index([](json& index) { index["weight_map"]["y"] = "copy.safetensors"; });
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder_.path()); }).text, HasSubstr("is both in"));
}

TEST(OpenCheckpoint, SaysWhatIsMissingAndWhatToPass) {
  Folder folder;
  const auto text = [&] { return thrown_by([&] { open_checkpoint(folder.path()); }).text; };
  EXPECT_THAT(text(), HasSubstr("pass a folder with config.json and *.safetensors"));
  write_file(folder / "pytorch_model.bin", "x");
  EXPECT_THAT(text(), HasSubstr("tools/convert.py " + folder.path() + " -o NEW_FOLDER"));
  write_file(folder / "m.gguf", "x");
  EXPECT_THAT(text(), HasSubstr("pass the file m.gguf"));
  fs::copy_file(data("opt-preln") + "/model.safetensors", folder / "a.safetensors");
  EXPECT_THAT(text(), HasSubstr("has no config.json"));
  write_file(folder / "b.safetensors", "x");
  EXPECT_THAT(text(), HasSubstr("holds 2 .safetensors files"));
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder / "none"); }).text,
              HasSubstr("does not exist"));
  EXPECT_THAT(thrown_by([&] { open_checkpoint(folder / "pytorch_model.bin"); }).text,
              HasSubstr("neither a .safetensors nor a GGUF"));
  EXPECT_THAT(thrown_by([&] { InputFile file(folder.path()); }).text,
              HasSubstr("is no regular file"));
  const auto missing = thrown_by([&] { InputFile file(folder / "none"); });
  EXPECT_EQ(missing.kind, Kind::kIo);
  EXPECT_THAT(thrown_by([&] { read_text(folder / "a.safetensors", 10); }).text,
              HasSubstr("at most 10"));
}

TEST(SafetensorsWriter, RefusesShardCountsAndFilesThatExist) {
  Folder folder;
  const std::vector<TensorPlan> plans = {{"a", quant::Format::kF32, {4}},
                                         {"b", quant::Format::kF32, {1}}};
  const auto fill = [](size_t, int64_t, std::span<std::byte> out) {
    std::fill(out.begin(), out.end(), std::byte{1});
  };
  for (const int64_t shards : {int64_t{0}, int64_t{3}})
    EXPECT_EQ(thrown_by([&] { write_safetensors(folder.path(), plans, shards, fill); }).kind,
              Kind::kUsage);
  write_safetensors(folder.path(), plans, 1, fill);
  EXPECT_THAT(thrown_by([&] { write_safetensors(folder.path(), plans, 1, fill); }).text,
              HasSubstr("cannot be created"));
}

}  // namespace
}  // namespace transload::engine
