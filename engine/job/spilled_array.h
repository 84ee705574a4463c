// An array that may be larger than the memory it takes: what a job keeps of its lines.
//
// Up to kKeptBytes it lies in memory. A longer one lies in a file without a name, with kKeptBytes
// of its pages in memory, each page at one possible place. Threads: single-threaded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/job/file.h"

namespace transload::engine {

class SpilledBytes {
 public:
  static constexpr int64_t kKeptBytes = int64_t{4} << 20;

  // The file goes to `directory`.
  explicit SpilledBytes(std::string directory) : directory_(std::move(directory)) {}

  // What was never written is zero; to become shorter only hides bytes. Errors: kIo.
  void resize(int64_t bytes);
  void reserve(int64_t bytes) { memory_.reserve(static_cast<size_t>(memory_bytes(bytes))); }
  // What is read or written must not cross a page. Read: valid until the next call. Errors: kIo.
  const std::byte* read(int64_t offset) const {
    return file_.fd() < 0 ? memory_.data() + offset : page_at(offset) + offset % kPageBytes;
  }
  void write(int64_t offset, const void* from, size_t bytes);

  // The memory of an array of so many bytes.
  static int64_t memory_bytes(int64_t bytes) { return std::min(bytes, kKeptBytes); }

 private:
  static constexpr int64_t kPageBytes = 4096;
  static constexpr int64_t kPlaces = kKeptBytes / kPageBytes;

  void move_to_file();
  std::byte* page_at(int64_t offset) const;
  void put(size_t place) const;

  std::string directory_;
  File file_;                              // none while all is in memory
  mutable std::vector<std::byte> memory_;  // all bytes, or the pages at hand
  mutable std::vector<int64_t> pages_;     // the page at each place; -1: none
  mutable std::vector<bool> changed_;      // whether its place differs from the file
};

template <typename T>
class SpilledArray {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) & (sizeof(T) - 1)) == 0,
                "none lies across two pages");

 public:
  class Iterator {
   public:
    Iterator(const SpilledArray* array, size_t index) : array_(array), index_(index) {}
    T operator*() const { return (*array_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const = default;

   private:
    const SpilledArray* array_;
    size_t index_;
  };

  explicit SpilledArray(std::string directory) : bytes_(std::move(directory)) {}

  void reserve(size_t count) { bytes_.reserve(static_cast<int64_t>(count * sizeof(T))); }
  void resize(size_t count) {
    bytes_.resize(static_cast<int64_t>(count * sizeof(T)));
    size_ = count;
  }
  void push_back(const T& value) {
    resize(size_ + 1);
    set(size_ - 1, value);
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.read(static_cast<int64_t>(index * sizeof(T))), sizeof(T));
    return value;
  }
  void set(size_t index, const T& value) {
    bytes_.write(static_cast<int64_t>(index * sizeof(T)), &value, sizeof(T));
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

 private:
  SpilledBytes bytes_;
  size_t size_ = 0;
};

}  // namespace transload::engine
