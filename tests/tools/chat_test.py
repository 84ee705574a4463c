"""chat_test.py TRANSLOAD: lines with "messages", from the command line on."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import tiny_model

TRANSLOAD = sys.argv.pop(1) if len(sys.argv) > 1 else "transload"
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DATA = os.path.join(ROOT, "tests", "data", "chat")
# In Python's place: ends where it is given "spoil" for the second time.
DIES_THE_SECOND_TIME = """#!/bin/sh
read -r setup
echo '{{"ready": "a test"}}'
while read -r line; do
  case $line in *spoil*)
    echo x >> {seen}
    [ $(wc -l < {seen}) -gt 1 ] && exit 1
  esac
  echo '{{"text": "abc"}}'
done
"""
DATED = "{{ strftime_now('%d %b %Y') }}\n" + tiny_model.CHATML


def user(content):
    return [{"role": "user", "content": content}]


class Jobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.path("model")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_model_file(self, name, text):
        with open(os.path.join(self.model, name), "w", encoding="utf-8") as file:
            file.write(text)

    def make(self, template=tiny_model.CHATML):
        tiny_model.make(TRANSLOAD, self.model, template=template)

    def generate(self, lines, *flags, output="out.jsonl", status=0, environment=None):
        """Records by id."""
        with open(self.path("in.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run(
            [TRANSLOAD, "generate", "--model", self.model, "--input", self.path("in.jsonl"),
             "--output", self.path(output), "--threads", "1", "--max-tokens", "4", *flags],
            capture_output=True, text=True, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stderr)
        self.said = done.stderr
        if status > 1:
            return {}
        with open(self.path(output), encoding="utf-8") as file:
            return {record["id"]: record for record in map(json.loads, file)}


class Chat(Jobs):
    def test_is_the_rendered_prompt(self):
        self.make()
        prompt = "<|im_start|>user\nHé?<|im_end|>\n<|im_start|>assistant\n"
        records = self.generate([{"id": 1, "messages": user("Hé?")}, {"id": 2, "prompt": prompt}])
        self.assertEqual(records[1]["token_ids"], records[2]["token_ids"])
        self.assertEqual(records[1]["usage"]["prompt_tokens"],
                         len("user\nHé?\nassistant\n".encode()) + 3)

    def test_a_bad_template_fails_its_lines_only(self):
        self.make("x\n{% endfor %}")
        records = self.generate([{"id": 1, "messages": user("a")}, {"id": 2, "prompt": "a"}],
                                status=1)
        self.assertEqual(records[1]["error"]["code"], "chat_template")
        self.assertIn("line 2, column 4", records[1]["error"]["message"])
        self.assertEqual(records[2]["finish_reason"], "length")

    def test_no_broken_template_keeps_a_raw_prompt_from_running(self):
        """TK-05: each of the common kinds with a tag that closes nothing."""
        with open(os.path.join(DATA, "templates.json"), encoding="utf-8") as file:
            templates = json.load(file)["templates"]
        self.assertGreaterEqual(len(templates), 20)
        self.make()
        for one in templates:
            broken = one["template"].rstrip("\n") + "\n{# #}\n  {% endmacro %}"
            tiny_model.write_chat_template(self.model, broken)
            with self.subTest(template=one["name"]):
                records = self.generate([{"id": 1, "messages": user("a")}, {"id": 2, "prompt": "a"},
                                         {"id": 3, "messages": user("b")}],
                                        output=one["name"], status=1)
                line = broken.count("\n") + 1
                for number in (1, 3):
                    self.assertEqual(records[number]["error"]["code"], "chat_template")
                    self.assertIn(f"at line {line}, column 6: ",
                                  records[number]["error"]["message"])
                self.assertEqual(records[2]["finish_reason"], "length")

    def test_without_python_raw_prompts_run(self):
        self.make()
        records = self.generate([{"id": 1, "messages": user("a")}, {"id": 2, "prompt": "a"}],
                                status=1, environment={"TRANSLOAD_PYTHON": "/nowhere/python3"})
        self.assertEqual(records[1]["error"]["code"], "chat_unavailable")
        self.assertIn("install python3-jinja2", records[1]["error"]["message"])
        self.assertEqual(records[2]["finish_reason"], "length")

    def test_damaged_chat_files_fail_chat_lines_only(self):
        """TK-05's kind."""
        self.make()
        os.mkdir(os.path.join(self.model, "chat_template.jinja"))
        self.check_damaged("chat_template.jinja: is no regular file")
        self.write_model_file("special_tokens_map.json", "{")
        self.check_damaged("special_tokens_map.json: is no JSON object")

    def check_damaged(self, says):
        records = self.generate([{"id": 1, "messages": user("a")}, {"id": 2, "prompt": "a"}],
                                output=says, status=1)
        self.assertEqual(records[1]["error"]["code"], "chat_template")
        self.assertIn(says, records[1]["error"]["message"])
        self.assertEqual(records[2]["finish_reason"], "length")

    def test_content_may_be_a_list_of_text_parts(self):
        self.make("{% for part in messages[0].content %}{{ part.text }}{% endfor %}")
        parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "é?"}]
        image = [{"type": "image_url", "image_url": {"url": "x"}}]
        records = self.generate([{"id": 1, "messages": user(parts)}, {"id": 2, "prompt": "Hé?"},
                                 {"id": 3, "messages": user(image)}], status=1)
        self.assertEqual(records[1]["token_ids"], records[2]["token_ids"])
        self.assertIn('"image_url"', records[3]["error"]["message"])

    def test_a_process_that_ends_while_the_job_runs_fails_its_line_only(self):
        self.make()
        python = self.path("python")
        with open(python, "w", encoding="utf-8") as file:
            file.write(DIES_THE_SECOND_TIME.format(seen=self.path("seen")))
        os.chmod(python, 0o755)
        lines = [{"id": i, "messages": user("spoil" if i == 2 else "a")} for i in range(1, 4)]
        records = self.generate(lines, "--batch-size", "1", "--num-batches", "1", status=1,
                                environment={"TRANSLOAD_PYTHON": python})
        self.assertEqual(records[2]["error"]["code"], "chat_unavailable")
        self.assertIn("only with a new --output", records[2]["error"]["message"])
        self.assertEqual([records[i]["finish_reason"] for i in (1, 3)], ["length"] * 2)

    def test_a_resumed_job_is_not_spoiled_where_python_is_missing(self):
        self.make()
        lines = [{"id": i, "messages": user("a" * i)} for i in range(1, 4)]
        whole = self.generate(lines)
        with open(self.path("out.jsonl"), "r+b") as file:
            file.truncate(len(file.readline()))
        with open(self.path("out.jsonl"), "rb") as file:
            before = file.read()
        self.generate(lines, status=5, environment={"TRANSLOAD_PYTHON": "/nowhere/python3"})
        self.assertIn("no record was written", self.said)
        with open(self.path("out.jsonl"), "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(self.generate(lines), whole)

    def test_now_is_what_it_is_set_to(self):
        self.make(DATED)
        lines = [{"id": 1, "messages": user("a")},
                 {"id": 2, "prompt": "26 Jul 2024\n<|im_start|>user\na<|im_end|>\n"
                                     "<|im_start|>assistant\n"}]
        records = self.generate(lines, "--chat-now", "2024-07-26")
        self.assertEqual(records[1]["token_ids"], records[2]["token_ids"])
        self.generate(lines, "--chat-now", "tomorrow", output="none.jsonl", status=2)

    def test_a_set_now_gives_the_same_bytes_on_every_day(self):
        """TK-07. It is never the same day in these two time zones."""
        self.make(DATED)
        lines = [{"id": i, "messages": user("a" * i), "logprobs": 2} for i in range(1, 4)]
        days = {"east": {"TZ": "UTC-14"}, "west": {"TZ": "UTC+12"}}
        outputs = {}
        for name, flags in (("set", ["--chat-now", "2024-07-26"]), ("left-out", [])):
            for day, zone in days.items():
                self.generate(lines, *flags, output=name + day, environment=zone)
                with open(self.path(name + day), "rb") as file:
                    outputs[name, day] = sorted(file)
        self.assertEqual(outputs["set", "east"], outputs["set", "west"])
        self.assertNotEqual(outputs["left-out", "east"], outputs["left-out", "west"])

    def test_a_resumed_job_keeps_its_now(self):
        self.make(DATED)
        lines = [{"id": i, "messages": user("a" * i)} for i in range(1, 4)]
        whole = self.generate(lines, "--chat-now", "2020-02-02T00:00:00")
        with open(self.path("out.jsonl"), "r+b") as file:
            file.truncate(len(file.readline()) + 5)
        self.assertEqual(self.generate(lines), whole)
        self.generate(lines, "--chat-now", "2021-01-01", status=2)


class Process(unittest.TestCase):
    """The process that renders templates, by itself."""

    def run_helper(self, template, **options):
        with open(os.path.join(ROOT, "engine", "chat", "chat_helper.py"), encoding="utf-8") as file:
            source = file.read().replace("LIMIT_SECONDS = 40", "LIMIT_SECONDS = 1")
        setup = {"template": template, "variables": {}, "now": "2024-07-26"}
        said = "".join(json.dumps(line) + "\n" for line in (setup, {"messages": []}))
        python = os.environ.get("TRANSLOAD_PYTHON") or "/usr/bin/python3"
        return subprocess.run([python, "-I", "-c", source], input=said, text=True, timeout=60,
                              capture_output=True, **options)

    def test_ends_on_its_own_where_a_template_loops(self):
        loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        done = self.run_helper(loop)
        self.assertEqual(done.returncode, -signal.SIGALRM, done.stderr)

    def test_runs_under_a_smaller_limit_of_memory(self):
        limit = (1 << 30, 1 << 30)
        done = self.run_helper("x", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
        self.assertEqual(done.stdout.splitlines()[1:], ['{"text": "x"}'], done.stderr)


class ChangedModel(Jobs):
    """A resume names what of the model changed."""

    LINES = [{"id": i, "messages": user("a" * i)} for i in range(1, 4)]

    def setUp(self):
        super().setUp()
        self.make()
        self.generate(self.LINES)
        with open(self.path("out.jsonl"), "r+b") as file:
            file.truncate(len(file.readline()))

    def change(self, name, change):
        path = os.path.join(self.model, name)
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        change(content)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)

    def check_refused(self, *names):
        self.generate(self.LINES, status=2)
        self.assertRegex(self.said, r"error \[usage\]: .*another run: ")
        for name in ("model", "config", "tokenizer", "chat template", "end tokens", "job"):
            self.assertEqual(f"{name} was " in self.said, name in names, (name, self.said))

    def test_an_unchanged_model_resumes(self):
        self.change("tokenizer_config.json", lambda config: None)
        self.assertEqual(len(self.generate(self.LINES)), 3)

    def test_the_chat_template(self):
        tiny_model.write_chat_template(self.model, tiny_model.CHATML + " ")
        self.check_refused("chat template")

    def test_a_template_of_its_own_file(self):
        self.write_model_file("chat_template.jinja", "{{ messages }}")
        self.check_refused("chat template")

    def test_a_variable_of_the_template(self):
        self.write_model_file("special_tokens_map.json", '{"pad_token": "<s>"}')
        self.check_refused("chat template")

    def test_the_tokenizer(self):
        self.change("tokenizer.json", lambda file: file["added_tokens"][0].update(lstrip=True))
        self.check_refused("tokenizer")

    def test_the_tokenizers_configuration(self):
        self.change("tokenizer_config.json", lambda file: file.update(add_bos_token=True))
        self.check_refused("tokenizer")

    def test_the_end_tokens(self):
        self.change("generation_config.json", lambda file: file.update(eos_token_id=[7, 9]))
        self.check_refused("end tokens")
        self.assertIn("[7,9]", self.said)

    def test_the_configuration(self):
        self.change("config.json", lambda file: file.update(rms_norm_eps=0.01))
        self.check_refused("config")


@unittest.skipUnless(os.environ.get("TRANSLOAD_MODEL"), "TRANSLOAD_MODEL is not set")
class Reference(Jobs):
    def test_smollm2_answers_as_the_reference(self):
        self.model = os.environ["TRANSLOAD_MODEL"]
        with open(os.path.join(DATA, "smollm2.json"), encoding="utf-8") as file:
            cases = json.load(file)
        lines = [{"id": i, "messages": case["messages"], "max_tokens": 12}
                 for i, case in enumerate(cases)]
        lines += [{"id": i + 10, "prompt": case["prompt"], "max_tokens": 12}
                  for i, case in enumerate(cases)]
        records = self.generate(lines, "--compute", "float32")
        for i, case in enumerate(cases):
            self.assertEqual(records[i]["usage"]["prompt_tokens"], case["prompt_tokens"])
            self.assertEqual(records[i]["token_ids"], records[i + 10]["token_ids"])
            self.assertEqual(records[i]["token_ids"],
                             case["greedy_ids"][:len(records[i]["token_ids"])])


if __name__ == "__main__":
    unittest.main()
