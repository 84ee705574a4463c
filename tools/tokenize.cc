// transload tokenize: JSON lines of texts to JSON lines of token ids.
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/job/field_reader.h"
#include "engine/job/json_text.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/command.h"

namespace transload::tools {
namespace {

struct Options {
  std::string model;
  std::string input = "-";
  std::string output = "-";
};

std::unique_ptr<engine::Tokenizer> open_tokenizer(const std::string& model) {
  auto tokenizer = engine::load_tokenizer(engine::open_checkpoint(model));
  if (tokenizer == nullptr) {
    throw Error(Kind::kBadInput, model +
                                     ": has no tokenizer; put tokenizer.json, or vocab.json and "
                                     "merges.txt, beside it");
  }
  return tokenizer;
}

// Single-threaded.
class LineTokenizer {
 public:
  explicit LineTokenizer(const engine::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The record of a line, its end included.
  std::string record(std::string_view line, int64_t number) {
    if (static_cast<int64_t>(line.size()) > engine::kLineLimitBytes) {
      return error_record({number, "null", "line_too_long", "longer than 16 MiB; split the text"});
    }
    if (!fields_.parse(line)) return error_record(fields_.error(number));
    std::string_view text;
    bool found = false;
    fields_.for_each_field(kNames, [&](size_t field, engine::FieldReader::Element value) {
      if (field == 0) return;  // the id is read already
      text = fields_.string("text", value);
      found = true;
    });
    if (!fields_.failed() && !found) fields_.fail("missing_text", "no \"text\"; add it");
    if (fields_.failed()) return error_record(fields_.error(number));
    return token_record(tokenizer_.encode(text, /*add_special=*/false));
  }

  bool any_error() const { return any_error_; }

 private:
  static constexpr std::array<std::string_view, 2> kNames = {"id", "text"};

  std::string token_record(const std::vector<int32_t>& tokens) const {
    std::string out = "{\"id\": " + fields_.id_json() + ", \"token_ids\": [";
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ", ";
      engine::append_json(out, int64_t{tokens[i]});
    }
    out += "], \"decoded\": ";
    engine::append_json(out, tokenizer_.decode(tokens));
    return out + "}\n";
  }

  std::string error_record(const engine::LineError& error) {
    any_error_ = true;
    std::string out = "{\"id\": " + error.id_json + ", \"line\": ";
    engine::append_json(out, error.line);
    out += ", \"error\": {\"code\": ";
    engine::append_json(out, error.code);
    out += ", \"message\": ";
    engine::append_json(out, error.message);
    return out + "}}\n";
  }

  const engine::Tokenizer& tokenizer_;
  engine::FieldReader fields_;
  bool any_error_ = false;
};

bool tokenize_lines(const engine::Tokenizer& tokenizer, std::istream& in, std::ostream& out) {
  LineTokenizer lines(tokenizer);
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    std::string_view text = line;
    if (number == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    out << lines.record(text, number);
  }
  if (in.bad()) throw Error(Kind::kIo, "reading the input failed; run again with a readable file");
  if (!out.flush()) throw Error(Kind::kIo, "writing the output failed; is the disk full?");
  return lines.any_error();
}

void check_paths(const Options& options) {
  std::error_code error;
  if (options.input == "-" || options.output == "-") return;
  if (std::filesystem::equivalent(options.input, options.output, error)) {
    throw Error(Kind::kUsage, options.output + ": is the input too; give another --output");
  }
}

int run(const Options& options) {
  check_paths(options);
  const auto tokenizer = open_tokenizer(options.model);
  std::ifstream in_file;
  std::ofstream out_file;
  if (options.input != "-") {
    in_file.open(options.input, std::ios::binary);
    if (!in_file) throw Error(Kind::kIo, options.input + ": cannot be read; check the path");
  }
  if (options.output != "-") {
    out_file.open(options.output, std::ios::binary | std::ios::trunc);
    if (!out_file) throw Error(Kind::kIo, options.output + ": cannot be written; check the path");
  }
  const bool any_error = tokenize_lines(*tokenizer, options.input == "-" ? std::cin : in_file,
                                        options.output == "-" ? std::cout : out_file);
  return any_error ? kPartial : 0;
}

}  // namespace

void add_tokenize(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Turns JSON lines {\"id\", \"text\"} into {\"id\", \"token_ids\", \"decoded\"}.");
  const auto options = std::make_shared<Options>();
  command->add_option("--model", options->model, "A folder with safetensors, or a .gguf file")
      ->required();
  command->add_option("--input", options->input, "JSON lines; - is standard input")
      ->capture_default_str();
  command->add_option("--output", options->output, "JSON lines; - is standard output")
      ->capture_default_str();
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace transload::tools
