#include "engine/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace transload::engine {
namespace {

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a, its high bits folded in: places use the low ones
  for (const char byte : text) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
  return hash ^ (hash >> 32);
}

}  // namespace

void append(StringTable& table, std::string_view text) {
  table.bytes += text;
  table.ends.push_back(static_cast<uint32_t>(table.bytes.size()));
}

Vocabulary::Vocabulary(StringTable strings) : strings_(std::move(strings)) {
  const auto count = static_cast<size_t>(strings_.size());
  places_.assign(std::bit_ceil(count + count / 3 + 1), kNoToken);
}

size_t Vocabulary::place(std::string_view text) const {
  const size_t mask = places_.size() - 1;
  size_t at = static_cast<size_t>(hash_of(text)) & mask;
  while (places_[at] != kNoToken && strings_[places_[at]] != text) at = (at + 1) & mask;
  return at;
}

bool Vocabulary::insert(int32_t id) {
  const std::string_view text = strings_[id];
  int32_t& here = places_[place(text)];
  if (here != kNoToken) return false;
  here = id;
  longest_bytes_ = std::max(longest_bytes_, static_cast<int64_t>(text.size()));
  return true;
}

int32_t Vocabulary::find(std::string_view text) const { return places_[place(text)]; }

}  // namespace transload::engine
