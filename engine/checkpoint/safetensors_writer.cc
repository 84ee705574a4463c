#include "engine/checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"

namespace transload::engine {
namespace {

using nlohmann::json;

class OutputFile {
 public:
  explicit OutputFile(std::string path)
      : path_(std::move(path)),
        descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) throw_errno(errno, path_ + ": cannot be created");
  }
  ~OutputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw_errno(errno, fmt::format("{}: write of {} bytes", path_, bytes.size()));
      bytes = bytes.subspan(static_cast<size_t>(put));
    }
  }
  // Late write errors come up here.
  void close() {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0) throw_errno(errno, path_ + ": close");
  }

 private:
  std::string path_;
  int descriptor_;
};

struct Shard {
  size_t begin = 0, end = 0;  // tensors
  std::string file;
};

int64_t total_bytes(const std::vector<TensorPlan>& tensors, size_t begin, size_t end) {
  int64_t bytes = 0;
  for (size_t i = begin; i < end; ++i) bytes += tensors[i].bytes();
  return bytes;
}

std::vector<Shard> cut(const std::vector<TensorPlan>& tensors, int64_t count) {
  check_shards(count, tensors.size());
  const int64_t bytes = total_bytes(tensors, 0, tensors.size());
  std::vector<Shard> shards;
  size_t next = 0;
  int64_t written = 0;
  for (int64_t i = 1; i <= count; ++i) {
    Shard shard{next, next, "model.safetensors"};
    if (count > 1) shard.file = fmt::format("model-{:05}-of-{:05}.safetensors", i, count);
    const size_t last = tensors.size() - static_cast<size_t>(count - i);
    do written += tensors[shard.end++].bytes();
    while (shard.end < last && (i == count || written < bytes / count * i));
    next = shard.end;
    shards.push_back(shard);
  }
  return shards;
}

std::string header_of(const std::vector<TensorPlan>& tensors, const Shard& shard) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (size_t i = shard.begin; i < shard.end; ++i) {
    const int64_t end = offset + tensors[i].bytes();
    header[tensors[i].name] = {{"dtype", quant::name(tensors[i].format)},
                               {"shape", tensors[i].shape},
                               {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), 8)), ' ');
  return text;
}

std::string index_of(const std::vector<TensorPlan>& tensors, const std::vector<Shard>& shards) {
  json map = json::object();
  for (const Shard& shard : shards)
    for (size_t i = shard.begin; i < shard.end; ++i) map[tensors[i].name] = shard.file;
  const json index = {{"metadata", {{"total_size", total_bytes(tensors, 0, tensors.size())}}},
                      {"weight_map", map}};
  return index.dump(2) + "\n";
}

int64_t write_shard(OutputFile& file, const std::vector<TensorPlan>& tensors, const Shard& shard,
                    const FillPiece& fill) {
  const std::string header = header_of(tensors, shard);
  const uint64_t header_bytes = header.size();
  file.write(std::as_bytes(std::span(&header_bytes, 1)));
  file.write(std::as_bytes(std::span(header)));
  std::vector<std::byte> buffer(static_cast<size_t>(kWriterBufferBytes));
  for (size_t i = shard.begin; i < shard.end; ++i)
    for (int64_t offset = 0; offset < tensors[i].bytes(); offset += kWriterBufferBytes) {
      const auto piece = std::span(buffer).first(
          static_cast<size_t>(std::min(kWriterBufferBytes, tensors[i].bytes() - offset)));
      fill(i, offset, piece);
      file.write(piece);
    }
  return 8 + static_cast<int64_t>(header_bytes) + total_bytes(tensors, shard.begin, shard.end);
}

}  // namespace

int64_t TensorPlan::bytes() const {
  check(quant::block_values(format) == 1, "safetensors holds plain formats");
  int64_t count = quant::block_bytes(format);
  for (const int64_t size : shape) count *= size;
  return count;
}

void check_shards(int64_t shards, size_t tensors) {
  if (shards < 1 || shards > static_cast<int64_t>(tensors))
    throw Error(Kind::kUsage, fmt::format("{} shards of {} tensors: ask for 1 to {} shards", shards,
                                          tensors, tensors));
}

int64_t write_safetensors(const std::string& folder, const std::vector<TensorPlan>& tensors,
                          int64_t shards, const FillPiece& fill) {
  const std::vector<Shard> cuts = cut(tensors, shards);
  int64_t written = 0;
  for (const Shard& shard : cuts) {
    OutputFile file(folder + "/" + shard.file);
    written += write_shard(file, tensors, shard, fill);
    file.close();
  }
  if (shards > 1) write_new_file(folder + "/model.safetensors.index.json", index_of(tensors, cuts));
  return written;
}

void write_new_file(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.close();
}

}  // namespace transload::engine
