#!/usr/bin/env python3
"""Turns a model in PyTorch's .bin files into safetensors, a tensor at a time.

    tools/convert.py FOLDER -o NEW_FOLDER

FOLDER holds pytorch_model.bin, or its shards with pytorch_model.bin.index.json; each .bin becomes a
.safetensors, and the model's other files (config.json, tokenizer) are copied. Tensors that are no
floating-point numbers (masks, position numbers) are left out and named; float64 becomes float32.
Needs Python alone. Memory: some MiB; for a tensor whose elements do not lie in a row (a transposed
one), what lies between its first and its last. After an error (exit status 1), SIGINT or SIGTERM
(exit status 75) nothing that was written stays.

A .bin is a zip of a pickle and of the storages that it speaks of. A pickle may call any function:
this one reads those few that a state dict consists of, and refuses the file at any other name."""

import argparse
import array
import collections
import contextlib
import io
import json
import os
import pickle
import pickletools
import shutil
import signal
import struct
import sys
import zipfile

CHUNK_BYTES = 4 << 20
PICKLE_LIMIT_BYTES = 256 << 20
MOST_DIMENSIONS = 64  # PyTorch's
INTERRUPTED = 75
# PyTorch's storages: safetensors' name, bytes of an element.
DTYPES = {"FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
          "DoubleStorage": ("F64", 8), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
          "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
          "BoolStorage": ("BOOL", 1)}
KEPT = ("F32", "F16", "BF16", "F64")
COPIED = (".json", ".txt", ".model", ".jinja")


class Refused(Exception):
    """What is wrong with a file, for people."""


@contextlib.contextmanager
def reading():
    """Refuses what cannot be read: a damaged zip or pickle raises nearly anything."""
    try:
        yield
    except Refused:
        raise
    except MemoryError as error:
        raise Refused("needs more memory than there is") from error
    except Exception as error:
        what = str(error) or type(error).__name__
        raise Refused(f"{what}; the file is damaged, bring it again") from error


def in_one_line(text):
    """The text, with newlines and other control characters written as in Python."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class StateDict(collections.OrderedDict):
    """Takes what a pickle hangs onto a state dict (its _metadata), and drops it."""

    def __setstate__(self, state):
        pass


class Storage(collections.namedtuple("Storage", "dtype item_bytes key items")):
    pass


class Tensor(collections.namedtuple("Tensor", "storage offset shape stride")):
    __slots__ = ()

    @property
    def count(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def span(self):
        """Elements from the first to the last. Requires: there is one."""
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride))

    @property
    def in_a_row(self):
        """Whether the elements lie one after the other."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


def is_size(number):
    return type(number) is int and 0 <= number < 1 << 63


def rebuild_tensor(storage, offset, shape, stride, *_):
    if not isinstance(storage, Storage):
        raise Refused("a tensor without a storage")
    if not len(shape) == len(stride) <= MOST_DIMENSIONS or not all(
            is_size(number) for number in (offset, *shape, *stride)):
        raise Refused("a tensor with a senseless shape")
    tensor = Tensor(storage, offset, tuple(shape), tuple(stride))
    if tensor.count and offset + tensor.span > storage.items:
        raise Refused(f"a tensor past the end of storage {storage.key}")
    if tensor.count > storage.items:  # a stride of 0: a pickle of 1 KiB could ask for any size
        raise Refused(f"a tensor of {tensor.count} elements in storage {storage.key}, "
                      f"which has {storage.items}")
    return tensor


NAMES = {("collections", "OrderedDict"): StateDict,
         ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
         ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
         **{("torch", name): name for name in DTYPES}}


def check_pickle(data):
    """Refuses what makes the unpickler allocate more than the pickle's length warrants.

    Its memo is an array as long as the greatest index, and picklers count from 0 or 1. Lengths of
    texts and numbers genops compares with what follows itself."""
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= argument <= position:
            raise Refused(f"its pickle memorizes {argument} after {position} bytes")
        if opcode.name == "FRAME" and argument > len(data) - position:
            raise Refused(f"its pickle of {len(data)} bytes has a frame of {argument}")


class StateDictReader(pickle.Unpickler):
    """Knows the names above; nothing else can be called."""

    def find_class(self, module, name):
        if (module, name) not in NAMES:
            raise Refused(f"its pickle names {module}.{name}, which no state dict needs")
        return NAMES[module, name]

    def persistent_load(self, reference):
        kind, name, key, _, items = reference
        if (kind != "storage" or type(name) is not str or name not in DTYPES
                or type(key) is not str or not is_size(items)):
            raise Refused("its pickle speaks of something that is no storage")
        return Storage(*DTYPES[name], key, items)


class BinFile:
    """A .bin: its tensors by name, and their bytes."""

    def __init__(self, path):
        self.path = path
        if not zipfile.is_zipfile(path):
            raise Refused("is no zip (PyTorch before 1.6 wrote another format, or it is damaged)")
        self.archive = zipfile.ZipFile(path)
        pickles = [name for name in self.archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Refused("has no data.pkl: is it PyTorch's?")
        self.root = pickles[0][:-len("data.pkl")]
        order = self.root + "byteorder"
        if order in self.archive.namelist() and self.archive.read(order).strip() != b"little":
            raise Refused("is big-endian")
        self.tensors = self.read_tensors(pickles[0])

    def close(self):
        self.archive.close()

    def read_tensors(self, name):
        if self.archive.getinfo(name).file_size > PICKLE_LIMIT_BYTES:
            raise Refused(f"its pickle is longer than {PICKLE_LIMIT_BYTES} bytes")
        data = self.archive.read(name)
        check_pickle(data)
        state = StateDictReader(io.BytesIO(data)).load()
        for wrapper in ("state_dict", "model"):  # checkpoints of training programs
            if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
                state = state[wrapper]
        if not isinstance(state, dict):
            raise Refused("holds no state dict")
        for key, value in state.items():
            if type(key) is not str:  # repr of nested tuples may have no end
                raise Refused(f"has a tensor whose name is no text but {type(key).__name__}")
            if not isinstance(value, Tensor):
                raise Refused(f"holds something that is no tensor ({key!r})")
            if key == "__metadata__" or not key.isprintable():  # nor is half a surrogate pair
                raise Refused(f"has a tensor by a name that safetensors cannot have ({key!r})")
        return dict(state)

    def pieces(self, tensor):
        """The tensor's bytes in order, in pieces."""
        if tensor.count == 0:
            return
        storage = tensor.storage
        name = f"{self.root}data/{storage.key}"
        try:
            have_bytes = self.archive.getinfo(name).file_size
        except KeyError:
            raise Refused(f"lacks storage {storage.key}") from None
        if have_bytes < storage.items * storage.item_bytes:
            raise Refused(f"storage {storage.key} has {have_bytes} bytes of "
                          f"{storage.items * storage.item_bytes}")
        with reading(), self.archive.open(name) as file:
            file.seek(tensor.offset * storage.item_bytes)
            pieces = read_pieces(file, tensor.span * storage.item_bytes)
            yield from pieces if tensor.in_a_row else gather(tensor, pieces)


def read_pieces(file, left):
    while left:
        piece = file.read(min(left, CHUNK_BYTES))
        if not piece:
            raise Refused("its storage ends early")
        left -= len(piece)
        yield piece


def gather(tensor, pieces):
    """Rows of a tensor whose span the pieces are."""
    data = bytearray()
    for piece in pieces:
        data += piece
    size = tensor.storage.item_bytes
    items = memoryview(data).cast({1: "B", 2: "H", 4: "I", 8: "Q"}[size])
    *outer, last = tensor.shape
    *outer_strides, stride = tensor.stride

    def rows(dimension, at):
        if dimension == len(outer):
            yield (items[at:at + 1].tobytes() * last if stride == 0
                   else items[at:at + (last - 1) * stride + 1:stride].tobytes())
            return
        for i in range(outer[dimension]):
            yield from rows(dimension + 1, at + i * outer_strides[dimension])

    return rows(0, 0)


def as_float32(pieces):
    rest = b""
    for piece in pieces:
        rest += piece
        whole = len(rest) // 8 * 8
        yield array.array("f", array.array("d", rest[:whole])).tobytes()
        rest = rest[whole:]


def write_safetensors(source, path, say):
    """Writes the floating-point tensors of `source`. Returns their names and bytes."""
    header, offset, kept = {"__metadata__": {"format": "pt"}}, 0, []
    for name, tensor in source.tensors.items():
        dtype = tensor.storage.dtype
        if dtype not in KEPT:
            say(f"left out {name}: {dtype} is no floating-point type")
            continue
        stored, item_bytes = ("F32", 4) if dtype == "F64" else (dtype, tensor.storage.item_bytes)
        end = offset + tensor.count * item_bytes
        header[name] = {"dtype": stored, "shape": tensor.shape, "data_offsets": [offset, end]}
        kept.append((name, tensor))
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in kept:
            pieces = source.pieces(tensor)
            try:
                file.writelines(as_float32(pieces) if tensor.storage.dtype == "F64" else pieces)
            except Refused as error:
                raise Refused(f"tensor {name}: {error}") from error
        if file.tell() != 8 + len(text) + offset:
            raise Refused("did not give the bytes that it promised")
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)
    return [name for name, _ in kept], offset


def read_weight_map(path):
    """{tensor: file} of an index."""
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: is no JSON ({error}); bring the file again") from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map or not all(
            isinstance(shard, str) for shard in weight_map.values()):
        raise Refused(f"{path}: lacks \"weight_map\", the file of each tensor; bring the file again")
    return weight_map


def find_shards(folder):
    """The .bin files in order, and the weight map of their index (None for a single file)."""
    index = os.path.join(folder, "pytorch_model.bin.index.json")
    if os.path.exists(index):
        weight_map = read_weight_map(index)
        return sorted(set(weight_map.values())), weight_map
    if os.path.exists(os.path.join(folder, "pytorch_model.bin")):
        return ["pytorch_model.bin"], None
    raise Refused(f"{folder}: has neither pytorch_model.bin nor pytorch_model.bin.index.json")


def convert_shard(path, target, say):
    try:
        with reading():
            opened = BinFile(path)
        with contextlib.closing(opened) as source:
            names, size = write_safetensors(source, target, say)
            return names, size, set(source.tensors)
    except Refused as error:
        raise Refused(f"{path}: {error}") from error


@contextlib.contextmanager
def new_folder(path):
    """An empty folder; when what is done with it fails, it is as before."""
    made = not os.path.isdir(path)
    os.makedirs(path, exist_ok=True)
    if os.listdir(path):
        raise Refused(f"{path}: is not empty; give a new folder")
    try:
        yield
    except BaseException:
        for name in os.listdir(path):
            os.remove(os.path.join(path, name))
        if made:
            os.rmdir(path)
        raise


def convert(folder, output, say=lambda text: None):
    shards, weight_map = find_shards(folder)
    for shard in shards:
        if os.path.basename(shard) != shard or not os.path.exists(os.path.join(folder, shard)):
            raise Refused(f"{os.path.join(folder, shard)}: the index names it, and it is not there")
    with new_folder(output):
        write_model(folder, output, shards, weight_map, say)


def write_model(folder, output, shards, weight_map, say):
    new_map, total, found = {}, 0, set()
    for number, shard in enumerate(shards, 1):
        name = ("model.safetensors" if len(shards) == 1
                else f"model-{number:05}-of-{len(shards):05}.safetensors")
        names, size, all_names = convert_shard(os.path.join(folder, shard),
                                               os.path.join(output, name), say)
        new_map.update((tensor, name) for tensor in names)
        total, found = total + size, found | all_names
        say(f"{shard} -> {name}: {len(names)} tensors, {size} bytes")
    missing = sorted(set(weight_map or ()) - found)
    if missing:
        raise Refused(f"{folder}: the index has {missing[0]}, and no shard does")
    if len(shards) > 1:
        with open(os.path.join(output, "model.safetensors.index.json"), "w",
                  encoding="utf-8") as file:
            json.dump({"metadata": {"total_size": total}, "weight_map": new_map}, file, indent=1)
    for name in sorted(os.listdir(folder)):
        if name.endswith(COPIED) and not name.endswith(".index.json"):
            shutil.copyfile(os.path.join(folder, name), os.path.join(output, name))


def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would end the clean-up
    sys.exit(INTERRUPTED)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("-o", "--output", required=True, metavar="NEW_FOLDER")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    try:
        convert(options.folder, options.output,
                lambda text: print("convert: " + in_one_line(text), file=sys.stderr))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (Refused, OSError) as error:
        sys.exit("convert: error: " + in_one_line(str(error)))


if __name__ == "__main__":
    main()
