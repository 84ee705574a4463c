// Folders and files that a test makes, and the text of an error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace transload::testing {

namespace fs = std::filesystem;

// A folder that is removed with its contents.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "checkpoint-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string data(const std::string& name) {
  return std::string(TRANSLOAD_TEST_DATA) + "/tiny/" + name;
}

// Copies a tiny model with config.json changed by `change(json&)`.
template <class Change>
void copy_model(const std::string& name, const std::string& to, const Change& change) {
  nlohmann::json config = nlohmann::json::parse(read_file(data(name) + "/config.json"));
  change(config);
  write_file(to + "/config.json", config.dump());
  const std::string weights = data(name) + "/model.safetensors";
  if (fs::exists(weights) && !fs::exists(to + "/model.safetensors"))
    fs::create_symlink(weights, to + "/model.safetensors");
}

struct Thrown {
  Kind kind{};
  std::string text;
};

// The Error that `call` throws; a failure of the test if it throws none.
template <class Call>
Thrown thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return {error.kind(), error.what()};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace transload::testing
