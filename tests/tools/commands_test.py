"""inspect, synth, tokenize and score from outside."""

import filecmp
import json
import math
import os
import statistics
import subprocess
import sys

from support import (BINARY, LIMIT_S, MODEL, CommandTest, main, needs_model, prompt_ids, read_json,
                     read_lines, read_records, tiny)
import tiny_model

FAMILIES = ("opt", "llama", "gpt_neox")


class Inspect(CommandTest):
    def inspect(self, *arguments):
        return json.loads(self.check_status(self.transload("inspect", *arguments, "--json")).out)

    def test_a_checkpoint_is_described(self):
        shown = self.inspect(tiny("llama-gqa-tied"))
        with open(os.path.join(tiny("llama-gqa-tied"), "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        model = shown["model"]
        self.assertTrue(shown["supported"])
        self.assertEqual(shown["kind"], "safetensors")
        for ours, theirs in (("layers", "num_hidden_layers"), ("hidden", "hidden_size"),
                             ("heads", "num_attention_heads"), ("ffn", "intermediate_size"),
                             ("kv_heads", "num_key_value_heads"), ("vocab", "vocab_size"),
                             ("context", "max_position_embeddings"),
                             ("tied_head", "tie_word_embeddings")):
            self.assertEqual(model[ours], config[theirs], ours)
        self.assertEqual(shown["end_tokens"], [config["eos_token_id"]])
        self.assertEqual((shown["bos_token"], shown["eos_token"]),
                         (config["bos_token_id"], config["eos_token_id"]))
        self.assertEqual(shown["bytes_by_format"], {"F32": 4 * model["parameters"]})

    def test_the_list_of_tensors_covers_the_file(self):
        listed = self.inspect(tiny(), "--tensors")
        tensors = listed["tensor_list"]
        self.assertEqual(len(tensors), listed["tensors"])
        self.assertEqual(sum(tensor["bytes"] for tensor in tensors),
                         sum(listed["bytes_by_format"].values()))
        for tensor in tensors:
            self.assertEqual(tensor["bytes"], 4 * math.prod(tensor["shape"]))
        ends = sorted((tensor["offset"], tensor["offset"] + tensor["bytes"]) for tensor in tensors)
        for (_, end), (begin, _) in zip(ends, ends[1:]):
            self.assertLessEqual(end, begin)
        self.assertEqual(ends[-1][1], os.path.getsize(listed["files"][0]))
        text = self.check_status(self.transload("inspect", tiny(), "--tensors")).out
        for tensor in tensors:
            self.assertIn(tensor["name"], text)

    @needs_model
    def test_the_real_model_is_described(self):
        shown = self.inspect(MODEL)
        self.assertEqual(shown["kind"], "gguf")
        self.assertEqual((shown["model"]["family"], shown["model"]["layers"],
                          shown["model"]["kv_heads"], shown["model"]["context"]),
                         ("llama", 30, 3, 8192))
        self.assertLessEqual({"Q4_1", "Q8_0", "F32"}, set(shown["bytes_by_format"]))
        self.assertEqual(shown["end_tokens"], [2])
        self.assertEqual((shown["bos_token"], shown["eos_token"]), (1, 2))
        self.assertEqual(shown["chat_template"]["variables"]["bos_token"], "<|im_start|>")
        self.assertIn("add_generation_prompt", shown["chat_template"]["text"])


    def test_bos_and_eos_are_those_of_the_tokenizer(self):
        folder = self.path("model")
        tiny_model.make(BINARY, folder)
        path = os.path.join(folder, "tokenizer_config.json")
        for config, tokens in (({"bos_token": "<s>", "eos_token": {"content": "</s>"}}, (258, 259)),
                               ({"bos_token": None, "eos_token": "<|im_end|>"}, (None, 257)),
                               ({"bos_token": "ab", "eos_token": "a"}, (None, 97))):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
            shown = self.inspect(folder)
            self.assertEqual((shown["bos_token"], shown["eos_token"]), tokens)
            self.assertNotIn("chat_template", shown)


class Synth(CommandTest):
    def synth(self, family, *flags, shape="32,2,4,64,128"):
        folder = self.fresh(ending="")
        self.check_status(self.transload("synth", "--family", family, "--shape", shape, "-o",
                                         folder, *flags))
        return folder

    def test_each_family_type_and_number_of_shards_runs_and_gives_numbers(self):
        requests = [{"id": i, "prompt_token_ids": [1 + i, 5, 9], "max_tokens": 3, "logprobs": 2,
                     "ignore_eos": True} for i in range(3)]
        for family in FAMILIES:
            for dtype, shards in (("float32", 1), ("float16", 3), ("bfloat16", 5)):
                with self.subTest(family=family, dtype=dtype):
                    folder = self.synth(family, "--dtype", dtype, "--shards", shards)
                    files = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
                    self.assertEqual(len(files), shards)
                    records = read_records(self.generate(folder, requests))
                    self.assertEqual(len(records), 3)
                    for record in records.values():
                        for entry in record["logprobs"]:
                            self.assertTrue(math.isfinite(entry["logprob"]))

    def test_the_shape_is_what_was_asked_for(self):
        folder = self.synth("llama", "--kv-heads", 2, "--max-positions", 77,
                            shape="64,3,8,96,100")
        shown = json.loads(self.check_status(self.transload("inspect", folder, "--json")).out)
        self.assertEqual({key: shown["model"][key] for key in (
            "hidden", "layers", "heads", "ffn", "vocab", "kv_heads", "context")},
                         {"hidden": 64, "layers": 3, "heads": 8, "ffn": 96, "vocab": 100,
                          "kv_heads": 2, "context": 77})

    def test_equal_seeds_give_equal_files_and_other_seeds_others(self):
        first, again, other = (os.path.join(self.synth("opt", "--seed", seed), "model.safetensors")
                               for seed in (1, 1, 2))
        self.assertTrue(filecmp.cmp(first, again, shallow=False))
        self.assertFalse(filecmp.cmp(first, other, shallow=False))

    def test_wrong_flags_are_one_line_that_names_them(self):
        base = {"--family": "llama", "--shape": "32,2,4,64,128", "-o": self.path("never")}
        for flag, values in {
                "--family": ["bloom", ""], "--dtype": ["int8", ""], "--kv-heads": [0, -1, 3, "x"],
                "--shape": ["32,2,4,64", "32,2,4,64,128,1", "32,2,4,64,", "a,2,4,64,128",
                            "0,2,4,64,128", "33,2,4,64,128", "32,-2,4,64,128", "1,1,1,1," + "9" * 30],
                "--max-positions": [0, -1, "x"], "--shards": [0, -1, 1000, "x"],
                "--seed": ["x"]}.items():
            for value in values:
                with self.subTest(flag=flag, value=value):
                    arguments = [part for pair in {**base, flag: value}.items() for part in pair]
                    result = self.check_status(self.transload("synth", *arguments), 2)
                    self.assertRegex(result.err,
                                     rf"^transload: error \[usage\]: .*{flag.lstrip('-')}.*\n$")
        self.assertFalse(os.path.exists(self.path("never")))

    def test_nothing_is_overwritten(self):
        folder = self.synth("opt")
        files = {name: os.path.getmtime(os.path.join(folder, name)) for name in os.listdir(folder)}
        result = self.transload("synth", "--family", "llama", "--shape", "32,2,4,64,128", "-o",
                                folder)
        self.check_status(result, 2)
        self.assertIn("is not empty", result.err)
        self.assertEqual(files, {name: os.path.getmtime(os.path.join(folder, name))
                                 for name in os.listdir(folder)})
        file = self.job([])
        result = self.transload("synth", "--family", "llama", "--shape", "32,2,4,64,128", "-o",
                                file)
        self.check_status(result, 5)
        self.assertIn(file, result.err)


@needs_model
class Tokenize(CommandTest):
    def test_ids_and_decoding_equal_the_cases_of_the_reference(self):
        items = read_json("tokenizer", "smollm2-cases.json")["items"]
        job = self.job([{"id": item["id"], "text": item["text"]} for item in items])
        output = self.fresh()
        self.check_status(self.transload("tokenize", "--model", MODEL, "--input", job, "--output",
                                         output))
        records = [json.loads(line) for line in read_lines(output)]
        self.assertEqual([record["id"] for record in records], [item["id"] for item in items])
        self.assertGreater(len(items), 70)
        for record, item in zip(records, items):
            with self.subTest(id=item["id"]):
                self.assertEqual(record["token_ids"], item["ids"])
                self.assertEqual(record["decoded"], item["decode"])
        with open(job, "rb") as file:
            piped = self.check_status(self.transload("tokenize", "--model", MODEL,
                                                     stdin=file.read()))
        self.assertEqual(piped.out.encode(), b"".join(read_lines(output)))

    def test_bad_lines_become_records_and_the_others_are_done(self):
        text = (b'\xef\xbb\xbf{"id": 1, "text": "a"}\r\n\n{"id": 2}\nx\n{"id": 3, "text": 5}\n'
                b'{"text": "a"}\n{"id": 4, "text": "a", "more": 1}\n{"id": 5, "text": "\xff"}\n'
                b'{"id": 6, "text": ""}')
        result = self.check_status(self.transload("tokenize", "--model", MODEL, stdin=text), 1)
        records = [json.loads(line) for line in result.out.splitlines()]
        self.assertEqual({record["line"]: record["error"]["code"] for record in records
                          if "error" in record},
                         {3: "missing_text", 4: "invalid_json", 5: "invalid_value",
                          6: "missing_id", 7: "unknown_field", 8: "invalid_utf8"})
        self.assertEqual([record["id"] for record in records if "error" not in record], [1, 6])
        self.assertEqual(records[-1], {"id": 6, "token_ids": [], "decoded": ""})

    def test_the_input_is_never_the_output(self):
        job = self.job([{"id": 1, "text": "a"}])
        before = read_lines(job)
        result = self.transload("tokenize", "--model", MODEL, "--input", job, "--output", job)
        self.check_status(result, 2)
        self.assertEqual(read_lines(job), before)


class Score(CommandTest):
    def score(self, lines, *flags, status=0):
        output = self.fresh()
        result = self.check_status(self.transload(
            "score", "--model", tiny(), "--input", self.job(lines), "--output", output, "--json",
            "--token-logprobs", *flags), status)
        return read_records(output), json.loads(result.out)

    def test_a_continuation_scores_what_generate_says_of_its_tokens(self):
        prompts = {i: prompt_ids(i, 5 + i) for i in range(4)}
        made = read_records(self.generate(tiny(), [
            {"id": i, "prompt_token_ids": ids, "max_tokens": 6, "ignore_eos": True, "logprobs": 0,
             "temperature": i % 2, "seed": i} for i, ids in prompts.items()]))
        records, summary = self.score([
            {"id": i, "prompt_token_ids": ids, "continuation_token_ids": made[i]["token_ids"]}
            for i, ids in prompts.items()])
        for i, record in records.items():
            want = [entry["logprob"] for entry in made[i]["logprobs"]]
            self.assertEqual(len(record["token_logprobs"]), len(want))
            for got, logprob in zip(record["token_logprobs"], want):
                self.assertAlmostEqual(got, logprob, delta=2e-6)  # of about 3: some roundings
            self.assertAlmostEqual(record["logprob_sum"], math.fsum(want), delta=1e-5)
            self.assertEqual(record["count"], 6)
        self.assertEqual([records[i]["is_greedy"] for i in range(4)], [True, False, True, False])
        everything = [value for record in records.values() for value in record["token_logprobs"]]
        self.assertAlmostEqual(summary["mean_nll"], -statistics.fmean(everything), delta=1e-6)
        self.assertAlmostEqual(summary["perplexity"], math.exp(summary["mean_nll"]), places=9)

    def test_windows_score_each_token_but_the_first_of_what_they_begin(self):
        ids = prompt_ids(9, 200)
        whole = self.score([{"id": 0, "token_ids": ids}])[0][0]["token_logprobs"]
        self.assertEqual(len(whole), 199)
        apart = self.score([{"id": 0, "token_ids": ids}], "--window", 50)[0][0]["token_logprobs"]
        self.assertEqual(len(apart), 4 * 49)
        self.assertEqual(apart[:49], whole[:49])
        alone = self.score([{"id": 0, "token_ids": ids[50:100]}])[0][0]["token_logprobs"]
        self.assertEqual(apart[49:98], alone)
        strided = self.score([{"id": 0, "token_ids": ids}], "--window", 50, "--stride",
                             25)[0][0]["token_logprobs"]
        self.assertEqual(len(strided), 199)
        self.assertEqual(strided[:49], whole[:49])
        second = self.score([{"id": 0, "token_ids": ids[25:75]}])[0][0]["token_logprobs"]
        self.assertEqual(strided[49:74], second[-25:])

    def test_scores_are_the_same_under_every_placement(self):
        lines = [{"id": i, "token_ids": prompt_ids(i, 2 + 12 * i)} for i in range(16)]
        want = self.score(lines)[0]
        for flags in (["--batch-size", 1], ["--weights", "0/0/100", "--activations", "50/50"],
                      ["--weights", "20/40/40", "--batch-size", 3, "--num-batches", 4],
                      ["--threads", 1, "--device-memory", "2MB"]):
            self.assertEqual(self.score(lines, *flags)[0], want, flags)

    def test_bad_lines_become_records(self):
        lines = [{"id": 0, "token_ids": [5]}, {"id": 1, "token_ids": [5, 6]}, {"id": 2},
                 {"id": 3, "text": "no tokenizer"}, {"id": 4, "token_ids": [5, 512]},
                 {"id": 5, "prompt_token_ids": [5], "continuation_token_ids": []},
                 {"id": 6, "prompt_token_ids": [5] * 250, "continuation_token_ids": [6] * 7},
                 {"id": 7, "prompt_token_ids": [5] * 250, "continuation_token_ids": [6] * 6},
                 {"id": 8, "token_ids": [5, 6], "max_tokens": 3}]
        records, summary = self.score(lines, status=1)
        self.assertEqual({i: record["error"]["code"] for i, record in records.items()
                          if "error" in record},
                         {0: "invalid_value", 2: "missing_prompt", 3: "invalid_value",
                          4: "invalid_value", 5: "invalid_value", 6: "prompt_too_long",
                          8: "unknown_field"})
        self.assertEqual((summary["finished"], summary["errors"]), (2, 7))


class Help(CommandTest):
    def test_help_and_version_go_to_standard_output(self):
        for arguments in (["--help"], ["generate", "--help"], ["score", "--help"], ["--version"],
                          ["tokenize", "--help"], ["inspect", "--help"], ["synth", "--help"]):
            with self.subTest(arguments):
                result = self.check_status(self.transload(*arguments))
                self.assertIn("transload", result.out)
                self.assertEqual(result.err, "")

    def test_help_names_the_fields_of_a_line_and_the_batch_file(self):
        text = " ".join(self.transload("generate", "--help").out.split())
        for name in ("messages", "logprobs, n.", "OpenAI batch file", "custom_id"):
            self.assertIn(name, text)

    def test_a_reader_that_goes_away_ends_the_run_with_an_io_error(self):
        lines = "".join(json.dumps({"id": i, "prompt_token_ids": [5]}) + "\n" for i in range(50))
        with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as reader:
            reader.wait()
            done = subprocess.run([BINARY, "generate", "--model", tiny(), "--input", "-",
                                   "--output", "-"], input=lines.encode(), stdout=reader.stdin,
                                  stderr=subprocess.PIPE, timeout=LIMIT_S, check=False,
                                  env=self.environment())
        self.assertIn(done.returncode, (5, -13), done.stderr)


if __name__ == "__main__":
    main()
