"""Configurations as text: YAML files and key=value on a command line.

Without PyYAML they are written as JSON, which is YAML, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dcnn.errors import InputError, needs_extra
from dcnn.guard import decoding, read_text
from dcnn.train.config import BUDGET, merge

DEEPEST = 20  # levels of a configuration


def to_yaml(values: dict[str, Any]) -> str:
    try:
        import yaml
    except ImportError:
        return json.dumps(values, indent=2) + "\n"
    return yaml.safe_dump(values, sort_keys=False)


def read_yaml(path: Path) -> dict[str, Any]:
    text = read_text(path, "configuration", 1 << 20)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = _parse(text, str(path))
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected key: value lines, found {type(values).__name__}")
    return values


def _parse(text: str, source: str) -> Any:
    """The value of YAML text without aliases and deep nesting: a few lines of either unfold without end."""
    with needs_extra("cli"):
        import yaml

    class Plain(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("an alias (*name); write its value out")
            if self.depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} levels")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    with decoding(source, "YAML text"):
        return yaml.load(text, Plain)  # a SafeLoader


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """`["training.epochs=5", "model.name=gemnet"]` as nested values; values are read as YAML."""
    values: dict[str, Any] = {}
    budgets = {f"training.{name}": "training budget" for name in BUDGET}
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{pair!r} is not key=value, for example training.minutes=10")
        earlier = given.setdefault(budgets.get(key, key), pair)
        if earlier is not pair:
            raise InputError(f"{earlier} and {pair}: only one of them can be meant")
        node: Any = _parse(text, key) if text else None
        for part in reversed(key.split(".")):
            node = {part: node}
        values = merge(values, node)
    return values
