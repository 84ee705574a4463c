#include "engine/tokenizer/model_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "engine/checkpoint/nesting.h"
#include "engine/tokenizer/shown.h"

namespace transload::engine {
namespace {

using Json = nlohmann::json;

[[noreturn]] void damaged(const std::string& source, const std::string& what) {
  throw Error(Kind::kBadInput, fmt::format("{}: {}; the file is damaged", source, what));
}

void append_bounded(StringTable& table, std::string_view text, const std::string& source) {
  if (table.bytes.size() + text.size() > std::numeric_limits<uint32_t>::max()) {
    damaged(source, "more than 4 GiB of tokens");
  }
  append(table, text);
}

// Takes entries of a vocabulary out of a parse: each key is dropped, its value counted.
class VocabularySink {
 public:
  explicit VocabularySink(const std::string& source) : source_(source) {}

  bool on(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::key) {
      token_ = parsed.get<std::string>();
      return false;
    }
    if (event != Json::parse_event_t::value || !parsed.is_number_integer()) {
      damaged(source_, fmt::format("the id of token {} is no integer", shown(token_)));
    }
    entries_.add(token_, parsed.get<int64_t>(), source_);
    return true;
  }

  const VocabularyEntries& entries() const { return entries_; }

 private:
  const std::string& source_;
  std::string token_;
  VocabularyEntries entries_;
};

[[noreturn]] void refuse_unreadable(const std::string& source) {
  throw Error(Kind::kIo, source + ": reading failed; it must be a file on a sound disk");
}

Json parse(std::istream& in, const Json::parser_callback_t& callback, const std::string& source) {
  try {
    return Json::parse(in, [&](int depth, Json::parse_event_t event, Json& parsed) {
      check_nesting(depth, source);
      return callback == nullptr || callback(depth, event, parsed);
    });
  } catch (const Json::exception& error) {
    damaged(source, fmt::format("not valid JSON: {}", shown(error.what())));
  } catch (const std::ios_base::failure&) {
    refuse_unreadable(source);
  }
}

// Follows the parse of a tokenizer.json. Depths: 1 keys of the file, 2 of the model, 3 entries of
// its vocabulary or merges, 4 the two halves of a merge.
class TokenizerSink {
 public:
  explicit TokenizerSink(const std::string& source) : source_(source), vocabulary_(source) {}

  bool on(int depth, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      in_model_ = parsed == "model";
      key_.clear();
    } else if (event == Json::parse_event_t::key && depth == 2) {
      key_ = parsed.get<std::string>();
    }
    if (!in_model_) return true;
    if (depth == 2) on_model_key(event, parsed);
    if (depth >= 3 && key_ == "vocab") return vocabulary_.on(event, parsed);
    if (depth >= 3 && key_ == "merges") return on_merge(depth, event, parsed);
    return true;
  }

  const VocabularyEntries& entries() const { return vocabulary_.entries(); }
  StringTable& merges() { return merges_; }

 private:
  void on_model_key(Json::parse_event_t event, const Json& parsed) {
    if (key_ == "type" && event == Json::parse_event_t::value && parsed != "BPE") {
      refuse_model(shown_json(parsed));
    }
    if (key_ == "vocab" && event == Json::parse_event_t::array_start) refuse_model("\"Unigram\"");
  }

  [[noreturn]] void refuse_model(const std::string& name) const {
    throw Error(Kind::kUnsupported,
                fmt::format("{}: model.type {} is not implemented, only BPE is", source_, name));
  }

  bool on_merge(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth == 3 && event == Event::value && parsed.is_string()) {
      append_merge(merges_, parsed.get_ref<const std::string&>(), source_);
      return false;
    }
    if (depth == 3 && event == Event::array_start) {
      halves_ = 0;
      return true;
    }
    if (depth == 4 && event == Event::value && parsed.is_string()) {
      append_bounded(merges_, parsed.get_ref<const std::string&>(), source_);
      ++halves_;
      return false;
    }
    if (depth == 3 && event == Event::array_end && halves_ == 2) return false;
    damaged(source_, fmt::format("model.merges[{}] is not two strings", merges_.size() / 2));
  }

  const std::string& source_;
  bool in_model_ = false;
  std::string key_;  // of the model
  VocabularySink vocabulary_;
  StringTable merges_;
  int halves_ = 0;
};

}  // namespace

void VocabularyEntries::add(std::string_view token, int64_t id, const std::string& source) {
  if (id < 0 || id >= kMaxVocabulary) {
    damaged(source, fmt::format("the id {} of token {} is out of range", id, shown(token)));
  }
  append_bounded(tokens_, token, source);
  ids_.push_back(static_cast<int32_t>(id));
}

StringTable VocabularyEntries::by_id(const std::string& source) const {
  std::vector<int32_t> order(ids_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
    return ids_[static_cast<size_t>(a)] < ids_[static_cast<size_t>(b)];
  });
  StringTable table;
  table.bytes.reserve(tokens_.bytes.size());
  for (const int32_t entry : order) {
    const int32_t id = ids_[static_cast<size_t>(entry)];
    if (id < table.size()) {
      damaged(source, fmt::format("tokens {} and {} both have id {}", shown(table[id]),
                                  shown(tokens_[entry]), id));
    }
    table.ends.resize(static_cast<size_t>(id), static_cast<uint32_t>(table.bytes.size()));
    append(table, tokens_[entry]);
  }
  return table;
}

void append_merge(StringTable& merges, std::string_view text, const std::string& source) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos) {
    damaged(source, fmt::format("merge {} ({}) is not two tokens", merges.size() / 2, shown(text)));
  }
  append_bounded(merges, text.substr(0, space), source);
  append_bounded(merges, text.substr(space + 1), source);
}

TokenizerJson read_tokenizer_tables(std::istream& in, const std::string& source) {
  TokenizerSink sink(source);
  TokenizerJson read;
  read.rest = parse(
      in,
      [&](int depth, Json::parse_event_t event, Json& parsed) {
        return sink.on(depth, event, parsed);
      },
      source);
  read.tokens = sink.entries().by_id(source);
  read.merges = std::move(sink.merges());
  return read;
}

StringTable read_vocabulary_json(std::istream& in, const std::string& source) {
  VocabularySink sink(source);
  const Json rest = parse(
      in,
      [&](int depth, Json::parse_event_t event, Json& parsed) {
        return depth == 0 || sink.on(event, parsed);
      },
      source);
  if (!rest.is_object()) damaged(source, "expected an object of tokens");
  return sink.entries().by_id(source);
}

StringTable read_merges_text(std::istream& in, const std::string& source) {
  StringTable merges;
  std::string line;
  for (bool first = true; std::getline(in, line); first = false) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    append_merge(merges, line, source);
  }
  if (in.bad()) refuse_unreadable(source);
  return merges;
}

Json read_json(std::istream& in, const std::string& source) { return parse(in, nullptr, source); }

}  // namespace transload::engine
