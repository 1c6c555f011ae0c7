"""Configurations as text: YAML files and key=value on a command line.

Without PyYAML they are written as JSON, which is YAML, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dcnn.errors import InputError, needs_extra
from dcnn.train.config import merge


def to_yaml(values: dict[str, Any]) -> str:
    try:
        import yaml
    except ImportError:
        return json.dumps(values, indent=2) + "\n"
    return yaml.safe_dump(values, sort_keys=False)


def read_yaml(path: Path) -> dict[str, Any]:
    text = path.read_text()
    try:
        values = json.loads(text)
    except json.JSONDecodeError:
        values = _parse(text, str(path))
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected key: value lines, found {type(values).__name__}")
    return values


def _parse(text: str, source: str) -> Any:
    with needs_extra("cli"):
        import yaml
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{source}: not valid YAML: {error}") from None


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """`["training.epochs=5", "model.name=gemnet"]` as nested values; values are read as YAML."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{pair!r} is not key=value, for example training.minutes=10")
        node: Any = _parse(text, key) if text else None
        for part in reversed(key.split(".")):
            node = {part: node}
        values = merge(values, node)
    return values
