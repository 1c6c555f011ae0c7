"""Hooks of the documentation site (mkdocs.yml): pages made from the code, and doctests shown as code.

The pages below docs/ are doctested prose that also reads well in an editor; what the site needs besides is done here.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).parents[1]
SOURCE = "https://github.com/dcnn/dcnn/blob/main/"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that do not stand below docs/."""
    made = {"configuration.md": configuration(), "changelog.md": (ROOT / "CHANGELOG.md").read_text()}
    made |= {f"results/{path.name}": path.read_text() for path in sorted((ROOT / "results").glob("*.md"))}
    made["contributing.md"] = (ROOT / "CONTRIBUTING.md").read_text()
    made |= {f"tutorials/{path.stem}.md": notebook(path) for path in sorted((ROOT / "docs/tutorials").glob("*.ipynb"))}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fences around doctests that have none; links that leave docs/ lead to the site's page or to the repository."""
    return _relinked(_fenced(markdown), page.file.src_uri, files)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Roles of docstrings (:func:`name`) as plain code."""
    return re.sub(r":(?:func|class|mod|meth|attr):(<code>)", r"\1", html)


def _fenced(markdown: str) -> str:
    """A bare doctest ends, as for the doctest module, at the first empty line."""
    lines, inside, open_block = [], False, False
    for line in markdown.splitlines():
        if line.startswith("```"):
            inside = not inside
        if not inside and not open_block and line.startswith(">>>"):
            lines.append("```python")
            open_block = True
        elif open_block and not line.strip():
            lines.append("```")
            open_block = False
        lines.append(line)
    return "\n".join(lines + ["```"] * open_block)


def _relinked(markdown: str, page: str, files: Files) -> str:
    known = set(files.src_uris)
    outside = page in ("changelog.md", "contributing.md")  # written for the root of the repository
    folder = page.rpartition("/")[0]
    outside_folder = folder if folder == "results" else "" if outside else f"docs/{folder}"
    up = "../" * page.count("/")

    def replaced(match: re.Match[str]) -> str:
        target, _, part = match[1].partition("#")
        if not target or re.match(r"\w+:", target):
            return match[0]
        path = (ROOT / outside_folder / target).resolve()
        if not path.exists() or not path.is_relative_to(ROOT):
            return match[0]  # a page made here, or a mistake that the strict build reports
        inside = path.relative_to(ROOT).as_posix()
        on_site = inside.removeprefix("docs/")
        if inside in ("CHANGELOG.md", "CONTRIBUTING.md"):
            on_site = inside.lower()
        if on_site.endswith(".ipynb") and not page.startswith("tutorials/"):
            on_site = on_site.removesuffix("ipynb") + "md"
        link = f"{up}{on_site}" if on_site in known else f"{SOURCE}{inside}"
        return f"]({link}{'#' + part if part else ''})"

    return re.sub(r"\]\(([^)\s]+)\)", replaced, markdown)


def notebook(path: Path) -> str:
    """A notebook as a page: its text and its code."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(path.read_text())["cells"]]
    parts = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells]
    return "\n\n".join([parts[0], f"*[The notebook]({path.name}) runs as it is.*", *parts[1:]]) + "\n"


# --- every configuration key ------------------------------------------------------------------------------------------


class Key(typing.NamedTuple):
    name: str
    values: str
    default: str
    meaning: str


#: Where a field of the schema has no description of its own.
MEANINGS = {
    "kind": "what is trained",
    "recipe": "fills in what is not said: best, standard, paper or original",
    "seed": "of weights and the order of batches",
    "data.labels": "md17: the original labels of an rMD17 file",
    "data.force_sign": "-1 for a file that holds gradients",
    "data.train": "frames to train on; none: all that are left",
    "data.validation": "frames that choose the weights to keep",
    "data.test": "frames to test on, or a file; none: all that are left",
    "data.split_seed": "of a random split",
    "model.name": "a network, file.py:Class, or an entry point",
    "model.preset": "sizes: for one or two cores, or the paper's",
    "model.fidelity": "what the paper says, or what its scripts compute",
    "model.normalization": "keep normalization layers",
    "scale.references": "energies that are removed before training, in float64",
    "scale.unit": "the constant that all labels are divided by",
    "loss.energy_per_atom": "divide energy errors by the number of atoms",
    "loss.weighting": "how the weights of the terms change in training",
    "loss.weighting_options": "arguments of the weighting",
    "loss.weights": "weight by term or kind of term",
    "loss.norm": "squared, absolute or Huber errors",
    "problem.fidelity": "right physics, or as the paper's scripts pose it",
    "problem.sample": "number of the sample in a reference file",
    "network.width": "neurons of a hidden layer",
    "network.depth": "hidden layers",
    "network.activation": "any name of dcnn.activations",
    "network.initialisation": "of the weights; moments: dcnn.activations.init_",
    "network.batch_norm": "BatchNorm, as in the paper's comparison",
    "network.random_features_scale": "standard deviation of their frequencies",
    "points.interior": "points of the equations",
    "points.boundary": "points on the walls",
    "points.initial": "points at the start",
    "points.sampler": "how points are drawn",
    "steps_per_epoch": "steps between two rows of metrics.csv",
    "training.epochs": "budget: passes over the training data",
    "training.steps": "budget: updates of the weights",
    "training.minutes": "budget: time",
    "training.stages.N.optimizer": "of this stage",
    "training.stages.N.learning_rate": "its peak",
    "training.stages.N.schedule": "of the learning rate within the stage",
    "training.stages.N.weight_decay": "of the optimiser",
    "training.stages.N.clip_norm": "largest norm of a gradient",
    "training.stages.N.dtype": "precision of the stage",
    "training.select": "which weights are kept: best validation, or last",
    "training.devices": "processes that train together",
    "training.strategy": "how they share the work",
    "training.accelerator": "where it trains",
    "training.threads": "of the processor; none: torch decides",
    "training.loggers": "where metrics go besides metrics.csv",
}


def configuration() -> str:
    """The page of all keys, from the schema that checks them."""
    from dcnn.atoms.config import AtomsConfig
    from dcnn.pde.config import PdeConfig
    from dcnn.sobolev.config import SobolevConfig
    from dcnn.train.config import Training

    text = [
        "# Every configuration key",
        "`dcnn train TARGET key=value …` and `config.yaml` have the same keys; a key that does not exist is an error. "
        "Defaults are those of the schema: the recipe (`best` unless you say otherwise) fills in others, and the "
        "`config.yaml` of a run folder shows all that were used. Entries of a list are numbered: "
        "`training.stages.0.learning_rate=1e-3`.",
    ]
    kinds = {"A potential": AtomsConfig, "A PDE network": PdeConfig, "A network on labelled points": SobolevConfig}
    for title, model in kinds.items():
        text += [f"## {title}", _table(key for key in keys(model) if not key.name.startswith("training"))]
    text += ["## Training, of all", _table(keys(Training, "training."))]
    return "\n\n".join(text) + "\n"


def keys(kind: Any, prefix: str = "") -> list[Key]:
    """Every leaf below a pydantic model or a dataclass, in order."""
    found: list[Key] = []
    for name, hint, default, meaning in _entries(kind):
        inner = _section(hint)
        if inner is not None:
            many = typing.get_origin(hint) is tuple
            found += keys(inner, f"{prefix}{name}.{'N.' if many else ''}")
        else:
            found.append(Key(prefix + name, _values(hint), _shown(default), meaning or _meaning(prefix + name)))
    return found


def _meaning(name: str) -> str:
    if name.endswith((".weight", ".norm")) and name.startswith("loss."):
        return f"{'weight' if name.endswith('weight') else 'norm'} of the {name.split('.')[1]} term"
    return MEANINGS.get(name, "")


def _entries(kind: Any) -> list[tuple[str, Any, Any, str]]:
    hints = typing.get_type_hints(kind)
    if issubclass(kind, BaseModel):
        fields: dict[str, FieldInfo] = kind.model_fields
        return [(n, hints[n], f.get_default(call_default_factory=True), f.description or "") for n, f in fields.items()]
    defaults = {
        f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        for f in dataclasses.fields(kind)
    }
    return [
        (f.name, hints[f.name], defaults[f.name], f.metadata.get("description", "")) for f in dataclasses.fields(kind)
    ]


def _section(hint: Any) -> Any:
    """The model or dataclass that a field holds (one, or a tuple of them)."""
    if typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    return hint if isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)) else None


def _values(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is typing.Annotated:
        return _values(inner[0])
    if origin in (types.UnionType, typing.Union):
        return ", ".join(_values(part) for part in inner)
    if origin is tuple:
        return f"list of {_values(inner[0])}"
    if hint is type(None):
        return "none"
    words = {str: "text", int: "whole number", float: "number", bool: "true, false"}
    return words.get(hint, "values by name" if origin is dict else getattr(hint, "__name__", str(hint)))


def _shown(value: Any) -> str:
    text = {None: "none", True: "true", False: "false"}.get(value) if isinstance(value, bool | None) else None
    return f"`{text or (value if value not in ((), {}, '') else 'empty')}`"


def _table(rows: typing.Iterable[Key]) -> str:
    lines = ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join(lines + [f"| `{k.name}` | {k.values} | {k.default} | {k.meaning} |" for k in rows])
