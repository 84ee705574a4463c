// Damaged tokenizer files are refused by name, or work; texts survive both ways. The first byte
// says what the rest is: a tokenizer.json, a merges.txt, a vocab.json, or a pattern and a text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "engine/tokenizer/utf8.h"
#include "engine/tokenizer/vocab_files.h"

namespace {

using namespace transload;
using namespace transload::engine;

constexpr const char* kVocabulary = R"({"a": 0, "b": 1, "ab": 2, "\u0120": 3})";

// Encodes texts with a tokenizer and compares the two ways of decoding.
void use(const Tokenizer& tokenizer) {
  for (const char* text : {"", "ab a\xC3\xA9 12", "<s>\xE2\x96\x81  x</s>"}) {
    const auto ids = tokenizer.encode(text, true);
    IncrementalDecoder decoder(tokenizer);
    std::string parts;
    for (const int32_t id : ids) parts += decoder.add(id);
    parts += decoder.finish();
    if (parts != tokenizer.decode(ids) || find_invalid_utf8(parts) != std::string::npos) {
      std::abort();
    }
  }
}

void read_json_file(const std::string& bytes) {
  std::istringstream in(bytes);
  use(BpeTokenizer(read_tokenizer_json(in, "FILE")));
}

void read_two_files(const std::string& vocabulary_bytes, const std::string& merges_bytes) {
  std::istringstream vocabulary(vocabulary_bytes), merges(merges_bytes);
  use(BpeTokenizer(read_vocab_files(vocabulary, merges, {}, {"FILE", "FILE", "", "", ""})));
}

void match_pattern(const std::string& bytes) {
  const size_t cut = bytes.find('\0');
  if (cut == std::string::npos || find_invalid_utf8(bytes) != std::string::npos) return;
  constexpr size_t kLongestPattern = 40;  // its own repetitions may take any time
  if (cut > kLongestPattern || bytes.size() > cut + kLongestPattern) return;
  const Pattern pattern(bytes.substr(0, cut), "FILE");
  Pattern::Match match;
  const std::string text = bytes.substr(cut + 1);
  const auto span = pattern.find(text, 0, match);
  if (span && (span->begin > span->end || span->end > text.size())) std::abort();
}

void run(uint8_t kind, const std::string& bytes) {
  switch (kind % 4) {
    case 0:
      return read_json_file(bytes);
    case 1:
      return read_two_files(kVocabulary, bytes);
    case 2:
      return read_two_files(bytes, "a b\n");
    default:
      return match_pattern(bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    run(data[0], std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  } catch (const Error& error) {
    const std::string_view what = error.what();
    const bool named = what.starts_with("FILE") && what.find('\n') == std::string_view::npos;
    if (!named || error.kind() == Kind::kInternal) std::abort();
  }
  return 0;
}
