#include "engine/chat/chat_renderer.h"

#include <cstdlib>
#include <ctime>

#include "engine/chat/chat_helper.h"

namespace transload::engine {
namespace {

using Json = nlohmann::json;

constexpr int kLimitSeconds = 30;  // for a start, and for a line
constexpr const char* kOnlyAnew =
    "; a line that has its error record runs again only with a new --output";

std::string where(const Json& answer) {
  if (!answer.contains("line")) return "";
  std::string text = " at line " + answer["line"].dump();
  if (answer.contains("column")) text += ", column " + answer["column"].dump();
  return text;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

std::vector<std::string> pythons() {
  const char* chosen = std::getenv("TRANSLOAD_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  return {"/usr/bin/python3", "python3"};  // Debian's package serves the first
}

}  // namespace

ChatRenderer::ChatRenderer(ChatTemplate chat, std::string now)
    : chat_(std::move(chat)), now_(std::move(now)), why_none_(chat_.why_none) {
  if (!why_none_.empty()) why_none_ += "; give \"prompt\" instead of \"messages\"";
}

// True when this Python has Jinja2. Notes what is missing otherwise.
bool ChatRenderer::start_with(const std::string& python) {
  if (!helper_.start({python, "-I", "-c", std::string(kChatHelper)})) {
    if (unavailable_.empty()) unavailable_ = "there is no " + python;
    return false;
  }
  const Json setup{{"template", chat_.text}, {"variables", chat_.variables}, {"now", now_}};
  const auto text = setup.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::optional<std::string> answer = helper_.ask(text, kLimitSeconds);
  const Json said = answer ? Json::parse(*answer, nullptr, false) : Json();
  if (said.is_object() && said.contains("ready")) {
    unavailable_.clear();
    description_ = python + ", " + said["ready"].get<std::string>();
    return true;
  }
  helper_.stop();
  unavailable_ = said.is_object() && said.contains("missing") ? said["missing"].get<std::string>()
                                                              : python + " does not start";
  return false;
}

void ChatRenderer::start() {
  for (const std::string& python : pythons()) {
    if (start_with(python)) return;
  }
  unavailable_ += std::string(
                      "; \"messages\" need Python with Jinja2: install python3-jinja2 "
                      "(TRANSLOAD_PYTHON names another interpreter), or give \"prompt\"") +
                  kOnlyAnew;
}

ChatRenderer::Result ChatRenderer::render_once(std::string_view messages_json) {
  if (unavailable_.empty() && !helper_.running()) start();
  if (!unavailable_.empty()) return {"", unavailable_, true};
  std::string request = "{\"messages\":";
  request += messages_json;
  request += '}';
  const std::optional<std::string> answer = helper_.ask(request, kLimitSeconds);
  const Json said = answer ? Json::parse(*answer, nullptr, false) : Json();
  if (said.is_object() && said.contains("text")) return {said["text"], ""};
  if (said.is_object() && said.contains("error")) {
    return {"", one_line("the chat template fails" + where(said) + ": " +
                         said["error"].get<std::string>())};
  }
  if (!helper_.timed_out()) {
    helper_.stop();  // what it said is no answer
    return {};
  }
  return {"",
          "the chat template did not end in " + std::to_string(kLimitSeconds) +
              " s; correct the template or shorten the messages" + kOnlyAnew,
          true};
}

ChatRenderer::Result ChatRenderer::render(std::string_view messages_json) {
  used_ = true;
  if (!why_none_.empty()) return {"", why_none_};
  for (int tries = 0; tries < 2; ++tries) {
    Result result = render_once(messages_json);
    if (!result.text.empty() || !result.error.empty() || helper_.running()) return result;
  }
  return {"",
          std::string("the process that renders chat templates ended on its own, twice; see "
                      "whether memory is short") +
              kOnlyAnew,
          true};
}

std::string chat_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::string text(32, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &local));
  return text;
}

bool is_chat_moment(const std::string& text) {
  std::tm moment{};
  const bool has_time = text.find('T') != std::string::npos;
  const char* const end =
      ::strptime(text.c_str(), has_time ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d", &moment);
  // As the helper reads it: every digit is there, and the day exists.
  if (end == nullptr || *end != '\0' || text.size() != (has_time ? 19u : 10u)) return false;
  std::tm normal = moment;
  normal.tm_isdst = -1;
  return ::timegm(&normal) != -1 && normal.tm_mday == moment.tm_mday && moment.tm_year >= -899;
}

}  // namespace transload::engine
