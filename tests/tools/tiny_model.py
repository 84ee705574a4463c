"""A model for tests of the command: random weights, a tokenizer of bytes and a chat template."""

import json
import os
import struct
import subprocess

# The tokens after the 256 bytes.
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>"]
BOS, EOS = 258, 259
CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
          "<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}")


def byte_letters():
    """GPT-2's letters for the bytes 0 to 255."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, spare = {}, 256
    for byte in range(256):
        letters[byte] = chr(byte if byte in plain else spare)
        spare += byte not in plain
    return [letters[byte] for byte in range(256)]


def tokenizer():
    letters = byte_letters()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False, "special": True}
                             for i, text in enumerate(SPECIAL)],
            "normalizer": None, "pre_tokenizer": byte_level, "post_processor": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False,
                      "vocab": {**{letter: i for i, letter in enumerate(letters)},
                                **{text: 256 + i for i, text in enumerate(SPECIAL)}},
                      "merges": []}}


def put_bos_first(folder):
    """Lets the tokenizer begin each text with BOS."""
    path = os.path.join(folder, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        rules = json.load(file)
    begin, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A",
                                                                               "type_id": 0}}
    rules["post_processor"] = {
        "type": "TemplateProcessing", "single": [begin, text],
        "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(rules, file)


def write_chat_template(folder, template):
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def make(transload, folder, positions=128, template=CHATML):
    """Writes the model into `folder`."""
    subprocess.run([transload, "synth", "--family", "llama", "--shape", "32,2,2,64,260",
                    "--max-positions", str(positions), "--seed", "3", "-o", folder],
                   check=True, capture_output=True)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer(), file)
    write_chat_template(folder, template)


def spoil(folder, name="model.norm.weight"):
    """Makes a tensor of the model NaN."""
    path = os.path.join(folder, "model.safetensors")
    with open(path, "r+b") as file:
        header_bytes, = struct.unpack("<Q", file.read(8))
        begin, end = json.loads(file.read(header_bytes))[name]["data_offsets"]
        file.seek(8 + header_bytes + begin)
        file.write(b"\xff" * (end - begin))
