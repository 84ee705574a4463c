#include "engine/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"

namespace transload::engine {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little);

[[noreturn]] void refuse(const ByteSource& source, const std::string& what) {
  throw Error(Kind::kBadInput, fmt::format("{}: {}", source.name(), what));
}

// Parses, refusing a name that occurs twice in one object (the JSON library would keep the last).
json parse_header_json(const ByteSource& source, const std::string& text) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !names.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  json header = json::parse(text, watch, /*allow_exceptions=*/false);
  if (!twice.empty()) refuse(source, fmt::format("tensor '{}' is listed twice", twice));
  if (!header.is_object()) refuse(source, "damaged: its header is no JSON object");
  return header;
}

json read_header(const ByteSource& source, int64_t& data_begin) {
  uint64_t header_bytes = 0;
  if (source.bytes() < 8) refuse(source, fmt::format("truncated: has {} bytes", source.bytes()));
  source.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > static_cast<uint64_t>(kSafetensorsHeaderLimit))
    refuse(source, fmt::format("no safetensors file, or damaged: claims a header of {} bytes",
                               header_bytes));
  data_begin = 8 + static_cast<int64_t>(header_bytes);
  if (data_begin > source.bytes())
    refuse(source, fmt::format("truncated: its header needs {} bytes but the file has {}; copy or "
                               "download it again",
                               data_begin, source.bytes()));
  std::string text(static_cast<size_t>(header_bytes), '\0');
  source.read(8, std::as_writable_bytes(std::span(text)));
  return parse_header_json(source, text);
}

std::optional<quant::Format> format_of(std::string_view dtype) {
  if (dtype == "F32") return quant::Format::kF32;
  if (dtype == "F16") return quant::Format::kF16;
  if (dtype == "BF16") return quant::Format::kBF16;
  return std::nullopt;
}

// A number of a header that is an integer from 0 to 2^60, or nothing.
std::optional<int64_t> whole_number(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t number = value.get<uint64_t>();
  if (number > uint64_t{1} << 60) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::vector<int64_t> read_shape(const ByteSource& source, const std::string& name,
                                const json& value) {
  std::vector<int64_t> shape;
  if (!value.is_array() || value.size() > 16)
    refuse(source, fmt::format("tensor '{}': 'shape' is no list of sizes", name));
  for (const json& item : value) {
    const auto size = whole_number(item);
    if (!size) refuse(source, fmt::format("tensor '{}': 'shape' holds no size", name));
    shape.push_back(*size);
  }
  return shape;
}

// Bytes of a tensor, or nothing where they overflow.
std::optional<int64_t> tensor_bytes(const TensorInfo& tensor) {
  int64_t bytes = quant::block_bytes(tensor.format);
  for (const int64_t size : tensor.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

void read_offsets(const ByteSource& source, const json& entry, TensorInfo& tensor) {
  const auto at = entry.find("data_offsets");
  if (at == entry.end() || !at->is_array() || at->size() != 2)
    refuse(source, fmt::format("tensor '{}': has no pair 'data_offsets'", tensor.name));
  const auto begin = whole_number((*at)[0]);
  const auto end = whole_number((*at)[1]);
  if (!begin || !end || *begin > *end)
    refuse(source, fmt::format("tensor '{}': 'data_offsets' is no range", tensor.name));
  tensor.extent.offset = *begin;
  tensor.extent.bytes = *end - *begin;
}

TensorInfo read_tensor(const ByteSource& source, const std::string& name, const json& entry) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string())
    refuse(source, fmt::format("tensor '{}': has no 'dtype'", name));
  if (!entry.contains("shape")) refuse(source, fmt::format("tensor '{}': has no 'shape'", name));
  TensorInfo tensor;
  tensor.name = name;
  tensor.shape = read_shape(source, name, entry["shape"]);
  read_offsets(source, entry, tensor);
  const std::string dtype = entry["dtype"].get<std::string>();
  const auto format = format_of(dtype);
  if (!format && is_unused_buffer(name)) return tensor;
  if (!format)
    throw Error(Kind::kUnsupported,
                fmt::format("{}: tensor '{}' has type {}; F32, F16 and BF16 are supported",
                            source.name(), name, dtype));
  tensor.format = *format;
  const auto bytes = tensor_bytes(tensor);
  if (!bytes || *bytes != tensor.extent.bytes)
    refuse(source, fmt::format("tensor '{}': its shape and type need {} bytes but 'data_offsets' "
                               "has {}",
                               name, bytes ? std::to_string(*bytes) : "more than 2^63",
                               tensor.extent.bytes));
  return tensor;
}

// Offsets become those of the file. Requires: ascending by offset.
void place(const ByteSource& source, int64_t data_begin, std::vector<TensorInfo>& tensors) {
  const int64_t data_end =
      tensors.empty() ? 0 : tensors.back().extent.offset + tensors.back().extent.bytes;
  int64_t next = 0;
  for (TensorInfo& tensor : tensors) {
    const int64_t offset = tensor.extent.offset;
    if (offset != next)
      refuse(source, fmt::format("tensor '{}': begins at byte {} of the data where byte {} is next",
                                 tensor.name, offset, next));
    next = offset + tensor.extent.bytes;
    if (next > source.bytes() - data_begin)
      refuse(source,
             fmt::format("truncated: tensor '{}' ends at byte {} but the file has {} bytes "
                         "of {} expected; copy or download it again",
                         tensor.name, data_begin + next, source.bytes(), data_begin + data_end));
    tensor.extent.offset += data_begin;
  }
  if (data_begin + next != source.bytes())
    refuse(source, fmt::format("has {} bytes where its header describes {}; damaged, or parts "
                               "joined by concatenation",
                               source.bytes(), data_begin + next));
}

}  // namespace

bool is_unused_buffer(std::string_view tensor) {
  for (const std::string_view end :
       {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq",
        ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"})
    if (tensor.ends_with(end)) return true;
  return false;
}

std::vector<TensorInfo> parse_safetensors_header(const ByteSource& source, int32_t file) {
  int64_t data_begin = 0;
  const json header = read_header(source, data_begin);
  std::vector<TensorInfo> tensors;
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__") tensors.push_back(read_tensor(source, name, entry));
  const auto position = [](const TensorInfo& tensor) {
    return std::pair(tensor.extent.offset, tensor.extent.bytes);
  };
  std::sort(tensors.begin(), tensors.end(),
            [&](const TensorInfo& a, const TensorInfo& b) { return position(a) < position(b); });
  place(source, data_begin, tensors);
  std::erase_if(tensors, [](const TensorInfo& tensor) { return is_unused_buffer(tensor.name); });
  for (TensorInfo& tensor : tensors) tensor.extent.file = file;
  return tensors;
}

}  // namespace transload::engine
