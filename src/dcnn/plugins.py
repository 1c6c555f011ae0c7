"""Objects of the user's own: from a Python file, or from an installed package that declares an entry point."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from dcnn.errors import InputError, unknown


class _AsItIs(SourceFileLoader):
    """Compiles what the file holds now: bytecode that Python kept may be that of the same second before an edit."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def module_from_file(path: str | Path, what: str = "Python") -> ModuleType:
    """Runs a Python file and returns it as a module; what goes wrong in it is reported with its line."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such {what} file")
    name = f"dcnn_{what}_{path.stem}"
    loader = _AsItIs(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect needs it to find the source of a class
    try:
        loader.exec_module(module)
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        raise InputError(f"{path}, line {line}: {type(error).__name__}: {error}") from error
    return module


def from_file(reference: str, what: str) -> Any:
    """What ``file.py:Name`` stands for."""
    file, _, name = reference.rpartition(":")
    module = module_from_file(file, what)
    if name not in vars(module):
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
        raise unknown(f"{what} in {file}", name, own)
    return vars(module)[name]


def installed(group: str) -> dict[str, Any]:
    """The entry points of a group (``dcnn.networks``, …) by name, not loaded yet."""
    return {point.name: point for point in entry_points(group=group)}
