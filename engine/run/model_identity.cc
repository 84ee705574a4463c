#include "engine/run/model_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "engine/checkpoint/input_file.h"
#include "engine/checkpoint/nesting.h"
#include "engine/tokenizer/tokenizer.h"

namespace transload::engine {
namespace {

using Json = nlohmann::json;

std::string hash_of(std::string_view text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string hash_of_file(const std::string& path) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  const InputFile file(path);
  std::vector<std::byte> chunk(static_cast<size_t>(64 * kKiB));
  for (int64_t at = 0; at < file.bytes(); at += 64 * kKiB) {
    const std::span part =
        std::span(chunk).first(static_cast<size_t>(std::min(64 * kKiB, file.bytes() - at)));
    file.read(at, part);
    XXH3_64bits_update(state.get(), part.data(), part.size());
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string weights_identity(const layout::Model& model) {
  std::string text = model.spec.family;
  for (const layout::Weight& weight : model.weights)
    text += fmt::format(";{}:{}:{}:{}:{}", weight.name, quant::name(weight.format), weight.rows,
                        weight.cols, weight.extent.offset);
  for (const std::string& path : model.files) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) throw_errno(errno, "reading " + path);
    text += fmt::format(";{}:{}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return hash_of(text);
}

namespace {

// A tokenizer_config.json holds the chat template too, which has an identity of its own.
std::string tokenizer_identity(const Checkpoint& checkpoint) {
  std::string hashes;
  for (const std::string& path : tokenizer_files(checkpoint)) {
    const std::string name = std::filesystem::path(path).filename();
    hashes += name + ":";
    if (name != "tokenizer_config.json") {
      hashes += hash_of_file(path);
      continue;
    }
    Json config = parse_model_json(read_text(path, kGiB), path);
    if (config.is_object()) config.erase("chat_template");
    hashes += text_of(config);
  }
  return hash_of(hashes);
}

std::string end_tokens_identity(const std::vector<int32_t>& tokens) {
  constexpr size_t kShownTokens = 16;
  const std::string text = fmt::format("{}", fmt::join(tokens, ","));
  return tokens.size() <= kShownTokens ? "[" + text + "]" : hash_of(text);
}

}  // namespace

ModelIdentity identify(const Checkpoint& checkpoint, const layout::Model& model,
                       const ChatTemplate& chat, const std::vector<int32_t>& end_tokens) {
  return {
      .weights = weights_identity(model),
      .config = hash_of(text_of(checkpoint.config)),
      .tokenizer = tokenizer_identity(checkpoint),
      .chat_template = hash_of(text_of(Json::array({chat.text, chat.why_none, chat.variables}))),
      .end_tokens = end_tokens_identity(end_tokens)};
}

}  // namespace transload::engine
