// Hugging Face's tokenizer.json.
#pragma once

#include <istream>
#include <string>

#include "engine/tokenizer/rules.h"

namespace transload::engine {

// GPT-2's words: contractions, and letters, digits or signs with a space before them.
// Source: ByteLevel of Hugging Face's tokenizers.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The rules in a tokenizer.json. Its truncation and padding are left aside, as its users do: they
// are of training, not of the vocabulary.
// Errors, all naming `source` and the key: kBadInput for damage, kUnsupported for models other than
// BPE and for normalizers, pre-tokenizers, decoders, post-processors and options not implemented.
TokenizerRules read_tokenizer_json(std::istream& in, const std::string& source);

}  // namespace transload::engine
