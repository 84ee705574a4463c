"""SC-01: the adapter for lm-evaluation-harness (tools/transload_lm.py).

Runs against a stand-in of the harness's base class (harness/), and where TRANSLOAD_LM_EVAL is set
against the harness that is installed."""

import collections
import importlib.util
import json
import os
import sys
import unittest

from support import BINARY, MODEL, CommandTest, main, needs_model, read_json, read_records
import tiny_model

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
if not os.environ.get("TRANSLOAD_LM_EVAL"):
    sys.path.insert(0, os.path.join(HERE, "harness"))

from lm_eval.api.registry import get_model  # noqa: E402
import transload_lm  # noqa: E402

Instance = collections.namedtuple("Instance", "args")


def instances(*arguments):
    return [Instance(args) for args in arguments]


class Adapter(CommandTest):
    """A tiny model whose tokens are bytes, with a context of 64."""

    CONTEXT = 64

    def setUp(self):
        super().setUp()
        self.model = self.path("model")
        tiny_model.make(BINARY, self.model, positions=self.CONTEXT)
        self.lm = get_model("transload")(model=self.model, transload=BINARY, batch_size=1,
                                         flags="--threads 1 --compute float32")

    def score(self, context, continuation):
        """What the command says of token ids."""
        output = self.fresh()
        job = self.job([{"id": 0, "prompt_token_ids": list(context),
                         "continuation_token_ids": list(continuation)}])
        self.check_status(self.transload("score", "--model", self.model, "--input", job, "--output",
                                         output, "--threads", 1, "--compute", "float32"))
        return read_records(output)[0]["logprob_sum"]

    def check_sums(self, got, want):
        self.assertEqual(len(got), len(want))
        for one, other in zip(got, want):
            self.assertAlmostEqual(one, other, delta=1e-4)

    def test_is_registered_under_its_name(self):
        self.assertIs(get_model("transload"), transload_lm.TransloadLM)
        self.assertEqual(self.lm.max_length, self.CONTEXT)

    def test_a_continuation_follows_its_context_and_spaces_belong_to_it(self):
        answers = self.lm.loglikelihood(instances(("ab c", " de"), ("ab c ", "de"), ("x", "y")))
        self.check_sums([logprob for logprob, _ in answers],
                        [self.score(b"ab c", b" de")] * 2 + [self.score(b"x", b"y")])
        self.assertEqual({type(is_greedy) for _, is_greedy in answers}, {bool})

    def test_without_context_the_prefix_token_stands_before(self):
        (logprob, _), = self.lm.loglikelihood(instances(("", "abc")))
        self.check_sums([logprob], [self.score([self.lm.prefix_token_id], b"abc")])
        other = get_model("transload")(model=self.model, transload=BINARY, prefix_token_id="257",
                                       flags="--compute float32")
        (logprob, _), = other.loglikelihood(instances(("", "abc")))
        self.check_sums([logprob], [self.score([257], b"abc")])

    def test_the_prefix_token_is_bos_and_without_bos_eos(self):
        self.assertEqual(self.lm.prefix_token_id, tiny_model.BOS)
        for config, token in (({"eos_token": "</s>"}, tiny_model.EOS),
                              ({"bos_token": None, "eos_token": {"content": "<|im_end|>"}}, 257)):
            with open(os.path.join(self.model, "tokenizer_config.json"), "w",
                      encoding="utf-8") as file:
                json.dump(config, file)
            other = get_model("transload")(model=self.model, transload=BINARY)
            self.assertEqual(other.prefix_token_id, token)

    def test_a_context_that_is_too_long_loses_its_begin(self):
        context = "".join(chr(97 + i % 26) for i in range(90))
        answers = self.lm.loglikelihood(instances((context, " end"), ("short", " end")))
        kept = context[-(self.CONTEXT - 4):].encode()
        self.check_sums([logprob for logprob, _ in answers],
                        [self.score(kept, b" end"), self.score(b"short", b" end")])

    def test_rolling_scores_each_token_once(self):
        text = "".join(chr(97 + i * i % 26) for i in range(150))
        prefix, ids = self.lm.prefix_token_id, list(text.encode())
        want = (self.score([prefix], ids[:63]) + self.score(ids[62:63], ids[63:126]) +
                self.score(ids[86:126], ids[126:]))
        self.check_sums(self.lm.loglikelihood_rolling(instances((text,), ("ab",), ("",))),
                        [want, self.score([prefix], b"ab"), 0.0])

    def test_windows_cover_the_tokens_with_the_context_that_fits(self):
        for length in range(20):
            tokens = list(range(length))
            windows = transload_lm.rolling_windows(tokens, -1, 6)
            self.assertEqual([token for _, scored in windows for token in scored], tokens)
            for number, (context, scored) in enumerate(windows):
                self.assertLessEqual(len(context) + len(scored), 6)
                self.assertEqual(context[-1], scored[0] - 1)
                self.assertTrue(len(scored) == 5 or number == len(windows) - 1)

    def test_answers_end_before_their_stop_strings(self):
        free, = self.lm.generate_until(instances(("ab", {"max_gen_toks": 12})))
        self.assertGreater(len(free), 4)
        stop = free[3]
        cut, both, sampled = self.lm.generate_until(instances(
            ("ab", {"until": [stop], "max_gen_toks": 12, "do_sample": False, "temperature": 0.0}),
            ("ab", {"until": stop, "max_gen_toks": 12}),
            ("ab", {"max_gen_toks": 12, "do_sample": True, "temperature": 1.5, "seed": 3})))
        self.assertEqual((cut, both), (free[:free.index(stop)],) * 2)
        self.assertNotEqual(sampled, free)

    def test_a_greedy_answer_keeps_its_penalties_alone(self):
        for name, value in (("repetition_penalty", 1.9), ("presence_penalty", 2),
                            ("frequency_penalty", 1.5)):
            arguments = {"max_gen_toks": 24, "do_sample": False, "temperature": 1.5, "top_p": 0.1,
                         name: value}
            output, job = self.fresh(), self.job([{"id": 0, "prompt": "ab", "max_tokens": 24,
                                                   name: value}])
            self.check_status(self.transload("generate", "--model", self.model, "--input", job,
                                             "--output", output, "--compute", "float32"))
            answer, free = self.lm.generate_until(instances(("ab", arguments),
                                                            ("ab", {"max_gen_toks": 24})))
            self.assertEqual(answer, read_records(output)[0]["text"], name)
            self.assertNotEqual(answer, free, name)

    def test_a_prompt_that_begins_with_bos_gets_no_other(self):
        tiny_model.put_bos_first(self.model)
        answer, = self.lm.generate_until(instances(("<s>ab", {"max_gen_toks": 8})))
        output, job = self.fresh(), self.job([{"id": 0, "max_tokens": 8,
                                               "prompt_token_ids": [tiny_model.BOS, *b"ab"]}])
        self.check_status(self.transload("generate", "--model", self.model, "--input", job,
                                         "--output", output, "--compute", "float32"))
        self.assertEqual(answer, read_records(output)[0]["text"])
        answers = self.lm.loglikelihood(instances(("<s>ab", " c"), ("ab", " c")))
        self.check_sums([logprob for logprob, _ in answers],
                        [self.score([tiny_model.BOS, *b"ab"], b" c")] * 2)

    def test_a_prompt_that_is_too_long_keeps_its_end(self):
        context = "".join(chr(97 + i % 26) for i in range(90))
        arguments = {"max_gen_toks": 10}
        answers = self.lm.generate_until(instances(
            (context, arguments), (context[-(self.CONTEXT - 10):], arguments)))
        self.assertEqual(answers[0], answers[1])

    def test_failures_say_what_is_wrong(self):
        with self.assertRaisesRegex(RuntimeError, "invalid_value: .*at least one token"):
            self.lm.loglikelihood(instances(("a", "b"), ("a", "")))
        for samples in (True, False):
            with self.assertRaisesRegex(ValueError, "num_beams"):
                self.lm.generate_until(instances(("a", {"num_beams": 4, "do_sample": samples})))
        with self.assertRaisesRegex(RuntimeError, r"error \[bad_input\].*absent"):
            get_model("transload")(model=self.path("absent"), transload=BINARY)
        self.lm.flags = ["--nosuch"]
        with self.assertRaisesRegex(RuntimeError, r"error \[usage\].*--nosuch"):
            self.lm.loglikelihood(instances(("a", "b")))


@unittest.skipUnless(importlib.util.find_spec("jinja2"), "needs jinja2, which the harness brings")
class Chat(CommandTest):
    TEMPLATE = ("{% for message in messages %}{% if message.role == 'system' %}"
                "{{ raise_exception('no system') }}{% endif %}[{{ message.role }}]"
                "{{ message.content | trim }}<|im_end|>{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}")

    def adapter(self, template=TEMPLATE):
        folder = self.fresh(ending="")
        tiny_model.make(BINARY, folder, template=template)
        lm = get_model("transload")(model=folder, transload=BINARY, flags="--compute float32")
        self.addCleanup(lambda: lm._renderer and lm._renderer.close())
        return lm

    def test_renders_as_messages_are(self):
        lm = self.adapter()
        self.assertEqual((lm.chat_template(True), lm.chat_template(False)), (self.TEMPLATE, None))
        messages = [{"role": "user", "content": "Hé "}]
        prompt = lm.apply_chat_template(messages)
        self.assertEqual(prompt, "[user]Hé<|im_end|>[assistant]")
        output, job = self.fresh(), self.job([{"id": 0, "messages": messages, "max_tokens": 8}])
        self.check_status(self.transload("generate", "--model", lm.model, "--input", job,
                                         "--output", output, "--compute", "float32"))
        answer, = lm.generate_until(instances((prompt, {"max_gen_toks": 8})))
        self.assertEqual(answer, read_records(output)[0]["text"])

    def test_an_answer_that_is_begun_goes_on(self):
        lm = self.adapter()
        messages = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": " a "}]
        self.assertEqual(lm.apply_chat_template(messages, add_generation_prompt=False),
                         "[user]a b<|im_end|>[assistant]a")
        self.assertEqual(transload_lm.cut_after("<a> b \n</a>", " b \n"), "<a> b \n")

    def test_a_template_without_system_messages_does_without(self):
        lm = self.adapter()
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
        with self.assertLogs(transload_lm.__name__, "WARNING") as logs:
            self.assertEqual(lm.apply_chat_template(messages), "[user]a<|im_end|>[assistant]")
        self.assertIn("no system", logs.output[0])

    def test_what_cannot_be_rendered_is_named(self):
        with self.assertRaisesRegex(RuntimeError, "chat template: .*endfor"):
            self.adapter("{% endfor %}").apply_chat_template([{"role": "user", "content": "a"}])
        lm = self.adapter("")
        for refused, what in ((True, "no chat template; leave out"), ("tool_use", "tool_use: ")):
            with self.assertRaisesRegex(ValueError, what):
                lm.chat_template(refused)


@needs_model
class Endings(CommandTest):
    """Items of HellaSwag's shape against transformers (tests/endings_reference.py)."""

    def check_items(self, items):
        lm = get_model("transload")(model=MODEL, transload=BINARY, flags="--compute float32")
        answers = lm.loglikelihood(instances(*((item["context"], " " + ending) for item in items
                                               for ending in item["endings"])))
        want = [pair for item in items for pair in zip(item["logprobs"], item["greedy"])]
        self.assertEqual(len(answers), len(want))
        worst = max(abs(got[0] - reference[0]) for got, reference in zip(answers, want))
        print(f"{len(want)} endings: at most {worst:.1e} from the reference")
        self.assertLessEqual(worst, 1e-3)
        self.assertEqual([got[1] for got in answers], [greedy for _, greedy in want])

    def test_200_items_are_within_a_thousandth_of_the_reference(self):
        items = read_json("smollm2", "endings.json")["items"]
        self.assertEqual(len(items), 200)
        self.check_items(items)

    def test_contexts_have_the_tokens_of_the_reference(self):
        items = read_json("smollm2", "endings.json")["items"]
        ids = [json.loads(line)["token_ids"] for line in self.transload(
            "tokenize", "--model", MODEL, stdin="".join(
                json.dumps({"id": i, "text": item["context"]}) + "\n"
                for i, item in enumerate(items)).encode()).out.splitlines()]
        self.assertEqual(ids, [item["context_ids"] for item in items])


if __name__ == "__main__":
    main()
