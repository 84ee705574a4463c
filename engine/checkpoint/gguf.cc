#include "engine/checkpoint/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "engine/checkpoint/header_reader.h"

namespace transload::engine {
namespace {

using quant::Format;

constexpr int64_t kKeyLimit = 65535;
constexpr int64_t kTextLimit = 16 * kMiB;
constexpr uint64_t kArrayLimit = 4 * 1024 * 1024;
constexpr uint32_t kDimensionLimit = 4;
constexpr int64_t kAlignmentLimit = kMiB;

enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// Calls `use` with the next number of a type. Returns false for types that are no numbers.
template <class Use>
// NOLINTNEXTLINE(readability-function-size): one case a type
bool read_number(HeaderReader& reader, uint32_t type, const Use& use) {
  switch (type) {
    case kUint8:
      use(reader.number<uint8_t>());
      return true;
    case kInt8:
      use(reader.number<int8_t>());
      return true;
    case kUint16:
      use(reader.number<uint16_t>());
      return true;
    case kInt16:
      use(reader.number<int16_t>());
      return true;
    case kUint32:
      use(reader.number<uint32_t>());
      return true;
    case kInt32:
      use(reader.number<int32_t>());
      return true;
    case kFloat32:
      use(reader.number<float>());
      return true;
    case kUint64:
      use(reader.number<uint64_t>());
      return true;
    case kInt64:
      use(reader.number<int64_t>());
      return true;
    case kFloat64:
      use(reader.number<double>());
      return true;
    case kBool: {
      const uint8_t value = reader.number<uint8_t>();
      if (value > 1) reader.refuse(fmt::format("damaged: a boolean is {}", value));
      use(value != 0);
      return true;
    }
    default:
      return false;
  }
}

StringTable read_strings(HeaderReader& reader, uint64_t count, const std::string& key) {
  StringTable table;
  for (uint64_t i = 0; i < count; ++i) {
    table.bytes += reader.text(kTextLimit, fmt::format("a string of '{}'", key));
    if (table.bytes.size() > UINT32_MAX) reader.refuse(fmt::format("'{}' is too long", key));
    table.ends.push_back(static_cast<uint32_t>(table.bytes.size()));
  }
  table.bytes.shrink_to_fit();
  table.ends.shrink_to_fit();
  return table;
}

void read_array(HeaderReader& reader, const std::string& key, GgufHeader& header) {
  const uint32_t type = reader.number<uint32_t>();
  const uint64_t count = reader.number<uint64_t>();
  // A value takes a byte at least, a string eight.
  const uint64_t most = static_cast<uint64_t>(reader.left()) / (type == kString ? 8 : 1);
  if (count > most || count > kArrayLimit)
    reader.refuse(
        fmt::format("truncated or damaged: '{}' claims {} values where the file has {} "
                    "bytes and at most {} are expected",
                    key, count, reader.position() + reader.left(), kArrayLimit));
  if (type == kString) {
    header.string_arrays[key] = read_strings(reader, count, key);
    return;
  }
  std::vector<double>& values = header.number_arrays[key];
  const auto append = [&](auto value) { values.push_back(static_cast<double>(value)); };
  for (uint64_t i = 0; i < count; ++i)
    if (!read_number(reader, type, append))
      reader.refuse(fmt::format("damaged: '{}' is an array of values of type {}", key, type));
  values.shrink_to_fit();
}

void read_pair(HeaderReader& reader, std::set<std::string>& keys, GgufHeader& header) {
  const std::string key = reader.text(kKeyLimit, "a key");
  if (key.empty()) reader.refuse("damaged: a key is empty");
  if (!keys.insert(key).second) reader.refuse(fmt::format("damaged: '{}' is set twice", key));
  const uint32_t type = reader.number<uint32_t>();
  if (type == kArray) return read_array(reader, key, header);
  if (type == kString) {
    header.metadata[key] = reader.text(kTextLimit, fmt::format("the value of '{}'", key));
    return;
  }
  const auto assign = [&](auto value) { header.metadata[key] = value; };
  if (!read_number(reader, type, assign))
    reader.refuse(fmt::format("damaged: '{}' has a value of type {}", key, type));
}

struct GgufType {
  std::string_view name;
  std::optional<Format> format;
};

// Types by their number in files. Source: enum ggml_type.
GgufType gguf_type(uint32_t number) {
  static constexpr std::array<std::string_view, 40> kNames = {
      "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
      "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
      "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
      "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
      "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};
  const std::string_view type = number < kNames.size() ? kNames[number] : "";
  for (int i = 0; i < quant::kFormats; ++i)
    if (quant::name(static_cast<Format>(i)) == type) return {type, static_cast<Format>(i)};
  return {type.empty() ? "unknown" : type, std::nullopt};
}

Format read_format(HeaderReader& reader, const ByteSource& source, const std::string& tensor) {
  const uint32_t number = reader.number<uint32_t>();
  const GgufType type = gguf_type(number);
  if (type.format) return *type.format;
  throw Error(Kind::kUnsupported,
              fmt::format("{}: tensor '{}' has type {} ({}); F32, F16, BF16, Q4_0, Q4_1, Q8_0, "
                          "Q4_K, Q5_K and Q6_K are supported",
                          source.name(), tensor, number, type.name));
}

// Bytes of a tensor. The file's first dimension is the innermost.
int64_t tensor_bytes(const HeaderReader& reader, const TensorInfo& tensor) {
  const int64_t cols = tensor.shape.back();
  if (cols % quant::block_values(tensor.format) != 0)
    reader.refuse(fmt::format("tensor '{}': rows of {} values are no whole blocks of {}",
                              tensor.name, cols, quant::name(tensor.format)));
  int64_t bytes = quant::block_bytes(tensor.format);
  bool fits = !__builtin_mul_overflow(bytes, cols / quant::block_values(tensor.format), &bytes);
  for (size_t i = 0; fits && i + 1 < tensor.shape.size(); ++i)
    fits = !__builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
  if (!fits || bytes > int64_t{1} << 60)
    reader.refuse(fmt::format("damaged: tensor '{}' has an impossible shape", tensor.name));
  return bytes;
}

TensorInfo read_tensor(HeaderReader& reader, const ByteSource& source) {
  TensorInfo tensor;
  tensor.name = reader.text(kKeyLimit, "the name of a tensor");
  const uint32_t dimensions = reader.number<uint32_t>();
  if (dimensions == 0 || dimensions > kDimensionLimit)
    reader.refuse(fmt::format("damaged: tensor '{}' has {} dimensions", tensor.name, dimensions));
  for (uint32_t i = 0; i < dimensions; ++i) {
    const uint64_t size = reader.number<uint64_t>();
    if (size == 0 || size > uint64_t{1} << 48)
      reader.refuse(fmt::format("damaged: tensor '{}' has a dimension of {}", tensor.name, size));
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  tensor.format = read_format(reader, source, tensor.name);
  tensor.extent.bytes = tensor_bytes(reader, tensor);
  const uint64_t offset = reader.number<uint64_t>();
  if (offset > uint64_t{1} << 60)
    reader.refuse(fmt::format("damaged: tensor '{}' has offset {}", tensor.name, offset));
  tensor.extent.offset = static_cast<int64_t>(offset);
  return tensor;
}

int64_t read_alignment(const HeaderReader& reader, const GgufHeader& header) {
  const auto at = header.metadata.find("general.alignment");
  if (at == header.metadata.end()) return 32;
  const int64_t value = at->is_number_unsigned() ? at->get<int64_t>() : 0;
  if (value < 8 || value > kAlignmentLimit || !std::has_single_bit(static_cast<uint64_t>(value)))
    reader.refuse("damaged: general.alignment is no power of two from 8 to 1048576");
  return value;
}

std::vector<const TensorInfo*> by_offset(const GgufHeader& header) {
  std::vector<const TensorInfo*> order;
  order.reserve(header.tensors.size());
  for (const TensorInfo& tensor : header.tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return a->extent.offset < b->extent.offset;
  });
  return order;
}

// No tensor lies within another or past the end. Offsets are from the begin of the data.
void check_extents(const ByteSource& source, int64_t data_begin, int64_t alignment,
                   const GgufHeader& header) {
  const auto order = by_offset(header);
  int64_t expected = data_begin;
  for (const TensorInfo* tensor : order)
    expected = std::max(expected, data_begin + tensor->extent.offset + tensor->extent.bytes);
  int64_t free_from = 0;
  for (const TensorInfo* tensor : order) {
    const layout::Extent& extent = tensor->extent;
    if (extent.offset % alignment != 0 || extent.offset < free_from)
      throw Error(Kind::kBadInput,
                  fmt::format("{}: damaged: tensor '{}' begins at byte {} of the data, within "
                              "another or not on a multiple of {}",
                              source.name(), tensor->name, extent.offset, alignment));
    free_from = extent.offset + extent.bytes;
    if (data_begin + free_from > source.bytes())
      throw Error(
          Kind::kBadInput,
          fmt::format("{}: truncated: tensor '{}' ends at byte {} but the file has {} bytes "
                      "of {} expected; copy or download it again",
                      source.name(), tensor->name, data_begin + free_from, source.bytes(),
                      expected));
  }
}

bool begins_gguf(const ByteSource& source, int64_t offset) {
  std::array<char, 4> magic{};
  if (source.bytes() - offset < 4) return false;
  source.read(offset, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

void check_nothing_joined(const ByteSource& source, int64_t end, int64_t alignment) {
  if (source.bytes() - end < 4) return;
  if (begins_gguf(source, end) || (source.bytes() - round_up(end, alignment) >= 4 &&
                                   begins_gguf(source, round_up(end, alignment))))
    throw Error(Kind::kBadInput,
                fmt::format("{}: joined by concatenation: another GGUF file begins behind its last "
                            "tensor (byte {}); pass the separate parts, or merge them with "
                            "llama-gguf-split --merge",
                            source.name(), end));
}

void read_counts(HeaderReader& reader, const ByteSource& source, std::array<uint64_t, 2>& counts) {
  std::array<char, 4> magic{};
  for (char& c : magic) c = static_cast<char>(reader.number<uint8_t>());
  if (std::string_view(magic.data(), magic.size()) != "GGUF")
    throw Error(Kind::kBadInput, source.name() + ": is no GGUF file (it does not begin with GGUF)");
  const uint32_t version = reader.number<uint32_t>();
  if (version != 2 && version != 3)
    throw Error(Kind::kUnsupported,
                fmt::format("{}: GGUF version {}{}; versions 2 and 3, little endian, are supported",
                            source.name(), version,
                            (version & 0xFFFF) == 0 && version != 0 ? " (big endian)" : ""));
  counts[0] = reader.number<uint64_t>();
  counts[1] = reader.number<uint64_t>();
  // A tensor's description takes 32 bytes at least, a pair 13.
  if (counts[0] > static_cast<uint64_t>(reader.left()) / 32 ||
      counts[1] > static_cast<uint64_t>(reader.left()) / 13)
    reader.refuse(
        fmt::format("truncated or damaged: claims {} tensors and {} keys where the file "
                    "has {} bytes",
                    counts[0], counts[1], source.bytes()));
}

}  // namespace

GgufHeader parse_gguf_header(const ByteSource& source) {
  HeaderReader reader(source);
  std::array<uint64_t, 2> counts{};
  read_counts(reader, source, counts);
  GgufHeader header;
  std::set<std::string> keys;
  for (uint64_t i = 0; i < counts[1]; ++i) read_pair(reader, keys, header);
  std::set<std::string> names;
  for (uint64_t i = 0; i < counts[0]; ++i) {
    header.tensors.push_back(read_tensor(reader, source));
    if (!names.insert(header.tensors.back().name).second)
      reader.refuse(fmt::format("damaged: tensor '{}' is listed twice", *names.rbegin()));
  }
  const int64_t alignment = read_alignment(reader, header);
  const int64_t data_begin = round_up(reader.position(), alignment);
  check_extents(source, data_begin, alignment, header);
  header.data_end = counts[0] == 0 ? reader.position() : data_begin;
  for (TensorInfo& tensor : header.tensors) {
    tensor.extent.offset += data_begin;
    header.data_end = std::max(header.data_end, tensor.extent.offset + tensor.extent.bytes);
  }
  check_nothing_joined(source, header.data_end, alignment);
  return header;
}

}  // namespace transload::engine
