// TK-05, TK-07: templates of the common kinds, those that fail, and those that ask for the date.
#include "engine/chat/chat_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace transload::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;  // templates see the order of keys

const std::string kNow = "2024-07-26T10:00:00";

ChatTemplate chat_of(const std::string& text, const Json& variables = Json::object()) {
  return {text, "", variables};
}

ChatRenderer::Result render(const std::string& text, const Json& messages,
                            const Json& variables = Json::object()) {
  return ChatRenderer(chat_of(text, variables), kNow).render(messages.dump());
}

std::string error_of(const std::string& text) {
  const auto result = render(text, Json::array({{{"role", "user"}, {"content", "hi"}}}));
  EXPECT_EQ(result.text, "");
  EXPECT_THAT(result.error, Not(HasSubstr("\n")));
  return result.error;
}

// What transformers' apply_chat_template gives (tests/chat_reference.py), refusals too.
TEST(ChatRenderer, RendersAsTransformersDoes) {
  std::ifstream file(TRANSLOAD_TEST_DATA "/chat/templates.json");
  const Json data = Json::parse(file);
  ASSERT_GE(data["templates"].size(), 20u);
  for (const Json& one : data["templates"]) {
    ChatRenderer renderer(chat_of(one["template"], one["variables"]), data["now"]);
    for (const Json& item : one["cases"]) {
      const auto result = renderer.render(item["messages"].dump());
      const std::string shown = one["name"].get<std::string>() + item["messages"].dump();
      if (item["text"].is_null()) {
        EXPECT_THAT(result.error, StartsWith("the chat template fails at line ")) << shown;
      } else {
        EXPECT_EQ(result.error, "") << shown;
        EXPECT_EQ(result.text, item["text"].get<std::string>()) << shown;
      }
    }
  }
}

TEST(ChatRenderer, NamesThePlaceOfASyntaxError) {
  EXPECT_EQ(error_of("line\n{% for m in messages %}\n  {{ m.role + }}\n{% endfor %}"),
            "the chat template fails at line 3, column 15: unexpected 'end of print statement'");
  EXPECT_THAT(error_of("a\n\n{% if true %}{% endfor %}"), HasSubstr("at line 3, column 17: "));
  EXPECT_THAT(error_of("{{ 'open"), HasSubstr("at line 1"));
  EXPECT_THAT(error_of("{{ x | no_such_filter }}"), HasSubstr("no_such_filter"));
}

TEST(ChatRenderer, NamesTheLineThatFails) {
  EXPECT_EQ(error_of("\n{{ raise_exception('only ' + messages[0].role) }}"),
            "the chat template fails at line 2: only user");
  EXPECT_THAT(error_of("a\nb\n{{ messages[0].role + 1 }}"), HasSubstr("at line 3: "));
}

TEST(ChatRenderer, KeepsTemplatesInTheirSandbox) {
  EXPECT_THAT(error_of("{{ ''.__class__.__mro__[1].__subclasses__() }}"), HasSubstr("line 1"));
  EXPECT_THAT(error_of("{{ messages.append(1) }}"), HasSubstr("line 1"));
  EXPECT_THAT(error_of("{{ 'a' * 100000000000 }}"), HasSubstr("MemoryError"));
  EXPECT_THAT(error_of("{% for i in range(10000000) %}{% endfor %}"), HasSubstr("line 1"));
}

TEST(ChatRenderer, AnyErrorIsOneOfTheTemplate) {
  EXPECT_EQ(error_of(R"({{ raise_exception("no \ud800") }})"),
            "the chat template fails at line 1: no ?");
  EXPECT_THAT(error_of("{{ raise_exception('a' * 90000000) }}").size(), ::testing::Lt(3000u));
  ChatRenderer renderer(chat_of("x"), kNow);
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  const auto result = renderer.render(R"([{"role":"a","tools":)" + deep + "}]");
  EXPECT_EQ(result.error, "the chat template fails: the messages are nested too deep");
  EXPECT_FALSE(result.is_unavailable);
  EXPECT_EQ(renderer.render("[]").text, "x");
}

TEST(ChatRenderer, LimitsTheLengthOfARendering) {
  const Json messages = Json::array({{{"role", "\x01"}}});  // six bytes in JSON
  const auto longest = render("{{ messages[0].role * 67108864 }}", messages);
  EXPECT_EQ(longest.text.size(), 67108864u) << longest.error;
  const std::string says = "the chat template fails: the rendering is longer than 64 MiB";
  EXPECT_EQ(render("{{ messages[0].role * 67108865 }}", messages).error, says);
  EXPECT_EQ(error_of("{{ 'a' * 100000000 }}"), says);
}

// The lines after one that fails are rendered.
TEST(ChatRenderer, GoesOnAfterAFailure) {
  ChatRenderer renderer(chat_of("{{ messages[0].role + messages[0].content }}"), kNow);
  EXPECT_NE(renderer.render(R"([{"role":"a"}])").error, "");
  EXPECT_EQ(renderer.render(R"([{"role":"a","content":"b"}])").text, "ab");
  EXPECT_NE(renderer.render(R"([{"role":"a","content":null}])").error, "");
}

TEST(ChatRenderer, TakesNowAsItIsGiven) {
  const std::string text = "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}";
  EXPECT_EQ(ChatRenderer(chat_of(text), "2031-02-03").render("[]").text, "2031-02-03 00:00:00");
  EXPECT_EQ(render(text, Json::array()).text, "2024-07-26 10:00:00");
  EXPECT_TRUE(is_chat_moment(chat_now()));
  EXPECT_TRUE(is_chat_moment("2024-02-29"));
  for (const char* bad : {"2024-02-30", "2023-02-29T00:00:00", "2024-7-26", "today", "",
                          "2024-07-26T10:00", "2024-07-26 10:00:00", "2024-07-26x"}) {
    EXPECT_FALSE(is_chat_moment(bad)) << bad;
  }
}

TEST(ChatRenderer, DrawsTheSameEachTime) {
  const std::string text = "{% for i in range(20) %}{{ ['a', 'b', 'c']|random }}{% endfor %}";
  EXPECT_EQ(render(text, Json::array()).text, render(text, Json::array()).text);
}

TEST(ChatRenderer, SaysWhatIsMissing) {
  ChatRenderer none({"", "the model has no chat template", Json::object()}, kNow);
  EXPECT_THAT(none.render("[]").error, HasSubstr("the model has no chat template; give"));
  EXPECT_FALSE(none.render("[]").is_unavailable);
  ::setenv("TRANSLOAD_PYTHON", "/nowhere/python3", 1);
  const auto no_python = render("x", Json::array());
  ::setenv("TRANSLOAD_PYTHON", "/bin/false", 1);
  const auto no_answer = render("x", Json::array());
  ::unsetenv("TRANSLOAD_PYTHON");
  EXPECT_THAT(no_python.error, HasSubstr("there is no /nowhere/python3; \"messages\" need"));
  EXPECT_THAT(no_answer.error, HasSubstr("/bin/false does not start"));
  EXPECT_TRUE(no_python.is_unavailable && no_answer.is_unavailable);
  EXPECT_THAT(no_python.error, HasSubstr("runs again only with a new --output"));
}

TEST(ChatRenderer, StartsNoProcessBeforeItIsUsed) {
  ::setenv("TRANSLOAD_PYTHON", "/nowhere/python3", 1);
  const ChatRenderer renderer(chat_of("{{"), kNow);
  ::unsetenv("TRANSLOAD_PYTHON");
  EXPECT_FALSE(renderer.used());
}

}  // namespace
}  // namespace transload::engine
