"""Python's own unpickler with checked keys, for pickles that nobody vouches for.

Unlike the one in C it cannot be made to allocate by a large number in the file, and it lets keys be checked before they
are hashed (nested tuples take exponential time).
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn


class Frozen(type):
    """Classes a pickle can make instances of but not write to."""

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise pickle.UnpicklingError(f"the pickle tries to change {cls.__name__}.{name}")


class _Dict(dict[Any, Any]):
    """A dictionary that may carry attributes, as the ``state_dict`` of a module does."""


class Items(metaclass=Frozen):
    """``dict(pairs)`` with keys that are quick to hash."""

    def __new__(cls, pairs: Any = ()) -> Any:
        pairs = list(pairs.items() if isinstance(pairs, dict) else pairs)
        return _Dict(zip(_keys([key for key, _ in pairs]), [value for _, value in pairs], strict=True))


class Members(metaclass=Frozen):
    """``set(members)`` and ``frozenset(members)``."""

    def __new__(cls, members: Any = ()) -> Any:
        return set(_keys(list(members)))


def _keys(keys: Sequence[Any]) -> Sequence[Any]:
    for key in keys:
        if not isinstance(key, (str, bytes, int, float, type(None))):
            raise pickle.UnpicklingError(f"a key of type {type(key).__name__}; keys are text or numbers")
    return keys


_PythonUnpickler: Any = vars(pickle)["_Unpickler"]


class KeyedUnpickler(_PythonUnpickler):
    """Python's unpickler, with the keys of dictionaries and the members of sets checked."""

    dispatch: ClassVar[dict[int, Any]] = dict(_PythonUnpickler.dispatch)

    def load_setitem(self) -> None:
        _keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        _keys(self.stack[::2])
        super().load_dict()

    def load_additems(self) -> None:
        _keys(self.stack)
        super().load_additems()

    def load_frozenset(self) -> None:
        _keys(self.stack)
        super().load_frozenset()

    def load_bytearray8(self) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))  # what is there, instead of room for what is claimed

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.FROZENSET[0]] = load_frozenset
