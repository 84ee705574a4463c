#!/usr/bin/env python3
"""The model "transload" of EleutherAI's lm-evaluation-harness.

    pip install lm-eval
    python3 tools/transload_lm.py --model transload --model_args model=model.gguf --tasks hellaswag

Takes the arguments of `lm_eval`. Each batch of requests becomes a job of `transload score` or
`transload generate`; transload chooses batches and placement, so the harness's batch size has no
effect. Scores and answers are those of `--compute fast`, whose products are rounded, unless flags
say otherwise. --apply_chat_template renders with the model's own template. --model_args, separated
by commas:

    model            a folder with safetensors, or a .gguf file
    transload        the binary; left out: build/release/transload, or else the one in PATH
    flags            more flags of both commands: flags=--device-memory 2GB --compute float32
    prefix_token_id  what comes before a text without context; left out: the model's BOS token, or
                     its EOS token where it has none
    max_gen_toks     new tokens of a request that names no number of its own (256)
"""

import datetime
import json
import logging
import os
import shlex
import subprocess
import sys
import tempfile

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BUILT = os.path.join(ROOT, "build", "release", "transload")
HELPER = os.path.join(ROOT, "engine", "chat", "chat_helper.py")
# Generation arguments that have one name in the harness and here; penalties act on greedy answers.
PENALTIES = {"repetition_penalty", "presence_penalty", "frequency_penalty"}
SAMPLING = PENALTIES | {"temperature", "top_p", "top_k", "min_p", "seed"}


def rolling_windows(tokens, prefix, limit):
    """(context, tokens to score) for windows of `limit` tokens that score each token once.

    The first begins with `prefix`, later ones with at least one token of before; the last one
    has as much context as fits."""
    windows = []
    for begin in range(0, len(tokens), limit - 1):
        scored = tokens[begin:begin + limit - 1]
        context = tokens[max(0, begin + len(scored) - limit):begin] or [prefix]
        windows.append((context, scored))
    return windows


def cut_left(context, others, limit):
    """The end of a context that leaves room for `others` tokens; at least one token of it."""
    return context[-max(1, limit - others):]


def cut_after(text, message):
    """A rendered conversation up to the end of its last message, which the answer continues."""
    at = text.rindex(message.strip())
    kept = message.lstrip() if text.startswith(message.lstrip(), at) else message.strip()
    return text[:at + len(kept)]


class ChatRenderer:
    """The model's chat template, in a process as transload renders it."""

    def __init__(self, template):
        self.process = subprocess.Popen([sys.executable, "-I", HELPER], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, encoding="utf-8")
        answer = self.ask({"template": template["text"], "variables": template["variables"],
                           "now": datetime.datetime.now().isoformat(timespec="seconds")})
        if "ready" not in answer:
            raise RuntimeError(f"chat template: {answer.get('missing') or answer['error']}")

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline() or '{"error": "what renders it ended"}')

    def close(self):
        self.process.communicate()


@register_model("transload")
class TransloadLM(LM):
    def __init__(self, model, transload=None, flags="", prefix_token_id=None, max_gen_toks=256,
                 batch_size=None, max_batch_size=None, device=None):
        super().__init__()
        self.model = model
        self.binary = transload or (BUILT if os.path.exists(BUILT) else "transload")
        self.flags = shlex.split(flags)
        self.max_gen_toks = int(max_gen_toks)
        described = json.loads(self._call("inspect", model, "--json"))
        if not described["supported"]:
            raise RuntimeError(described["reason"])
        self.max_length = described["model"]["context"]
        self._template, self._renderer = described.get("chat_template"), None
        self._bos_text = self._template and self._template["variables"].get("bos_token")
        choices = [prefix_token_id, described["bos_token"], described["eos_token"],
                   *described["end_tokens"]]
        self._prefix = next((int(token) for token in choices if token is not None), None)

    @property
    def prefix_token_id(self):
        if self._prefix is None:
            raise ValueError("the model names no BOS and no EOS token; give prefix_token_id")
        return self._prefix

    @property
    def tokenizer_name(self):
        return os.path.basename(self.model)

    def chat_template(self, chat_template=False):
        """The text of the model's template."""
        if not chat_template:
            return None
        if chat_template is not True:
            raise ValueError(f"chat template {chat_template}: transload takes the model's default "
                             "one; give --apply_chat_template without a name")
        if not self._template:
            raise ValueError("the model has no chat template; leave out --apply_chat_template")
        return self._template["text"]

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        """The prompt of a conversation. Without add_generation_prompt its last message goes on."""
        self.chat_template(True)
        self._renderer = self._renderer or ChatRenderer(self._template)
        request = {"messages": chat_history, "add_generation_prompt": add_generation_prompt}
        answer = self._renderer.ask(request)
        others = [message for message in chat_history if message["role"] != "system"]
        if "error" in answer and len(others) < len(chat_history):  # as the harness does it
            logging.getLogger(__name__).warning("chat template: %s; system messages left out",
                                                answer["error"])
            answer = self._renderer.ask({**request, "messages": others})
        if "error" in answer:
            raise RuntimeError(f"chat template: {answer['error']}")
        return (answer["text"] if add_generation_prompt
                else cut_after(answer["text"], chat_history[-1]["content"]))

    def loglikelihood(self, requests, **_):
        """(log-probability of the continuation, whether it is greedy) of each request."""
        pairs = [request.args for request in requests]
        empty = self._tokenize([continuation for context, continuation in pairs if not context])
        lines = [{"prompt": context, "continuation": continuation} if context else
                 self._after_prefix(empty.pop(0)) for context, continuation in pairs]
        records = self._run("score", self._begun(lines, self._shorten_pairs), self._shorten_pairs)
        answers = [(record["logprob_sum"], record["is_greedy"]) for record in records]
        return self._remember("loglikelihood", requests, answers)

    def loglikelihood_rolling(self, requests, **_):
        """The log-probability of each text, every token of it scored once."""
        lines, owners = [], []
        texts = self._tokenize([request.args[0] for request in requests])
        for number, tokens in enumerate(texts):
            for context, scored in rolling_windows(tokens, self.prefix_token_id, self.max_length):
                lines.append({"prompt_token_ids": context, "continuation_token_ids": scored})
                owners.append(number)
        sums = [0.0] * len(requests)
        for number, record in zip(owners, self._run("score", lines)):
            sums[number] += record["logprob_sum"]
        return self._remember("loglikelihood_rolling", requests, sums)

    def generate_until(self, requests, **_):
        """The text of each answer, up to the first of its stop strings."""
        lines = [self._generate_line(*request.args) for request in requests]
        records = self._run("generate", self._begun(lines, self._shorten_prompts),
                            self._shorten_prompts)
        return self._remember("generate_until", requests, [record["text"] for record in records])

    def _after_prefix(self, tokens):
        if len(tokens) > 1 and tokens[0] == self.prefix_token_id:
            return {"prompt_token_ids": tokens[:1], "continuation_token_ids": tokens[1:]}
        return {"prompt_token_ids": [self.prefix_token_id], "continuation_token_ids": tokens}

    def _generate_line(self, context, arguments):
        arguments = dict(arguments)
        stop = arguments.pop("until", None) or []
        tokens = arguments.pop("max_gen_toks", None) or self.max_gen_toks
        samples = arguments.pop("do_sample", (arguments.get("temperature") or 0) > 0)
        unknown = sorted(set(arguments) - SAMPLING)
        if unknown:
            raise ValueError(f"generation argument {unknown[0]}: transload has no such field")
        names = SAMPLING if samples else PENALTIES
        line = {"prompt": context, "max_tokens": tokens,
                "stop": [stop] if isinstance(stop, str) else [text for text in stop if text]}
        return (line | ({"temperature": 1.0} if samples else {}) |
                {name: value for name, value in arguments.items() if name in names})

    def _begun(self, lines, as_tokens):
        """A prompt that begins with BOS itself, as token ids: none is added to those."""
        begun = [i for i, line in enumerate(lines)
                 if self._bos_text and line.get("prompt", "").startswith(self._bos_text)]
        for i, line in zip(begun, list(as_tokens([lines[i] for i in begun]))):
            lines[i] = line
        return lines

    def _shorten_pairs(self, lines):
        """Those whose context is too long, as token ids with its end only."""
        texts = [line["prompt"].rstrip() for line in lines]
        contexts = self._tokenize(texts)
        wholes = self._tokenize([line["prompt"] + line["continuation"] for line in lines])
        for context, whole in zip(contexts, wholes):
            scored = whole[len(context):][-(self.max_length - 1):]
            context = cut_left(context, len(scored), self.max_length)
            yield {"prompt_token_ids": context, "continuation_token_ids": scored}

    def _shorten_prompts(self, lines):
        for line, tokens in zip(lines, self._tokenize([line["prompt"] for line in lines])):
            rest = {name: value for name, value in line.items() if name not in ("id", "prompt")}
            yield rest | {"prompt_token_ids": cut_left(tokens, line["max_tokens"], self.max_length)}

    def _remember(self, method, requests, answers):
        for request, answer in zip(requests, answers):
            self.cache_hook.add_partial(method, request.args, answer)
        return answers

    def _tokenize(self, texts):
        """Token ids of each text, none added."""
        if not texts:
            return []
        lines = [{"text": text} for text in texts]
        return [record["token_ids"] for record in self._run("tokenize", lines)]

    def _run(self, command, lines, shorten=None):
        """The record of each line. `shorten`: makes new lines of those that are too long."""
        if not lines:
            return []
        records = self._records(command, lines)
        failed = [i for i, record in enumerate(records) if "error" in record]
        long = [i for i in failed if records[i]["error"]["code"] == "prompt_too_long"]
        if failed and (failed != long or shorten is None):
            error = next(records[i]["error"] for i in failed if shorten is None or i not in long)
            raise RuntimeError(f"transload {command}: {error['code']}: {error['message']}")
        if long:
            shorter = self._run(command, list(shorten([lines[i] for i in long])))
            for i, record in zip(long, shorter):
                records[i] = record
        return records

    def _records(self, command, lines):
        with tempfile.TemporaryDirectory(prefix="transload-lm-") as folder:
            paths = [os.path.join(folder, name) for name in ("in.jsonl", "out.jsonl")]
            with open(paths[0], "w", encoding="utf-8") as file:
                file.writelines(json.dumps({"id": i, **line}) + "\n"
                                for i, line in enumerate(lines))
            self._call(command, "--model", self.model, "--input", paths[0], "--output", paths[1],
                       *(self.flags if command != "tokenize" else []))
            with open(paths[1], encoding="utf-8") as file:
                by_id = {record["id"]: record for record in map(json.loads, file)}
        return [by_id[i] for i in range(len(lines))]

    def _call(self, *arguments):
        """Standard output; 1 (some lines are error records) is no failure."""
        done = subprocess.run([self.binary, *arguments], capture_output=True, text=True,
                              check=False)
        if done.returncode not in (0, 1):
            said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
            raise RuntimeError(said[-1])
        return done.stdout


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
