"""--compute fast keeps the quality of float32: the real model in codes and in 16 bits, and tiny
models in bfloat16 and float32."""

import json
import os
import shutil
import struct
import subprocess
import unittest

from support import (MODEL, CommandTest, main, needs_model, prompt_ids, python_with, read_json,
                     read_records, tiny)

GGUF_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gguf_file.py")
MARGIN = 0.05  # between the two best logits; below, 16 bits may choose otherwise
SPREAD = ["--weights", "20/40/40", "--kv", "40/60/0", "--batch-size", 3, "--num-batches", 2]
CODE_MARGIN = 0.5  # the same for rows rounded to 8-bit codes; 0.30 is the largest seen


@needs_model
class Codes(CommandTest):
    def test_mean_nll_of_each_window_is_within_half_a_percent_of_the_reference(self):
        items = read_json("smollm2", "perplexity.json")["items"]
        output = self.fresh()
        self.check_status(self.transload(
            "score", "--model", MODEL, "--compute", "fast", "--output", output, "--input",
            self.job([{"id": item["id"], "token_ids": item["ids"]} for item in items])))
        records = read_records(output)
        for item in items:
            record = records[item["id"]]
            ratio = -record["logprob_sum"] / record["count"] / item["mean_nll"]
            print(f"window {item['id']}: {100 * (ratio - 1):+.2f} % mean NLL")
            with self.subTest(window=item["id"]):
                self.assertEqual(record["count"], item["tokens_scored"])
                self.assertLess(abs(ratio - 1), 0.005)

    def test_tokens_differ_first_where_the_reference_hesitates(self):
        items = read_json("smollm2", "generate.json")["items"]
        records = read_records(self.generate(MODEL, [
            {"id": item["id"], "prompt": item["prompt"], "max_tokens": len(item["greedy_ids"]),
             "ignore_eos": True} for item in items], "--compute", "fast"))
        equal = 0
        for item in items:
            at = first_difference(item["greedy_ids"], records[item["id"]]["token_ids"])
            equal += len(item["greedy_ids"]) if at is None else at
            with self.subTest(id=item["id"]):
                self.assertLess(0 if at is None else item["margins"][at], CODE_MARGIN)
        print(f"{equal} of {sum(len(item['greedy_ids']) for item in items)} tokens come before the "
              "first that differs from the reference")


class Uncoded(CommandTest):
    """Weights that are no codes."""

    def compare(self, model, requests, *flags):
        """Tokens of float32 and fast up to the first small margin: how many there are."""
        want = read_records(self.generate(model, requests, "--compute", "float32"))
        got = read_records(self.generate(model, requests, "--compute", "fast", *flags))
        compared = 0
        for request in requests:
            record = want[request["id"]]
            tops = [entry["top"] for entry in record["logprobs"]]
            sure = next((i for i, (best, next_best) in enumerate(tops)
                         if best["logprob"] - next_best["logprob"] < MARGIN), len(tops))
            self.assertEqual(got[request["id"]]["token_ids"][:sure], record["token_ids"][:sure])
            compared += sure
        return compared


class Plain(Uncoded):
    """Tiny models in float32, as in tests/data, and in bfloat16."""

    REQUESTS = [{"id": seed, "prompt_token_ids": prompt_ids(seed, 20), "max_tokens": 60,
                 "ignore_eos": True, "logprobs": 2} for seed in range(8)]

    def test_greedy_tokens_equal_those_of_float32_up_to_the_first_small_margin(self):
        for what, model_of in (("float32", tiny), ("bfloat16", self.narrowed)):
            compared = 0
            for name in ("llama-gqa-tied", "opt-preln", "opt-350m-style", "gpt-neox-sequential"):
                with self.subTest(model=name, weights=what):
                    model = model_of(name)
                    compared += self.compare(model, self.REQUESTS)
                    self.check_same_lines(self.generate(model, self.REQUESTS),
                                          self.generate(model, self.REQUESTS, *SPREAD))
            self.assertGreater(compared, 500, what)

    def narrowed(self, name):
        return to_bfloat16(tiny(name), self.path(name))


@needs_model
@unittest.skipUnless(python_with("numpy"), "needs python3-numpy")
class Halves(Uncoded):
    """The real model in 16 bits, whose rows are rounded to bfloat16 where the processor can."""

    def test_greedy_tokens_equal_those_of_float32_up_to_the_first_small_margin(self):
        requests = [{"id": item["id"], "prompt_token_ids": item["prompt_ids"], "ignore_eos": True,
                     "max_tokens": len(item["greedy_ids"]), "logprobs": 2}
                    for item in read_json("smollm2", "generate.json")["items"]]
        for dtype in ("F16", "BF16"):
            model = self.fresh(".gguf")
            subprocess.run([python_with("numpy"), GGUF_FILE, MODEL, model, dtype], check=True)
            for bits in (16, 32):
                with self.subTest(weights=dtype, kv_bits=bits):
                    compared = self.compare(model, requests, "--kv-bits", bits)
                    self.assertGreater(compared, 200)
                    print(f"{dtype}, KV cache in {bits} bits: {compared} tokens, all equal")
            os.remove(model)


def first_difference(want, got):
    return next((i for i, pair in enumerate(zip(want, got)) if pair[0] != pair[1]), None)


def to_bfloat16(model, folder):
    """A copy of a checkpoint in float32 with its weights rounded to bfloat16."""
    os.mkdir(folder)
    shutil.copy(os.path.join(model, "config.json"), folder)
    with open(os.path.join(model, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    tensors, halves = {}, b""
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        words = struct.unpack(f"<{(end - begin) // 4}I", body[begin:end])
        rounded = [(word + 0x7fff + (word >> 16 & 1)) >> 16 for word in words]
        data = struct.pack(f"<{len(rounded)}H", *rounded)
        offsets = [len(halves), len(halves) + len(data)]
        tensors[name] = {"dtype": "BF16", "shape": tensor["shape"], "data_offsets": offsets}
        halves += data
    text = json.dumps(tensors).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + halves)
    return folder


if __name__ == "__main__":
    main()
