#include "engine/job/wide_number.h"

#include <nlohmann/json.hpp>

#include "engine/job/json_text.h"

namespace transload::engine {
namespace {

using Json = nlohmann::json;

class Finder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return take_id(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return take_id(std::to_string(value)); }
  // Also an integer that no 64-bit type holds.
  bool number_float(number_float_t, const string_t& text) override {
    if (text.find_first_not_of("-0123456789") == std::string::npos) found(text);
    return true;
  }
  bool string(string_t& text) override {
    std::string json;
    append_json(json, text);
    return take_id(json);
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }
  bool parse_error(size_t, const std::string& token, const Json::exception& error) override {
    constexpr int kNumberOverflow = 406;
    is_json_ = error.id == kNumberOverflow;
    if (is_json_) found(token);
    return false;
  }

  std::optional<WideNumber> result() const {
    if (!is_json_ || number_.text.empty()) return std::nullopt;
    return number_;
  }

 private:
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool take_id(const std::string& json) {
    if (depth_ != 1) return true;
    if (key_ == "custom_id" || (key_ == "id" && number_.id_json == "null")) number_.id_json = json;
    return true;
  }
  void found(const std::string& text) {
    if (!number_.text.empty()) return;
    number_.field = key_;
    number_.text = text;
  }

  WideNumber number_{"", "", "null"};
  std::string key_;
  int depth_ = 0;
  bool is_json_ = true;
};

}  // namespace

std::optional<WideNumber> find_wide_number(std::string_view line) {
  Finder finder;
  Json::sax_parse(line, &finder);
  return finder.result();
}

}  // namespace transload::engine
