// Which files of a folder make up a safetensors checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/units.h"
#include "engine/checkpoint/nesting.h"
#include "engine/checkpoint/safetensors.h"

namespace transload::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kJsonLimit = 64 * kMiB;
constexpr const char* kIndex = "model.safetensors.index.json";

json read_json(const fs::path& path) {
  json value = parse_model_json(read_text(path.string(), kJsonLimit), path.string());
  if (!value.is_object())
    throw Error(Kind::kBadInput, path.string() + ": is no JSON object; copy or download it again");
  return value;
}

// File name of each tensor, by the index of a sharded checkpoint.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const json index = read_json(path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    throw Error(Kind::kBadInput, path.string() + ": has no 'weight_map'");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..")
      throw Error(Kind::kBadInput, fmt::format("{}: tensor '{}': '{}' is no file of the folder",
                                               path.string(), tensor, name));
    files[tensor] = name;
  }
  return files;
}

std::vector<std::string> files_ending(const fs::path& folder, std::string_view end) {
  std::vector<std::string> names;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code))
    if (entry.path().filename().string().ends_with(end))
      names.push_back(entry.path().filename().string());
  if (code) throw Error(Kind::kIo, folder.string() + ": cannot be listed: " + code.message());
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void refuse_folder(const fs::path& folder, const std::vector<std::string>& found) {
  if (found.size() > 1)
    throw Error(Kind::kBadInput,
                fmt::format("{}: holds {} .safetensors files but neither model.safetensors nor {}; "
                            "pass one file",
                            folder.string(), found.size(), kIndex));
  std::string hint = "pass a folder with config.json and *.safetensors, or a .gguf file";
  const auto gguf = files_ending(folder, ".gguf");
  if (!gguf.empty())
    hint = "pass the file " + gguf.front() + " in it";
  else if (!files_ending(folder, ".bin").empty())
    hint = fmt::format(
        "its .bin files are pickled PyTorch data, which is not read; run tools/convert.py {} -o "
        "NEW_FOLDER",
        folder.string());
  throw Error(Kind::kBadInput, fmt::format("{}: holds no .safetensors; {}", folder.string(), hint));
}

// The files that a folder, or one file in it, stands for; `wanted` becomes the index, if one is
// used.
std::vector<std::string> choose_files(const fs::path& folder, const std::string& file,
                                      std::map<std::string, std::string>& wanted) {
  const bool whole = file.empty() && fs::exists(folder / "model.safetensors");
  if (!whole && fs::exists(folder / kIndex)) {
    wanted = read_index(folder / kIndex);
    std::vector<std::string> shards;
    shards.reserve(wanted.size());
    for (const auto& [tensor, shard] : wanted) shards.push_back(shard);
    std::sort(shards.begin(), shards.end());
    shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
    if (file.empty() || std::binary_search(shards.begin(), shards.end(), file)) return shards;
    wanted.clear();
  }
  if (!file.empty()) return {file};
  if (whole) return {"model.safetensors"};
  auto found = files_ending(folder, ".safetensors");
  if (found.size() != 1) refuse_folder(folder, found);
  return found;
}

void add_file(const fs::path& folder, const std::string& name, Checkpoint& checkpoint) {
  const fs::path path = folder / name;
  if (!fs::exists(path))
    throw Error(Kind::kBadInput, fmt::format("{}: is missing; {} names it as a part of the model",
                                             path.string(), kIndex));
  const InputFile file(path.string());
  auto tensors = parse_safetensors_header(file, static_cast<int32_t>(checkpoint.files.size()));
  checkpoint.files.push_back(path.string());
  std::move(tensors.begin(), tensors.end(), std::back_inserter(checkpoint.tensors));
}

// Every tensor of the index is where it says, and no tensor is in two files.
void check_index(const fs::path& folder, const std::map<std::string, std::string>& wanted,
                 const Checkpoint& checkpoint) {
  std::map<std::string_view, std::string_view> found;
  for (const TensorInfo& tensor : checkpoint.tensors) {
    const std::string& file = checkpoint.files[static_cast<size_t>(tensor.extent.file)];
    const auto [at, fresh] = found.emplace(tensor.name, file);
    if (!fresh)
      throw Error(Kind::kBadInput, fmt::format("tensor '{}' is both in {} and in {}", tensor.name,
                                               at->second, file));
  }
  for (const auto& [tensor, file] : wanted) {
    if (is_unused_buffer(tensor)) continue;
    const auto at = found.find(tensor);
    if (at == found.end() || at->second != (folder / file).string())
      throw Error(Kind::kBadInput,
                  fmt::format("{}: has no tensor '{}', which {} expects there; copy or download it "
                              "again",
                              (folder / file).string(), tensor, kIndex));
  }
}

}  // namespace

Checkpoint open_safetensors(const std::string& path) {
  const bool is_folder = fs::is_directory(path);
  fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  Checkpoint checkpoint;
  checkpoint.kind = Checkpoint::Kind::kSafetensors;
  checkpoint.folder = folder.string();
  std::map<std::string, std::string> wanted;
  const std::string file = is_folder ? "" : fs::path(path).filename().string();
  for (const std::string& name : choose_files(folder, file, wanted))
    add_file(folder, name, checkpoint);
  check_index(folder, wanted, checkpoint);
  if (!fs::exists(folder / "config.json"))
    throw Error(Kind::kBadInput, fmt::format("{}: has no config.json, which says what model it is",
                                             folder.string()));
  checkpoint.config = read_json(folder / "config.json");
  if (fs::exists(folder / "generation_config.json"))
    checkpoint.generation_config = read_json(folder / "generation_config.json");
  return checkpoint;
}

}  // namespace transload::engine
