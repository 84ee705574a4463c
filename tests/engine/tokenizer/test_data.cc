#include "tests/engine/tokenizer/test_data.h"

#include <zstd.h>

#include <fstream>
#include <sstream>

#include "base/check.h"
#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/gguf_rules.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace transload::engine::test {
namespace {

std::string unpack(const std::string& packed) {
  std::string bytes(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  const size_t got = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  check(got == bytes.size(), "test data cannot be unpacked");
  return bytes;
}

}  // namespace

std::string read_data(const std::string& name) {
  std::ifstream file(std::string(TRANSLOAD_TEST_DATA) + "/tokenizer/" + name, std::ios::binary);
  check(file.good(), "test data is missing: " + name);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return name.ends_with(".zst") ? unpack(bytes.str()) : bytes.str();
}

nlohmann::json read_data_json(const std::string& name) {
  return nlohmann::json::parse(read_data(name));
}

GgufData gguf_data(const nlohmann::json& fields) {
  GgufData data;
  for (const auto& [key, value] : fields.items()) {
    if (!value.is_array()) {
      data.metadata[key] = value;
    } else if (value.at(0).is_string()) {
      for (const auto& text : value) append(data.string_arrays[key], text.get<std::string>());
    } else {
      data.number_arrays[key] = value.get<std::vector<double>>();
    }
  }
  return data;
}

TokenizerRules rules_of_gguf(const nlohmann::json& fields) {
  const GgufData data = gguf_data(fields);
  return read_gguf_tokenizer({data.metadata, data.string_arrays, data.number_arrays, "model.gguf"});
}

TokenizerRules rules_of_json(const std::string& text) {
  std::istringstream in(text);
  return read_tokenizer_json(in, "tokenizer.json");
}

std::unique_ptr<Tokenizer> tokenizer_of_json(const nlohmann::json& json) {
  return std::make_unique<BpeTokenizer>(rules_of_json(json.dump()));
}

const Tokenizer& smollm2() {
  static const BpeTokenizer tokenizer(rules_of_gguf(read_data_json("smollm2.gguf.json.zst")));
  return tokenizer;
}

nlohmann::json bytes_json() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[spelling_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  }
  return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
          {"added_tokens", nlohmann::json::array()},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}

uint32_t hash_of(std::span<const int32_t> ids) {
  uint32_t crc = ~0u;  // CRC-32, as zlib's
  for (const std::byte byte : std::as_bytes(ids)) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

}  // namespace transload::engine::test
