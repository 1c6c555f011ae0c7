"""Pickles that cannot run code: numbers, containers, numpy arrays, torch tensors and PyG data, nothing else.

A pickle is a program. Here every name it may look up stands for a constructor of ours: arrays are rebuilt
from their raw bytes, PyG's classes become a plain :class:`Bag` of attributes, and any other name is refused
before it is imported. No class of numpy, torch or PyG is handed out: there is nothing to call or to alter.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

import numpy as np
import torch

from dcnn.errors import InputError


class _Frozen(type):
    """Classes a pickle can make instances of but not write to."""

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise pickle.UnpicklingError(f"the pickle tries to change {cls.__name__}.{name}")


class Bag(metaclass=_Frozen):
    """Attributes of a pickled PyG object, old layout (own attributes) or new (``_store._mapping``)."""

    values: dict[str, Any]

    def __new__(cls, *_: Any) -> Bag:
        bag = object.__new__(cls)
        bag.values = {}
        return bag

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple):  # (state, slots)
            state = {**(state[0] or {}), **(state[1] or {})}
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("a PyG object holds no attributes")
        self.values.update(state)

    def fields(self) -> dict[str, Any]:
        """The attributes by name, wherever this layout keeps them."""
        inner = self.values.get("_store", self.values.get("_mapping"))
        if isinstance(inner, Bag):
            return inner.fields()
        return inner if isinstance(inner, dict) else self.values


class _Dtype(metaclass=_Frozen):
    __slots__ = ("byteorder", "code")

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.byteorder = code, "<"

    def __setstate__(self, state: Any) -> None:
        self.byteorder = state[1]

    def dtype(self) -> np.dtype:
        dtype = np.dtype(self.code) if isinstance(self.code, str) else None
        if dtype is None or dtype.kind not in "biufcSU":
            raise pickle.UnpicklingError(f"arrays of {self.code!r} are not plain numbers or text")
        return dtype.newbyteorder(">") if self.byteorder == ">" else dtype


class _Array(metaclass=_Frozen):
    """A numpy array on its way in; :meth:`build` makes it once all its parts are known."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.parts = (raw, dtype, shape, "F" if fortran else "C")

    def build(self) -> np.ndarray:
        raw, dtype, shape, order = self.parts
        if isinstance(raw, str):
            raw = raw.encode("latin1")  # how protocols 0 to 2 keep bytes
        return np.frombuffer(raw, dtype.dtype()).reshape(shape, order=order).copy()


class _Scalar(metaclass=_Frozen):
    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def build(self) -> Any:
        dtype, raw = self.parts
        return np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype.dtype())[0]


class _Storage(metaclass=_Frozen):
    """The numbers of a torch tensor, as torch pickles them: five short pickles, then a count and raw bytes."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def flat(self) -> np.ndarray:
        stream = io.BytesIO(self.raw)
        magic, _, system, (dtype, device), _ = (_StorageUnpickler(stream).load() for _ in range(5))
        if magic != _TORCH_MAGIC or not system["little_endian"] or not str(device).startswith(("cpu", "cuda")):
            raise pickle.UnpicklingError("a tensor is not stored as torch stores it")
        count = int.from_bytes(stream.read(8), "little")
        return np.frombuffer(stream.read(count * np.dtype(dtype).itemsize), dtype, count).copy()


class _Tensor(metaclass=_Frozen):
    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def build(self) -> np.ndarray:
        storage, offset, size, stride = self.parts[:4]
        # torch checks that the view stays inside its storage, numpy does not
        return torch.as_strided(torch.from_numpy(storage.flat()), size, stride, offset).clone().numpy()


class _Nothing(metaclass=_Frozen):
    """Stands for what carries no data: dtypes of storages, PyG's attribute classes, hooks."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


class _Encoded(metaclass=_Frozen):
    """``codecs.encode(text, "latin1")``: how old protocols write bytes."""

    __slots__ = ("parts",)

    def __new__(cls, text: Any, encoding: Any = "latin1") -> Any:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("codecs.encode is admitted for latin1 text only")
        return text.encode("latin1")


class _Bytes(metaclass=_Frozen):
    """``bytes()``: how old protocols write no bytes at all."""

    def __new__(cls) -> Any:
        return b""


_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Nothing,
    ("numpy", "dtype"): _Dtype,
    ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
    ("torch._utils", "_rebuild_tensor"): _Tensor,
    ("torch.storage", "_load_from_bytes"): _Storage,
    ("collections", "OrderedDict"): dict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "list"): list,
    ("builtins", "dict"): dict,
    ("builtins", "tuple"): tuple,
    ("builtins", "bytes"): _Bytes,
    ("_codecs", "encode"): _Encoded,
}
for _core in ("numpy.core", "numpy._core"):
    _ADMITTED[_core + ".multiarray", "_reconstruct"] = _Array
    _ADMITTED[_core + ".multiarray", "scalar"] = _Scalar
    _ADMITTED[_core + ".numeric", "_frombuffer"] = _Array
for _module, _name in (("storage", "GlobalStorage"), ("storage", "BaseStorage"), ("data", "Data")):
    _ADMITTED["torch_geometric.data." + _module, _name] = Bag
_ADMITTED["torch_geometric.data", "Data"] = Bag
for _name in ("DataTensorAttr", "DataEdgeAttr"):
    _ADMITTED["torch_geometric.data.data", _name] = _Nothing


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _ADMITTED.get((module.replace("__builtin__", "builtins"), name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside the file")


class _StorageUnpickler(pickle.Unpickler):
    """Reads the head of a torch storage: its type is a name, its whereabouts a tuple."""

    def find_class(self, module: str, name: str) -> Any:
        if module != "torch" or name not in _STORAGES:
            raise pickle.UnpicklingError(f"a tensor asks for {module}.{name}")
        return _STORAGES[name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        return pid[1], pid[3]


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """The tree with arrays built; a PyG object refers back to itself, hence ``seen``."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, (_Array, _Scalar, _Tensor)):
        return value.build()
    if isinstance(value, Bag):
        seen[id(value)] = value
        value.values = {key: _plain(item, seen) for key, item in value.values.items()}
    elif isinstance(value, dict):
        seen[id(value)] = value
        value.update({key: _plain(item, seen) for key, item in value.items()})
    elif isinstance(value, list):
        seen[id(value)] = value
        value[:] = [_plain(item, seen) for item in value]
    elif isinstance(value, tuple):
        return tuple(_plain(item, seen) for item in value)
    return value


def safe_loads(raw: bytes, where: str) -> Any:
    """The object in a pickle; tensors come as numpy arrays, PyG objects as :class:`Bag`.

    A pickle that asks for anything else is refused with an :class:`InputError` and runs nothing.

    >>> import os, pickle
    >>> safe_loads(pickle.dumps([1, 2.5, "a"]), "list.pkl")
    [1, 2.5, 'a']
    >>> safe_loads(pickle.dumps(os.system), "bad.pkl")
    Traceback (most recent call last):
    dcnn.errors.InputError: bad.pkl: refused as unsafe or unreadable: it asks for posix.system. ...
    """
    try:
        return _plain(_Unpickler(io.BytesIO(raw)).load(), {})
    except Exception as error:
        raise InputError(
            f"{where}: refused as unsafe or unreadable: {error}. Only numbers, containers, numpy arrays, "
            "torch tensors and PyG data are read from pickles; convert the file where it was written"
        ) from None
