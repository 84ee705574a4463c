// Which files make up a GGUF checkpoint, and which reader a path needs.
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/error.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/safetensors.h"

namespace transload::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kPartLimit = 65535;  // split.count is 16 bits wide

struct Split {
  int64_t number = 0;  // from 0
  int64_t count = 1;
  int64_t tensors = -1;  // in all parts, -1: not told
};

int64_t count_of(const std::string& path, const json& metadata, const char* key, int64_t missing) {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return missing;
  const bool sound = at->is_number_integer() && *at >= 0 && *at <= INT32_MAX;
  if (!sound) throw Error(Kind::kBadInput, fmt::format("{}: damaged: {} is no count", path, key));
  return at->get<int64_t>();
}

Split read_split(const std::string& path, const GgufHeader& header) {
  Split split;
  split.number = count_of(path, header.metadata, "split.no", 0);
  split.count = std::max<int64_t>(1, count_of(path, header.metadata, "split.count", 1));
  split.tensors = count_of(path, header.metadata, "split.tensors.count", -1);
  if (split.count > kPartLimit || split.number >= split.count)
    throw Error(Kind::kBadInput, fmt::format("{}: damaged: says it is part {} of {}", path,
                                             split.number + 1, split.count));
  return split;
}

// Paths of all parts of the set that `path` is a part of.
std::vector<std::string> part_paths(const std::string& path, const Split& split) {
  const std::string end = fmt::format("-{:05}-of-{:05}.gguf", split.number + 1, split.count);
  if (!path.ends_with(end))
    throw Error(Kind::kBadInput,
                fmt::format("{}: is part {} of {}, whose name must end in {}; give the parts back "
                            "their names",
                            path, split.number + 1, split.count, end));
  const std::string prefix = path.substr(0, path.size() - end.size());
  std::vector<std::string> paths;
  for (int64_t i = 1; i <= split.count; ++i) {
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i, split.count));
    if (!fs::exists(paths.back()))
      throw Error(Kind::kBadInput, fmt::format("{}: is missing: part {} of {} that the model has",
                                               paths.back(), i, split.count));
  }
  return paths;
}

void add_part(GgufHeader&& header, Checkpoint& checkpoint) {
  const bool first = checkpoint.files.size() == 1;
  if (first) {
    checkpoint.metadata = std::move(header.metadata);
    checkpoint.string_arrays = std::move(header.string_arrays);
    checkpoint.number_arrays = std::move(header.number_arrays);
  }
  for (TensorInfo& tensor : header.tensors) {
    tensor.extent.file = static_cast<int32_t>(checkpoint.files.size() - 1);
    checkpoint.tensors.push_back(std::move(tensor));
  }
}

void check_tensors(const std::string& path, const Split& split, const Checkpoint& checkpoint) {
  std::map<std::string_view, int32_t> files;
  for (const TensorInfo& tensor : checkpoint.tensors)
    if (!files.emplace(tensor.name, tensor.extent.file).second)
      throw Error(Kind::kBadInput,
                  fmt::format("{}: tensor '{}' is in two parts of the set", path, tensor.name));
  const auto found = static_cast<int64_t>(checkpoint.tensors.size());
  if (split.tensors >= 0 && split.tensors != found)
    throw Error(Kind::kBadInput, fmt::format("{}: not a valid split: its parts hold {} tensors "
                                             "where split.tensors.count says {}",
                                             path, found, split.tensors));
}

void add_parts(const std::vector<std::string>& paths, Checkpoint& checkpoint) {
  for (size_t i = 0; i < paths.size(); ++i) {
    GgufHeader header = parse_gguf_header(InputFile(paths[i]));
    const Split split = read_split(paths[i], header);
    if (split.number != static_cast<int64_t>(i) ||
        split.count != static_cast<int64_t>(paths.size()))
      throw Error(Kind::kBadInput, fmt::format("{}: not a valid split: says it is part {} of {}",
                                               paths[i], split.number + 1, split.count));
    checkpoint.files.push_back(paths[i]);
    add_part(std::move(header), checkpoint);
  }
}

bool has_gguf_magic(const std::string& path) {
  const InputFile file(path);
  std::array<char, 4> magic{};
  if (file.bytes() < 4) return false;
  file.read(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

}  // namespace

Checkpoint open_gguf(const std::string& path) {
  GgufHeader header = parse_gguf_header(InputFile(path));
  const Split split = read_split(path, header);
  Checkpoint checkpoint;
  checkpoint.kind = Checkpoint::Kind::kGguf;
  const fs::path folder = fs::path(path).parent_path();
  checkpoint.folder = folder.empty() ? "." : folder.string();
  if (split.count == 1) {
    checkpoint.files.push_back(path);
    add_part(std::move(header), checkpoint);
  } else {
    header = {};
    add_parts(part_paths(path, split), checkpoint);
  }
  check_tensors(path, split, checkpoint);
  return checkpoint;
}

Checkpoint open_checkpoint(const std::string& path) {
  if (!fs::exists(path))
    throw Error(Kind::kBadInput, path +
                                     ": does not exist; pass a folder with config.json and "
                                     "*.safetensors, or a .gguf file");
  const bool gguf = !fs::is_directory(path) && (path.ends_with(".gguf") || has_gguf_magic(path));
  if (!gguf && !fs::is_directory(path) && !path.ends_with(".safetensors"))
    throw Error(Kind::kBadInput, path + ": is neither a .safetensors nor a GGUF file");
  Checkpoint checkpoint = gguf ? open_gguf(path) : open_safetensors(path);
  checkpoint.path = path;
  return checkpoint;
}

}  // namespace transload::engine
