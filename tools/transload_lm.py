#!/usr/bin/env python3
"""The model "transload" of EleutherAI's lm-evaluation-harness.

    pip install lm-eval
    python3 tools/transload_lm.py --model transload --model_args model=model.gguf --tasks hellaswag

Takes the arguments of `lm_eval`. Each batch of requests becomes a job of `transload score` or
`transload generate`; transload chooses batches and placement, so the harness's batch size has no
effect. --model_args, separated by commas:

    model            a folder with safetensors, or a .gguf file
    transload        the binary; left out: build/release/transload, or else the one in PATH
    flags            more flags of both commands: flags=--device-memory 2GB --compute float32
    prefix_token_id  what comes before a text without context; left out: the model's end token
    max_gen_toks     new tokens of a request that names no number of its own (256)
"""

import json
import os
import shlex
import subprocess
import tempfile

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

BUILT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release",
                     "transload")
# Names of the harness's generation arguments and ours.
SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
            "repetition_penalty": "repetition_penalty", "seed": "seed"}


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
        self.max_length = described["model"]["context"]
        self.prefix_token_id = (int(prefix_token_id) if prefix_token_id is not None
                                else described["end_tokens"][0])

    @property
    def tokenizer_name(self):
        return os.path.basename(self.model)

    def loglikelihood(self, requests, **_):
        """(log-probability of the continuation, whether it is greedy) of each request."""
        pairs = [request.args for request in requests]
        empty = self._tokenize([continuation for context, continuation in pairs if not context])
        lines = [{"prompt": context, "continuation": continuation} if context else
                 self._after_prefix(empty.pop(0)) for context, continuation in pairs]
        records = self._run("score", lines, self._shorten_pairs)
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
        records = self._run("generate", lines, self._shorten_prompts)
        return self._remember("generate_until", requests, [record["text"] for record in records])

    def _after_prefix(self, tokens):
        if len(tokens) > 1 and tokens[0] == self.prefix_token_id:
            return {"prompt_token_ids": tokens[:1], "continuation_token_ids": tokens[1:]}
        return {"prompt_token_ids": [self.prefix_token_id], "continuation_token_ids": tokens}

    def _generate_line(self, context, arguments):
        arguments = dict(arguments)
        stop = arguments.pop("until", None) or []
        tokens = arguments.pop("max_gen_toks", None) or self.max_gen_toks
        samples = arguments.pop("do_sample", arguments.get("temperature", 0) > 0)
        arguments = {"temperature": 1.0, **arguments} if samples else {}
        unknown = sorted(set(arguments) - set(SAMPLING))
        if unknown:
            raise ValueError(f"generation argument {unknown[0]}: transload has no such field")
        line = {"prompt": context, "max_tokens": tokens,
                "stop": [stop] if isinstance(stop, str) else [text for text in stop if text]}
        return line | {SAMPLING[name]: value for name, value in arguments.items()}

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
