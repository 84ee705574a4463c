#include "engine/job/run_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/job/file.h"

namespace transload::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

std::string dump(const RunIdentity& identity) {
  Json items = Json::object();
  for (const auto& [name, value] : identity) items[name] = value;
  // A path need not be UTF-8; what is not becomes U+FFFD here and when it is compared.
  return Json{{"version", kVersion}, {"identity", items}}.dump(2, ' ', false,
                                                               Json::error_handler_t::replace) +
         "\n";
}

RunIdentity parse(const std::string& path, const std::string& text) {
  const Json root = Json::parse(text, nullptr, false);
  const bool is_state = root.is_object() && root.contains("version") && root.contains("identity") &&
                        root["identity"].is_object();
  if (!is_state || root["version"] != kVersion) {
    throw Error(Kind::kBadInput, path + (is_state ? ": is of another version" : ": is damaged") +
                                     "; choose another --output, or remove it and the output to "
                                     "start anew");
  }
  RunIdentity identity;
  for (const auto& [name, value] : root["identity"].items()) {
    identity.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return identity;
}

std::string value_of(const RunIdentity& identity, const std::string& name) {
  const auto item = std::find_if(identity.begin(), identity.end(),
                                 [&](const auto& pair) { return pair.first == name; });
  return item == identity.end() ? "(not set)" : item->second;
}

void sync_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const File file = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(file.fd()) != 0) throw_errno(errno, "fsync " + folder);
}

}  // namespace

std::optional<RunIdentity> read_state(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  const File file = open_file(path, O_RDONLY);
  std::string text(kStateLimitBytes + 1, '\0');
  text.resize(read_at(file, text.data(), text.size(), 0));
  return parse(path, text);
}

void write_state(const std::string& path, const RunIdentity& identity) {
  const std::string text = dump(identity);
  if (text.size() > kStateLimitBytes) {
    throw Error(Kind::kUsage, path + ": would need " + std::to_string(text.size()) +
                                  " bytes of at most " + std::to_string(kStateLimitBytes) +
                                  "; use shorter paths or settings");
  }
  const std::string beside = path + ".tmp";
  {
    const File file = open_file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    const int failed = write_whole(file.fd(), text);
    if (failed != 0) throw_errno(failed, "write " + beside);
    if (::fsync(file.fd()) != 0) throw_errno(errno, "fsync " + beside);
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) throw_errno(errno, "rename to " + path);
  sync_folder(path);
}

void check_same_run(const std::string& output, const RunIdentity& before,
                    const RunIdentity& asked) {
  const RunIdentity now = parse(output, dump(asked));  // spelled as it is stored
  std::string changes;
  const auto compare = [&](const std::string& name) {
    const std::string was = value_of(before, name), is = value_of(now, name);
    if (was != is) {
      changes += (changes.empty() ? "" : ", ") + name + " was " + was + " and is " + is;
    }
  };
  for (const auto& [name, value] : now) compare(name);
  for (const auto& [name, value] : before) {
    if (value_of(now, name) == "(not set)") compare(name);
  }
  if (changes.empty()) return;
  throw Error(Kind::kUsage, output + ": was written by another run: " + changes +
                                "; repeat its settings to resume, or choose another --output, or "
                                "remove " +
                                output + " and " + output + ".state to start anew");
}

}  // namespace transload::engine
