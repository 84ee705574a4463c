"""Copies of a GGUF file whose matrices are stored in 16 bits (https://github.com/ggml-org/ggml,
docs/gguf.md): gguf_file.py SOURCE COPY F16|BF16. Metadata are copied as they stand."""

import struct
import sys

import numpy

TYPES = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8, "BF16": 30}
Q4_1 = numpy.dtype([("scale", "<f2"), ("minimum", "<f2"), ("codes", "u1", 16)])  # 32 values
Q8_0 = numpy.dtype([("scale", "<f2"), ("codes", "i1", 32)])
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes by type
STRING, ARRAY = 8, 9
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            of, count = self.take("I"), self.take("Q")
            for _ in range(count):
                self.skip_value(of)
        else:
            self.at += SCALARS[kind]

    def tensor(self):
        """(name, sizes, type, offset)"""
        return (self.text(), [self.take("Q") for _ in range(self.take("I"))], self.take("I"),
                self.take("Q"))


def aligned(offset):
    return -(-offset // ALIGNMENT) * ALIGNMENT


def values(data, at, kind, count):
    """float32 values of a tensor."""
    if kind == TYPES["Q8_0"]:
        blocks = numpy.frombuffer(data, Q8_0, count // 32, at)
        return (blocks["scale"].astype("f4")[:, None] * blocks["codes"]).ravel()
    blocks = numpy.frombuffer(data, Q4_1, count // 32, at)
    codes = numpy.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], axis=1)
    return (blocks["scale"].astype("f4")[:, None] * codes
            + blocks["minimum"].astype("f4")[:, None]).ravel()


def narrowed(floats, dtype):
    if dtype == "F16":
        return floats.astype("<f2").tobytes()
    words = floats.view("<u4").astype("u8")
    return ((words + 0x7fff + (words >> 16 & 1)) >> 16).astype("<u2").tobytes()


def copy_as(source, path, dtype):
    """Writes a copy, "F16" or "BF16": a file of Q4_1, Q8_0 and F32 with the default alignment."""
    with open(source, "rb") as file:
        data = file.read()
    reader = Reader(data)
    assert (reader.take("I"), reader.take("I")) == (0x46554747, 3), "GGUF, version 3"
    tensor_count, value_count = reader.take("Q"), reader.take("Q")
    for _ in range(value_count):
        reader.text()
        reader.skip_value(reader.take("I"))
    head = data[:reader.at]
    tensors = [reader.tensor() for _ in range(tensor_count)]
    begin, body = aligned(reader.at), bytearray()
    for name, sizes, kind, offset in tensors:
        count = int(numpy.prod(sizes))
        to = "F32" if kind == TYPES["F32"] else dtype
        head += struct.pack(f"<Q{len(name)}sI{len(sizes)}QIQ", len(name), name, len(sizes), *sizes,
                            TYPES[to], len(body))
        if kind == TYPES["F32"]:
            body += data[begin + offset:begin + offset + 4 * count]
        else:
            body += narrowed(values(data, begin + offset, kind, count), dtype)
        body += bytes(aligned(len(body)) - len(body))
    with open(path, "wb") as file:
        file.write(head + bytes(aligned(len(head)) - len(head)))
        file.write(body)


if __name__ == "__main__":
    copy_as(*sys.argv[1:])
