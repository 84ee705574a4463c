// Bytes of a checkpoint that are only ever read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace transload::engine {

// Something that can be read at an offset. `name` is what error texts call it.
class ByteSource {
 public:
  ByteSource(std::string name, int64_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }
  // Fills `out`. Errors: kBadInput where the range is not within the source, kIo.
  void read(int64_t offset, std::span<std::byte> out) const;

 protected:
  virtual void read_at(int64_t offset, std::span<std::byte> out) const = 0;
  void set_bytes(int64_t bytes) { bytes_ = bytes; }

 private:
  std::string name_;
  int64_t bytes_;
};

// A regular file, opened read-only.
class InputFile final : public ByteSource {
 public:
  // Errors: kIo where it cannot be opened, kBadInput where it is no regular file.
  explicit InputFile(const std::string& path);
  ~InputFile() override;

 protected:
  void read_at(int64_t offset, std::span<std::byte> out) const override;

 private:
  int descriptor_;
};

// The first bytes of a file of `file_bytes` bytes, held in memory.
class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::span<const std::byte> head, int64_t file_bytes)
      : ByteSource(std::move(name), file_bytes), head_(head) {}

 protected:
  void read_at(int64_t offset, std::span<std::byte> out) const override;

 private:
  std::span<const std::byte> head_;
};

// The whole text of a small file. Errors: as InputFile, and kBadInput above `limit_bytes`.
std::string read_text(const std::string& path, int64_t limit_bytes);

}  // namespace transload::engine
