// A tokenizer for tests: a byte is a token; 256 is BOS.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace transload::tests {

class ByteTokenizer : public engine::Tokenizer {
 public:
  explicit ByteTokenizer(bool adds_bos = false) : adds_bos_(adds_bos) {
    for (int i = 0; i < 256; ++i) bytes_ += static_cast<char>(i);
  }
  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    std::vector<int32_t> tokens;
    if (adds_bos_ && add_special) tokens.push_back(256);
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string_view token_bytes(int32_t token) const override {
    return token == 256 ? std::string_view("<s>")
                        : std::string_view(bytes_).substr(static_cast<size_t>(token), 1);
  }
  bool is_special(int32_t token) const override { return token == 256; }
  int64_t vocab_size() const override { return 257; }

 private:
  bool adds_bos_;
  std::string bytes_;
};

}  // namespace transload::tests
