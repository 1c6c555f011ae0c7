"""Typed sections of a configuration, and one message for all that is wrong in one."""

from __future__ import annotations

import dataclasses
import reprlib
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dcnn.errors import InputError, unknown


class Section(BaseModel):
    """A part of the configuration; a key that does not exist is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


Model = TypeVar("Model", bound=Section)


def validated(kind: type[Model], values: Mapping[str, Any], source: str = "configuration") -> Model:
    """The typed configuration, or one message that names every wrong field of `source`."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(f"{source}: " + "; ".join(_explain(kind, issue) for issue in error.errors())) from None


def _explain(kind: type[BaseModel], issue: Any) -> str:
    place = [str(part) for part in issue["loc"]]
    if issue["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        section, known = ".".join(place[:-1]) or "the top level", _keys_at(kind, issue["loc"][:-1])
        inside = [f"{key}.{place[-1]}" for key in known if place[-1] in _keys_at(kind, (*issue["loc"][:-1], key))]
        hint = f" In a section: {' or '.join(inside)}." if inside and place[-1] not in known else ""
        return str(unknown(f"key in {section}", place[-1], known)) + hint
    message = issue["msg"].removeprefix("Value error, ")
    found = "" if issue["type"] == "value_error" else f" (found {reprlib.repr(issue['input'])})"
    if message.partition(":")[0].isidentifier():  # a check of a dataclass names its field itself
        return ".".join([*place, message])
    return f"{'.'.join(place) or 'top level'}: {message}{found}"


def _keys_at(section: Any, location: tuple[Any, ...]) -> list[str]:
    """The valid keys beside a misspelt one."""
    for part in location:
        if isinstance(part, str) and part in (known := fields_of(section)):
            section = next((t for t in (known[part], *typing.get_args(known[part])) if fields_of(t)), section)
    return list(fields_of(section))


def fields_of(section: Any) -> dict[str, Any]:
    """{key: type} of a section, be it a pydantic model or a dataclass; of anything else {}."""
    if isinstance(section, type) and issubclass(section, BaseModel):
        return {name: entry.annotation for name, entry in section.model_fields.items()}
    if not dataclasses.is_dataclass(section):
        return {}
    hints = typing.get_type_hints(section)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(section)}
