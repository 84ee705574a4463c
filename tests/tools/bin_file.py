"""Writes .bin files as torch.save does, without PyTorch."""

import collections
import io
import pickle
import sys
import types
import zipfile

torch = types.ModuleType("torch")
torch._utils = types.ModuleType("torch._utils")


def _rebuild_tensor_v2(*_):
    raise AssertionError("a stand-in was called")


def _rebuild_parameter(*_):
    raise AssertionError("a stand-in was called")


for function in (_rebuild_tensor_v2, _rebuild_parameter):
    function.__module__ = "torch._utils"
    setattr(torch._utils, function.__name__, function)
for storage in ("Float", "Half", "BFloat16", "Double", "Long", "Bool"):
    setattr(torch, storage + "Storage", type(storage + "Storage", (), {"__module__": "torch"}))
sys.modules.update({"torch": torch, "torch._utils": torch._utils})


class Storage:
    """`kind`: "Float"; the bytes of all its elements."""

    def __init__(self, kind, data, items):
        self.kind, self.data, self.items = kind, data, items


class Tensor:
    def __init__(self, storage, shape, stride=None, offset=0, parameter=False):
        steps = [1]
        for size in reversed(shape[1:]):
            steps.insert(0, steps[0] * size)
        self.storage, self.shape, self.offset = storage, tuple(shape), offset
        self.stride = tuple(stride if stride is not None else steps[:len(shape)])
        self.parameter = parameter

    def __reduce__(self):
        if self.parameter:
            plain = Tensor(self.storage, self.shape, self.stride, self.offset)
            return _rebuild_parameter, (plain, True, collections.OrderedDict())
        return _rebuild_tensor_v2, (self.storage, self.offset, self.shape, self.stride, False,
                                    collections.OrderedDict())


def state_dict(tensors):
    """An OrderedDict with the attribute that torch.nn.Module.state_dict leaves on it."""
    state = collections.OrderedDict(tensors)
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    return state


def save(state, path, root="archive", extra=()):
    storages = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            if value not in storages:
                storages.append(value)
            return ("storage", getattr(torch, value.kind + "Storage"),
                    str(storages.index(value)), "cpu", value.items)

    data = io.BytesIO()
    Pickler(data, protocol=2).dump(state)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{root}/data.pkl", data.getvalue())
        archive.writestr(f"{root}/byteorder", "little")
        for key, storage in enumerate(storages):
            archive.writestr(f"{root}/data/{key}", storage.data)
        archive.writestr(f"{root}/version", "3\n")
        for name, text in extra:
            archive.writestr(f"{root}/{name}", text)
