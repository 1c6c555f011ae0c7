"""Public names of a package that are imported when they are first used, so that a command loads only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from dcnn.errors import needs_extra

#: What higher layers offer lower ones, by name; the package fills it in without importing them.
OFFERED: dict[str, Callable[[], Any]] = {}


def lazy_names(
    package: str, found_in: Mapping[str, str], extras: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    found_in: public name → module that holds it; a name that maps to itself is a module. extras: name → the extra that
    brings what it needs ("" for all others), said in one line where it is missing.
    """

    def getattr_(name: str) -> Any:
        if name not in found_in:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        where = f"{package}.{found_in[name]}"
        with needs_extra(extras.get(name) or extras.get("", "all")):
            module = import_module(where)
        value = module if found_in[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return getattr_, lambda: sorted({*found_in, *sys.modules[package].__all__})
