"""Pickles that cannot run code: numbers, containers, numpy arrays, torch tensors and PyG data, nothing else.

A pickle is a program. Here every name it may look up stands for a constructor of ours: arrays are rebuilt
from their raw bytes, PyG's classes become a plain :class:`Bag` of attributes, and any other name is refused
before it is imported. No class of numpy, torch or PyG is handed out: there is nothing to call or to alter.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from typing import Any, NoReturn

import numpy as np

from dcnn.errors import InputError
from dcnn.guard import ALLOWANCE, RATIO
from dcnn.keyed_unpickler import Frozen, Items, KeyedUnpickler, Members


class Bag(metaclass=Frozen):
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


class _Dtype(metaclass=Frozen):
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


class _Array(metaclass=Frozen):
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


class _Scalar(metaclass=Frozen):
    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def build(self) -> Any:
        dtype, raw = self.parts
        return np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype.dtype())[0]


class _Storage(metaclass=Frozen):
    """The numbers of a torch tensor, as torch pickles them: five short pickles, then a count and raw bytes."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def flat(self) -> np.ndarray:
        stream = io.BytesIO(self.raw)
        usual = _USUAL_HEAD.match(self.raw)
        if usual is not None and usual[1].decode() in _STORAGES:
            stream.seek(usual.end())
            return self._numbers(stream, _STORAGES[usual[1].decode()])
        magic, _, system, (dtype, device), _ = (_StorageUnpickler(stream).load() for _ in range(5))
        if magic != _TORCH_MAGIC or not system["little_endian"] or not str(device).startswith(("cpu", "cuda")):
            raise pickle.UnpicklingError("a tensor is not stored as torch stores it")
        return self._numbers(stream, dtype)

    @staticmethod
    def _numbers(stream: io.BytesIO, dtype: str) -> np.ndarray:
        count = int.from_bytes(stream.read(8), "little")
        return np.frombuffer(stream.read(count * np.dtype(dtype).itemsize), dtype, count).copy()


class _Tensor(metaclass=Frozen):
    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def build(self) -> np.ndarray:
        storage, offset, size, stride = self.parts[:4]
        if math.prod(size) * 8 > ALLOWANCE:
            raise pickle.UnpicklingError(f"a tensor of shape {tuple(size)} is too large for a record")
        # torch checks that the view stays inside its storage, numpy does not
        import torch  # a second to import, and few files need it

        return torch.as_strided(torch.from_numpy(storage.flat()), size, stride, offset).clone().numpy()


class _Nothing(metaclass=Frozen):
    """Stands for what carries no data: dtypes of storages, PyG's attribute classes, hooks."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


class _Encoded(metaclass=Frozen):
    """``codecs.encode(text, "latin1")``: how old protocols write bytes."""

    def __new__(cls, text: Any, encoding: Any = "latin1") -> Any:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("codecs.encode is admitted for latin1 text only")
        return text.encode("latin1")


class _Bytes(metaclass=Frozen):
    """``bytes()``: how old protocols write no bytes at all."""

    def __new__(cls) -> Any:
        return b""


_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
# The head as torch writes it on common machines: most tensors need no unpickling, which halves the time of a record.
_USUAL_HEAD = re.compile(
    rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.\x80\x02M\xe9\x03\.\x80\x02\}q\x00\(X\x10\0\0\0protocol_version"
    rb"q\x01M\xe9\x03X\r\0\0\0little_endianq\x02\x88X\n\0\0\0type_sizesq\x03\}q\x04\(X\x05\0\0\0shortq\x05K\x02"
    rb"X\x03\0\0\0intq\x06K\x04X\x04\0\0\0longq\x07K[\x04\x08]uu\.\x80\x02\(X\x07\0\0\0storageq\x00ctorch\n(\w+)\n"
    rb"q\x01X.\0\0\0\d+q\x02X\x03\0\0\0cpuq\x03(?:K.|M..|J....)Ntq\x04Q\.\x80\x02\]q\x00X.\0\0\0\d+q\x01a\.",
    re.DOTALL,
)
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
    ("collections", "OrderedDict"): Items,
    ("builtins", "set"): Members,
    ("builtins", "frozenset"): Members,
    ("builtins", "complex"): complex,
    ("builtins", "list"): list,
    ("builtins", "dict"): Items,
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


class _Unpickler(KeyedUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _ADMITTED.get((module.replace("__builtin__", "builtins"), name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside the file")


class _StorageUnpickler(KeyedUnpickler):
    """Reads the head of a torch storage: its type is a name, its whereabouts a tuple."""

    def find_class(self, module: str, name: str) -> Any:
        if module != "torch" or name not in _STORAGES:
            raise pickle.UnpicklingError(f"a tensor asks for {module}.{name}")
        return _STORAGES[name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        return pid[1], pid[3]


class _Builder:
    """Builds the arrays of a tree in place and counts its entries as often as they are referred to.

    Twenty references to references to … make a billion entries of a hundred bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.done: dict[int, tuple[Any, int]] = {}  # a PyG object refers back to itself

    def __call__(self, value: Any) -> tuple[Any, int]:
        """(the value with arrays built, number of its entries)."""
        if id(value) in self.done:
            return self.done[id(value)]
        self.done[id(value)] = value, 1
        built, entries = value, 1
        if isinstance(value, (_Array, _Scalar, _Tensor)):
            built = value.build()
            entries += np.size(built)
        elif isinstance(value, Bag):
            value.values, entries = self(value.values)
        elif isinstance(value, dict):
            for key, item in list(value.items()):
                value[key], more = self(item)
                entries += more
        elif isinstance(value, (list, tuple)):
            items = [self(item) for item in value]
            entries += sum(more for _, more in items)
            if isinstance(value, list):
                value[:] = [item for item, _ in items]
            else:
                built = tuple(item for item, _ in items)
        if entries > self.most:
            raise pickle.UnpicklingError("it unfolds to far more than it holds")
        self.done[id(value)] = built, entries
        return built, entries


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
        tree = _Unpickler(io.BytesIO(raw)).load()
        return _Builder(1000 + RATIO * len(raw))(tree)[0]
    except Exception as error:
        raise InputError(
            f"{where}: refused as unsafe or unreadable: {error}. Only numbers, containers, numpy arrays, "
            "torch tensors and PyG data are read from pickles; convert the file where it was written"
        ) from None


class _Outline(KeyedUnpickler):
    """Reads any pickle as numbers, text and containers; whatever else it asks for is left blank."""

    def find_class(self, module: str, name: str) -> Any:
        return {"OrderedDict": Items, "dict": Items, "set": Members, "frozenset": Members}.get(name, _Nothing)

    def persistent_load(self, pid: Any) -> None:
        return None


def check_pickle(raw: bytes) -> None:
    """Raises where a pickle is damaged or would unfold without end, before torch reads it in its own safe way."""
    _Builder(1000 + RATIO * len(raw))(_Outline(io.BytesIO(raw)).load())
