"""The models and prompts of a comparison, made once and kept in a folder."""

import json
import os
import random
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
OPT_1_3B = ["--family", "opt", "--shape", "2048,24,32,8192,50272", "--dtype", "float16"]
TEXT_COMMAND = ["bible", "-f", "gen1:1-rev22:21"]
SMALLEST_ID = 3  # below lie special tokens of the families here


class Missing(Exception):
    """What a comparison needs and has not, for people."""


class Models:
    def __init__(self, transload, folder, environment, say=print):
        self.transload, self.folder, self.environment, self.say = (transload, folder, environment,
                                                                   say)

    def path(self, name):
        os.makedirs(self.folder, exist_ok=True)
        return os.path.join(self.folder, name)

    def command(self, *arguments, **options):
        return subprocess.run([self.transload, *arguments], check=True, capture_output=True,
                              **options).stdout

    def opt(self):
        """A folder with the shape of OPT-1.3B and random float16 weights, 2.63 GB."""
        folder = self.path("opt-1.3b-random")
        if not os.path.exists(folder):
            self.say(f"writing {folder}")
            self.command("synth", *OPT_1_3B, "-o", folder + ".part")
            os.rename(folder + ".part", folder)
        return folder

    def form(self, source, form, dtype=None):
        """(path, None), or (None, the obstacle): the model as a peer reads it, in its type."""
        if form == "source":
            return source, None
        if form == "gguf":
            is_gguf = source.endswith(".gguf")
            return (source, None) if is_gguf else (None, "reads GGUF files only")
        if os.path.isdir(source) and dtype_of(source) == dtype:
            return source, None
        return self.unpacked(source, dtype)

    def unpacked(self, source, dtype):
        """A folder with the model's weights in a type, so that loading need not convert them."""
        name = os.path.basename(source).removesuffix(".gguf")
        folder = self.path(f"{name}-{source_bytes(source)}-{dtype}")
        if os.path.exists(folder):
            return folder, None
        obstacle = self.environment.install("torch")
        if obstacle:
            return None, obstacle
        self.say(f"unpacking {source} to {folder}")
        shutil.rmtree(folder + ".part", ignore_errors=True)
        done = subprocess.run([self.environment.python, os.path.join(HERE, "to_folder.py"),
                               source, folder, dtype], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None, f"not unpacked: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}"
        return folder, None

    def prompts(self, source, tokens, count, text=None):
        """(`count` lists of `tokens` ids, where they come from)."""
        model = json.loads(self.command("inspect", source, "--json"))["model"]
        if tokens >= model["context"]:
            raise Missing(f"prompts of {tokens} tokens: the model has {model['context']}")
        if not has_tokenizer(source):
            rule = [random.Random(i).choices(range(SMALLEST_ID, model["vocab"]), k=tokens)
                    for i in range(count)]
            return rule, "random token ids"
        ids, name = self.text_ids(source, tokens * count, text)
        return [ids[i * tokens:(i + 1) * tokens] for i in range(count)], name

    def text_ids(self, source, needed, text):
        if text:
            with open(text, encoding="utf-8") as file:
                words, name = file.read(), os.path.basename(text)
        else:
            words, name = self.packaged_text(), "King James Bible"
        line = json.dumps({"id": 0, "text": words[:needed * 8]}) + "\n"
        answer = json.loads(self.command("tokenize", "--model", source, input=line.encode()))
        if len(answer["token_ids"]) < needed:
            raise Missing(f"{name} has {len(answer['token_ids'])} tokens, the prompts need "
                          f"{needed}: give a longer --text")
        return answer["token_ids"][:needed], name

    def packaged_text(self):
        path = self.path("text.txt")
        if not os.path.exists(path):
            if not shutil.which(TEXT_COMMAND[0]):
                raise Missing("no text for the prompts: install Debian's bible-kjv and "
                              "bible-kjv-text, or give --text FILE")
            lines = subprocess.run(TEXT_COMMAND, check=True, capture_output=True,
                                   text=True).stdout.splitlines()
            with open(path, "w", encoding="utf-8") as file:  # each begins with its place
                file.writelines(line.split(" ", 1)[-1] + "\n" for line in lines)
        with open(path, encoding="utf-8") as file:
            return file.read()


def model_files(source):
    """The files of a model that is a file or a folder."""
    if os.path.isfile(source):
        return [source]
    return sorted(os.path.join(source, name) for name in os.listdir(source))


def source_bytes(source):
    return sum(os.path.getsize(path) for path in model_files(source))


def dtype_of(folder):
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except OSError:
        return None
    return config.get("dtype") or config.get("torch_dtype")


def has_tokenizer(source):
    return source.endswith(".gguf") or any(
        os.path.exists(os.path.join(source, name)) for name in ("tokenizer.json", "vocab.json"))
