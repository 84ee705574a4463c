// Writes small GGUF files for tests and fuzz seeds.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace transload::testing {

// Collects key/value pairs and tensors, then gives the bytes of a file. Tensor types are the file's
// own numbers (0: F32, 1: F16, 3: Q4_1, 8: Q8_0, ...).
class GgufBuilder {
 public:
  uint32_t version = 3;
  uint32_t alignment = 32;

  // Type numbers of values as in the specification.
  static constexpr uint32_t kUint16 = 2, kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7,
                            kString = 8, kArray = 9, kUint64 = 10, kFloat64 = 12;

  GgufBuilder& text(std::string_view key, std::string_view value) {
    begin_pair(key, kString);
    put_text(pairs_, value);
    return *this;
  }
  GgufBuilder& u16(std::string_view key, uint16_t value) { return scalar(key, kUint16, value); }
  GgufBuilder& u32(std::string_view key, uint32_t value) { return scalar(key, kUint32, value); }
  GgufBuilder& i32(std::string_view key, int32_t value) { return scalar(key, kInt32, value); }
  GgufBuilder& f32(std::string_view key, float value) { return scalar(key, kFloat32, value); }
  GgufBuilder& flag(std::string_view key, bool value) {
    return scalar(key, kBool, static_cast<uint8_t>(value ? 1 : 0));
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
    begin_array(key, kString, values.size());
    for (const std::string& value : values) put_text(pairs_, value);
    return *this;
  }
  GgufBuilder& i32s(std::string_view key, const std::vector<int32_t>& values) {
    begin_array(key, kInt32, values.size());
    for (const int32_t value : values) put(pairs_, value);
    return *this;
  }
  GgufBuilder& f32s(std::string_view key, const std::vector<float>& values) {
    begin_array(key, kFloat32, values.size());
    for (const float value : values) put(pairs_, value);
    return *this;
  }
  // A key with any type and payload, for damaged files.
  GgufBuilder& raw(std::string_view key, uint32_t type, std::string_view payload) {
    begin_pair(key, type);
    pairs_ += payload;
    return *this;
  }
  // `shape` outermost first; the file has it reversed.
  GgufBuilder& tensor(std::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                      std::string_view data) {
    put_text(descriptions_, name);
    put(descriptions_, static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) put(descriptions_, static_cast<uint64_t>(shape[i]));
    put(descriptions_, type);
    put(descriptions_, static_cast<uint64_t>(data_.size()));
    data_ += data;
    pad(data_);
    ++tensors_;
    return *this;
  }
  // A tensor of F32, all `value`.
  GgufBuilder& floats(std::string_view name, const std::vector<int64_t>& shape, float value) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    const std::vector<float> values(count, value);
    return tensor(name, shape, 0,
                  std::string_view(reinterpret_cast<const char*>(values.data()),
                                   values.size() * sizeof(float)));
  }

  // The header without data.
  std::string header() const {
    std::string bytes = "GGUF";
    put(bytes, version);
    put(bytes, tensors_);
    put(bytes, pairs_count_);
    return bytes + pairs_ + descriptions_;
  }
  std::string bytes() const {
    std::string all = header();
    pad(all);
    return all + data_;
  }
  void write(const std::string& path) const { std::ofstream(path, std::ios::binary) << bytes(); }

 private:
  template <class T>
  static void put(std::string& to, T value) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    to.append(raw, sizeof(T));
  }
  static void put_text(std::string& to, std::string_view value) {
    put(to, static_cast<uint64_t>(value.size()));
    to += value;
  }
  void pad(std::string& to) const {
    to.resize((to.size() + alignment - 1) / alignment * alignment);
  }
  void begin_pair(std::string_view key, uint32_t type) {
    put_text(pairs_, key);
    put(pairs_, type);
    ++pairs_count_;
  }
  void begin_array(std::string_view key, uint32_t type, size_t count) {
    begin_pair(key, kArray);
    put(pairs_, type);
    put(pairs_, static_cast<uint64_t>(count));
  }
  template <class T>
  GgufBuilder& scalar(std::string_view key, uint32_t type, T value) {
    begin_pair(key, type);
    put(pairs_, value);
    return *this;
  }

  std::string pairs_, descriptions_, data_;
  uint64_t tensors_ = 0, pairs_count_ = 0;
};

}  // namespace transload::testing
