"""convert_test.py TRANSLOAD: tools/convert.py on .bin files written by hand."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import unittest
import unittest.mock
import zipfile

import tiny_model
from bin_file import Storage, Tensor, save, state_dict

TRANSLOAD = sys.argv.pop(1) if len(sys.argv) > 1 else "transload"
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools"))
import convert  # noqa: E402


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as file:
        header_bytes, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(header_bytes)), file.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items()}


def numbers_of(dtype, _, data):
    """Elements in order."""
    if dtype == "BF16":  # the upper half of a float32
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    code, size = {"F32": ("f", 4), "BF16": ("f", 4), "F16": ("e", 2)}[dtype]
    return list(struct.unpack(f"<{len(data) // size}{code}", data))


class Evil:
    def __reduce__(self):
        return os.mkdir, (Evil.path,)


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.source, self.output = self.path("source"), self.path("output")
        os.mkdir(self.source)
        self.said = []

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def bin(self, name="pytorch_model.bin"):
        return os.path.join(self.source, name)

    def convert(self):
        convert.convert(self.source, self.output, self.said.append)
        return read_safetensors(os.path.join(self.output, "model.safetensors"))

    def command(self):
        return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tools", "convert.py"),
                               self.source, "-o", self.output], capture_output=True, text=True)

    def refusal(self):
        with self.assertRaises(convert.Refused) as refused:
            self.convert()
        self.assertFalse(os.path.exists(self.output))
        return str(refused.exception)

    def test_keeps_shapes_types_and_bytes(self):
        shared = Storage("Float", floats(*range(12)), 12)
        half = Storage("Half", bytes(range(8)), 4)
        brain = Storage("BFloat16", bytes(range(6)), 3)
        double = Storage("Double", struct.pack("<2d", 0.5, -3), 2)
        save(state_dict({"whole": Tensor(shared, (3, 4)),
                         "view": Tensor(shared, (2, 2), offset=3),
                         "turned": Tensor(shared, (4, 3), stride=(1, 4)),
                         "spread": Tensor(shared, (2, 3), stride=(1, 0)),
                         "half": Tensor(half, (4,), parameter=True), "brain": Tensor(brain, (3, 1)),
                         "double": Tensor(double, (2,)), "scalar": Tensor(shared, (), offset=5),
                         "empty": Tensor(shared, (0, 4)),
                         "mask": Tensor(Storage("Bool", b"\1\0", 2), (2,))}), self.bin())
        self.assertEqual(self.convert(), {
            "whole": ("F32", [3, 4], floats(*range(12))), "view": ("F32", [2, 2], floats(3, 4, 5, 6)),
            "turned": ("F32", [4, 3], floats(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11)),
            "spread": ("F32", [2, 3], floats(0, 0, 0, 1, 1, 1)),
            "half": ("F16", [4], bytes(range(8))), "brain": ("BF16", [3, 1], bytes(range(6))),
            "double": ("F32", [2], floats(0.5, -3)), "scalar": ("F32", [], floats(5)),
            "empty": ("F32", [0, 4], b"")})
        self.assertIn("left out mask: BOOL is no floating-point type", self.said)

    def test_calls_nothing_that_a_pickle_names(self):
        Evil.path = self.path("made")
        save({"a": Evil()}, self.bin())
        self.assertIn(f"its pickle names {os.mkdir.__module__}.mkdir", self.refusal())
        self.assertFalse(os.path.exists(Evil.path))

    def test_refuses_damage_by_name(self):
        storage = Storage("Float", floats(1, 2, 3), 4)
        save({"a": Tensor(storage, (4,))}, self.bin())
        self.assertIn("tensor a: storage 0 has 12 bytes of 16", self.refusal())

    def test_refuses_a_tensor_past_its_storage(self):
        save({"a": Tensor(Storage("Float", floats(1), 1), (2,))}, self.bin())
        self.assertIn("past the end of storage 0", self.refusal())

    def test_refuses_more_elements_than_the_storage_has(self):
        storage = Storage("Float", floats(1, 2), 2)
        for shape in ((3,), (10**12,), (10**5, 10**6)):
            save({"a": Tensor(storage, shape, stride=(0,) * len(shape))}, self.bin())
            self.assertRegex(self.refusal(), r"a tensor of \d+ elements in storage 0, which has 2")

    def test_refuses_sizes_that_no_tensor_has(self):
        storage, below = Storage("Float", floats(1, 2), 2), Storage("Float", floats(1, 2), -2)
        for tensor in (Tensor(storage, (0, 1 << 63)), Tensor(storage, (1 << 63,), stride=(0,)),
                       Tensor(storage, (-1,)), Tensor(storage, (2,), stride=(-1,)),
                       Tensor(storage, (1,), offset=-1), Tensor(storage, (2,), stride=(1 << 63,)),
                       Tensor(storage, (1,) * 65), Tensor(storage, (1.0,)),
                       Tensor(storage, (1,), stride=())):
            save({"a": tensor}, self.bin())
            self.assertIn("a tensor with a senseless shape", self.refusal())
        save({"a": Tensor(below, (0,))}, self.bin())
        self.assertIn("something that is no storage", self.refusal())

    def test_refuses_names_that_safetensors_cannot_have(self):
        tensor = Tensor(Storage("Float", floats(1, 2), 2), (2,))
        for name in ("\ud800", "__metadata__", "a\nb", "a\u2028b"):
            save({name: tensor}, self.bin())
            self.assertFalse(self.ends_well())
            self.assertIn(f"cannot have ({name!r})", self.refusal())
        for name, kind in ((7, "int"), ((1,), "tuple"), (None, "NoneType")):
            save({name: tensor}, self.bin())
            self.assertIn(f"whose name is no text but {kind}", self.refusal())

    def test_refuses_what_is_no_state_dict(self):
        for state, text in (([1, 2], "holds no state dict"), ({"a": 3}, "no tensor ('a')")):
            save(state, self.bin())
            self.assertIn(text, self.refusal())
        with open(self.bin(), "wb") as file:
            file.write(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
        self.assertIn("PyTorch before 1.6", self.refusal())

    def test_refuses_a_changed_byte(self):
        save({"a": Tensor(Storage("Float", floats(*[7.5] * 64), 64), (64,))}, self.bin())
        with open(self.bin(), "r+b") as file:
            data = bytearray(file.read())
            data[data.index(floats(7.5, 7.5)) + 9] ^= 1
            file.seek(0)
            file.write(data)
        self.assertIn("tensor a: Bad CRC-32", self.refusal())

    def test_converts_shards(self):
        tensors = {name: Tensor(Storage("Float", floats(i, 2), 2), (2,))
                   for i, name in enumerate("abc")}
        save({"a": tensors["a"], "b": tensors["b"]}, self.bin("pytorch_model-00001-of-00002.bin"))
        save({"c": tensors["c"]}, self.bin("pytorch_model-00002-of-00002.bin"))
        index = {"weight_map": {name: f"pytorch_model-0000{1 + (name == 'c')}-of-00002.bin"
                                for name in "abc"}}
        with open(self.bin("pytorch_model.bin.index.json"), "w", encoding="utf-8") as file:
            json.dump(index, file)
        convert.convert(self.source, self.output)
        with open(os.path.join(self.output, "model.safetensors.index.json"),
                  encoding="utf-8") as file:
            new = json.load(file)
        self.assertEqual(new["metadata"]["total_size"], 24)
        for i, name in enumerate("abc"):
            shard = read_safetensors(os.path.join(self.output, new["weight_map"][name]))
            self.assertEqual(shard[name], ("F32", [2], floats(i, 2)))
        os.remove(self.bin("pytorch_model-00002-of-00002.bin"))
        self.output = self.path("again")
        self.assertIn("pytorch_model-00002-of-00002.bin: the index names it", self.refusal())

    def test_refuses_a_damaged_index_in_one_line(self):
        index = self.bin("pytorch_model.bin.index.json")
        for text, what in (('{"weight_map": {"a": "pytorch', "is no JSON"),
                           (b"\xff\xfe", "is no JSON"), ('{"metadata": {}}', "weight_map"),
                           ("[]", "weight_map"), ('{"weight_map": ["a"]}', "weight_map"),
                           ('{"weight_map": {"a": 1}}', "weight_map")):
            with open(index, "wb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
            done = self.command()
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertTrue(done.stderr.startswith(f"convert: error: {index}: "), done.stderr)
            self.assertIn(what, done.stderr)

    def test_refuses_a_pickle_that_asks_for_more_memory_than_its_length_warrants(self):
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for data, text in ((b"\x80\x02}r\xff\xff\xff\x0f.", "memorizes 268435455 after 3 bytes"),
                           (b"\x80\x02}q\xff.", "memorizes 255 after 3 bytes"),
                           (b"\x80\x02}p268435455\n.", "memorizes 268435455 after 3 bytes"),
                           (b"\x80\x04\x95" + b"\xff" * 7 + b"\x0f}.", "has a frame of"),
                           (b"\x80\x02\x8b\xff\xff\xff\x0f.", "the file is damaged"),
                           (b"\x80\x04\x8d" + b"\xff" * 7 + b"\x0f.", "the file is damaged"),
                           (b"\x80\x04\x8e" + b"\xff" * 7 + b"\x0f.", "the file is damaged"),
                           (b"\x80\x02X\xff\xff\xff\x0fa.", "the file is damaged")):
            with zipfile.ZipFile(self.bin(), "w") as archive:
                archive.writestr("archive/data.pkl", data)
            self.assertIn(text, self.refusal())
        _, peak_bytes = tracemalloc.get_traced_memory()
        self.assertLess(peak_bytes, 8 << 20)

    def test_refuses_a_strange_zip_in_one_line(self):
        with zipfile.ZipFile(self.bin(), "w") as archive:
            archive.writestr("archive/data.pkl", b"abc")
        with open(self.bin(), "r+b") as file:  # a compression that no zip has
            data = bytearray(file.read())
            for begin, offset in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
                data[data.index(begin) + offset] = 77
            file.seek(0)
            file.write(data)
        done = self.command()
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)

    def ends_well(self):
        """Whether the command converts; else it says what is wrong with the .bin, in one line."""
        shutil.rmtree(self.output, ignore_errors=True)
        with (unittest.mock.patch("sys.argv", ["convert", self.source, "-o", self.output]),
              contextlib.redirect_stderr(io.StringIO()) as said):
            try:
                convert.main()
            except SystemExit as end:  # Python prints its text and ends with 1
                self.assertRegex(end.code, f"\\Aconvert: error: {self.bin()}: .+\\Z")
                self.assertEqual(os.path.exists(self.output), False)
                return False
        self.assertNotIn("error", said.getvalue())
        return True

    def test_refuses_any_damage_in_one_line(self):
        with open(os.path.join(ROOT, "tests", "data", "torch", "saved.bin"), "rb") as file:
            good = file.read()
        dice, converted = random.Random(1), 0
        for _ in range(300):
            data = bytearray(good)
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            if dice.random() < 0.2:
                at = dice.randrange(len(data))
                del data[at:at + dice.randint(1, 200)]
            with open(self.bin(), "wb") as file:
                file.write(data)
            converted += self.ends_well()
        self.assertIn(converted, range(1, 200))

    def test_a_refusal_leaves_nothing_and_the_next_try_goes_on(self):
        tensors = {name: Tensor(Storage("Float", floats(7.5, i), 2), (2,))
                   for i, name in enumerate("ab")}
        names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
        for name, shard in zip("ab", names):
            save({name: tensors[name]}, self.bin(shard))
        with open(self.bin("pytorch_model.bin.index.json"), "w", encoding="utf-8") as file:
            json.dump({"weight_map": dict(zip("ab", names))}, file)
        with open(self.bin(names[1]), "r+b") as file:
            good = file.read()
            file.seek(good.index(floats(7.5, 1)) + 3)
            file.write(b"\0")
        for there in (False, True):
            if there:
                os.mkdir(self.output)
            with self.assertRaisesRegex(convert.Refused, "Bad CRC-32"):
                convert.convert(self.source, self.output)
            self.assertEqual(os.path.isdir(self.output), there)
            self.assertEqual(os.listdir(self.output) if there else [], [])
        with open(self.bin(names[1]), "wb") as file:
            file.write(good)
        convert.convert(self.source, self.output)
        self.assertIn("model-00002-of-00002.safetensors", os.listdir(self.output))

    def test_a_signal_leaves_nothing(self):
        save({"a": Tensor(Storage("Float", floats(1, 2), 2), (2,))}, self.bin())
        program = ("import os, sys; sys.path.insert(0, sys.argv.pop(1)); import convert\n"
                   "def fsync(_):\n"
                   "    print(os.listdir(sys.argv[3]))\n"
                   "    os.kill(os.getpid(), number)\n"
                   "os.fsync = fsync; number = int(sys.argv.pop()); convert.main()")
        for number in (signal.SIGTERM, signal.SIGINT):
            done = subprocess.run(
                [sys.executable, "-B", "-c", program, os.path.join(ROOT, "tools"), self.source,
                 "-o", self.output, str(int(number))], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (75, "['model.safetensors.part']\n", ""))
            self.assertFalse(os.path.exists(self.output))

    def test_reads_the_span_of_a_tensor_alone(self):
        items = 16 << 20
        fused = Storage("Float", floats(*range(6)) + bytes(4 * (items - 6)), items)
        save({"turned": Tensor(fused, (3, 2), stride=(1, 3)),
              "last": Tensor(fused, (2, 2), stride=(1, 2), offset=items - 4)}, self.bin())
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        tensors = self.convert()
        _, peak_bytes = tracemalloc.get_traced_memory()
        self.assertEqual(tensors["turned"], ("F32", [3, 2], floats(0, 3, 1, 4, 2, 5)))
        self.assertEqual(tensors["last"], ("F32", [2, 2], bytes(16)))
        self.assertLess(peak_bytes, 48 << 20)

    def test_reads_what_torch_save_writes(self):
        shutil.copyfile(os.path.join(ROOT, "tests", "data", "torch", "saved.bin"), self.bin())
        with open(os.path.join(ROOT, "tests", "data", "torch", "values.json"),
                  encoding="utf-8") as file:
            values = json.load(file)
        tensors = self.convert()
        self.assertEqual(set(tensors), set(values))
        for name, (dtype, shape, numbers) in values.items():
            self.assertEqual(tensors[name][:2], (dtype, shape), name)
            self.assertEqual(numbers_of(*tensors[name]), numbers, name)

    def test_a_converted_model_answers_as_before(self):
        model = self.path("model")
        tiny_model.make(TRANSLOAD, model)
        kinds = {"F16": "Half", "F32": "Float", "BF16": "BFloat16"}
        tensors = {}
        for name, (dtype, shape, data) in read_safetensors(
                os.path.join(model, "model.safetensors")).items():
            items = len(data) // (4 if dtype == "F32" else 2)
            tensors[name] = Tensor(Storage(kinds[dtype], data, items), tuple(shape))
        save(state_dict(tensors), self.bin())
        for name in os.listdir(model):
            if not name.endswith(".safetensors"):
                os.rename(os.path.join(model, name), os.path.join(self.source, name))
        self.assertEqual(self.command().returncode, 0)
        for name in os.listdir(self.source):
            if not name.endswith(".bin"):
                os.rename(os.path.join(self.source, name), os.path.join(model, name))
        answers = []
        for folder in (model, self.output):
            with open(self.path("in.jsonl"), "w", encoding="utf-8") as file:
                file.write('{"id": 1, "prompt": "abc", "max_tokens": 8}\n')
            done = subprocess.run(
                [TRANSLOAD, "generate", "--model", folder, "--input", self.path("in.jsonl"),
                 "--output", "-", "--threads", "1"], check=True, capture_output=True)
            answers.append(done.stdout)
        self.assertEqual(answers[0], answers[1])


if __name__ == "__main__":
    unittest.main()
