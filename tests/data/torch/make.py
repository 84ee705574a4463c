"""Writes saved.bin and values.json beside itself; README.md says what they are."""

import collections
import json
import os

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F32"}


def tensors():
    fused = torch.arange(24, dtype=torch.float32).reshape(6, 4) / 8
    embedding = torch.tensor([[1.5, -2.0], [0.25, 3.0]], dtype=torch.bfloat16)
    return collections.OrderedDict([
        ("fused", fused), ("turned", fused[3:].t()), ("column", fused[:, 1]),
        ("embedding", torch.nn.Parameter(embedding)), ("tied", embedding),
        ("half", torch.tensor([0.5, -65504.0, 6.103515625e-05], dtype=torch.float16)),
        ("double", torch.tensor([0.5, -3.0], dtype=torch.float64)),
        ("scalar", torch.tensor(7.0)), ("empty", torch.zeros(0, 3)),
        ("mask", torch.tensor([True, False]))])


def main():
    state = tensors()
    torch.save(state, os.path.join(HERE, "saved.bin"))
    values = {name: [TYPES[tensor.dtype], list(tensor.shape), tensor.float().flatten().tolist()]
              for name, tensor in state.items() if tensor.dtype in TYPES}
    with open(os.path.join(HERE, "values.json"), "w", encoding="ascii") as file:
        json.dump(values, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
