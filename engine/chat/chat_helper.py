"""Renders a model's chat template with Jinja2, as transformers' apply_chat_template does.

Runs beside transload, which holds this text and starts it at the first chat line. JSON lines in,
JSON lines out:

    {"template", "variables": {"bos_token", ...}, "now": "2024-07-26T10:00:00"}
        -> {"ready": "jinja2 3.1.2"}, or an error
    {"messages": [...]}, and "add_generation_prompt" where that is not true
        -> {"text"}, or an error
    an error is {"error", "line", "column"}; the last two, of the template, where they are known

A template is somebody else's code: it runs in Jinja2's sandbox, in a process with a limited memory,
and gets plain data only. Random filters draw from a fixed seed. A process whose parent has gone
ends on its own, a template that loops or not."""

import json
import random
import resource
import signal
import sys
import traceback
from datetime import datetime

MEMORY_BYTES = 2 << 30
TEXT_BYTES = 64 << 20
LIMIT_SECONDS = 40  # past transload's own limit for an answer
ERROR_CHARACTERS = 2000


def environment(jinja2, now):
    """The environment of transformers: its options, filters, globals and its one block."""
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what the assistant says; it renders as what it holds."""
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        def _body(self, caller):
            return caller()

    def check_attribute(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"namespace attribute {name!r}")

    class Namespace(jinja2.utils.Namespace):
        """No attribute whose name begins with "_" is set: nothing of Python's is reached."""

        def __init__(*values, **names):  # an attribute may be called "self"
            given = dict(*values[1:], **names)
            for name in given:
                check_attribute(name)
            jinja2.utils.Namespace.__init__(values[0], given)

        def __setitem__(self, name, value):
            check_attribute(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

    class Dict:
        """What templates have of Python's dict."""

        def __call__(self, *values, **names):
            return dict(*values, **names)

        def fromkeys(self, *values, **names):
            return dict.fromkeys(*values, **names)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: now.strftime(format)
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


def watch_tokens(lexer):
    """Makes `lexer` note how far it has read; returns what gives (line, column) of that."""
    read, place = lexer.tokeniter, {"source": "", "at": 0}

    def tokens(source, *others, **names):
        place.update(source="\n".join(source.splitlines()), at=0)
        for token in read(source, *others, **names):
            # Tokens come in order; what lies between them is stripped white space.
            at = place["source"].find(token[2], place["at"])
            place["at"] = at if at >= 0 else place["at"]
            yield token
            place["at"] += len(token[2]) if at >= 0 else 0

    def where():
        before = place["source"][:place["at"]]
        return before.count("\n") + 1, place["at"] - before.rfind("\n")

    lexer.tokeniter = tokens
    return where


def syntax_error(error, where):
    line, column = where()
    answer = {"error": error.message, "line": error.lineno}
    if line == error.lineno:
        answer["column"] = column
    return answer


def render_error(error):
    text = str(error)[:ERROR_CHARACTERS] or type(error).__name__
    answer = {"error": text.encode(errors="replace").decode()}  # it may hold half surrogate pairs
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == "<template>"]
    if lines:
        answer["line"] = lines[-1]
    return answer


def plain(message):
    """A message as transformers hands it on: without nulls, and what the model thought under the
    names that templates read, reasoning_content and (gpt-oss) thinking, whichever it came by."""
    message = {name: value for name, value in message.items() if value is not None}
    thought = [message[name] for name in ("reasoning_content", "thinking", "reasoning")
               if name in message]
    if thought:
        message = {"thinking": thought[0], **message, "reasoning_content": thought[0]}
    return message


class Renderer:
    def __init__(self, jinja2, setup):
        self.variables, self.failed = setup["variables"] or {}, None
        env = environment(jinja2, datetime.fromisoformat(setup["now"]))
        where = watch_tokens(env.lexer)
        try:
            self.template = env.from_string(setup["template"])
        except jinja2.exceptions.TemplateSyntaxError as error:
            self.failed = syntax_error(error, where)
        except Exception as error:
            self.failed = render_error(error)

    def answer(self, request):
        if self.failed:
            return self.failed
        random.seed(0)
        try:
            messages = [plain(message) for message in request["messages"]]
            text = self.template.render({"tools": None, "documents": None, **self.variables,
                                         "messages": messages, "add_generation_prompt":
                                         request.get("add_generation_prompt", True)})
            if len(text.encode()) > TEXT_BYTES:
                return {"error": f"the rendering is longer than {TEXT_BYTES >> 20} MiB"}
        except Exception as error:
            return render_error(error)
        return {"text": text}


def say(answer):
    signal.alarm(0)
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def answer_line(renderer, line):
    try:
        return renderer.answer(json.loads(line))
    except RecursionError:
        return {"error": "the messages are nested too deep"}
    except Exception as error:
        return render_error(error)


def lines():
    """What transload asks. From here to the answer, the process has LIMIT_SECONDS."""
    for line in sys.stdin.buffer:
        signal.alarm(LIMIT_SECONDS)
        yield line


def limit_memory():
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run ends after its sweep
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
    except ImportError:
        say({"missing": f"Jinja2 is missing in {sys.executable}"})
        return
    limit_memory()
    asked = lines()
    renderer = Renderer(jinja2, json.loads(next(asked)))
    say({"ready": f"jinja2 {jinja2.__version__}"})
    for line in asked:
        say(answer_line(renderer, line))


main()
