"""`dcnn.compare`: the same network, data and budget under several recipes and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape
from rich.console import Console

from dcnn.errors import InputError, unknown
from dcnn.grid import engine
from dcnn.grid.cells import write_json
from dcnn.grid.comparison import budget_words, cells_of, recipes_for
from dcnn.grid.store import local_copy
from dcnn.progress import watching
from dcnn.report import write_rows_page
from dcnn.results.statistics import ResultRow, summarise


@dataclass(frozen=True)
class Comparison:
    """Mean, spread and verdict of every recipe (`rows`), all `runs`, and where the page is."""

    title: str
    rows: list[ResultRow]
    runs: list[dict[str, Any]]
    page: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"rows": [row.to_dict() for row in self.rows], "runs": self.runs}

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        metrics = [cell.metric.label for cell in self.rows[0].cells]
        lines = [["recipe", *metrics, "runs"]]
        for row in self.rows:
            words = [f"{c.stat} {c.verdict.text if c.verdict else ''}" if c.stat else "–" for c in row.cells]
            lines.append([" ".join(str(v) for v in row.labels.values()), *words, row.count])
        table = "".join(f"<tr>{''.join(f'<td>{escape(word)}</td>' for word in line)}</tr>" for line in lines)
        return f"<b>{escape(self.title)}</b><table>{table}</table>"


def compare(
    target: str,
    recipes: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    *,
    epochs: int | None = None,
    minutes: float | None = None,
    seeds: int = 3,
    reference: str | None = None,
    paired: bool = False,
    overrides: Sequence[str] = (),
    folder: str | Path = "runs/compare",
    on: str = "local",
    jobs: int | None = None,
    console: Console | None = None,
    command: str | None = None,
) -> Comparison:
    """Trains every recipe × model × seed in `folder` and says what differs beyond the spread.

    target: a data file, a configuration, the name of a problem or "demo". epochs, minutes: the budget of every run.
    reference: the recipe to compare with; standard, else original, else the best. paired: run by run of the same seed.
    overrides: "key=value" for every run. Finished runs of the same settings and data in `folder` are kept. on, jobs:
    see :func:`dcnn.grid.engine.run`. console: for the progress bar, stderr if not given. command: shown on the page.
    """
    engine.check(on)
    words = budget_words(overrides, epochs, minutes)
    names = list(recipes) if recipes is not None else list(recipes_for(target, words))
    if reference is not None and reference not in names:
        raise unknown("reference, which is not among the recipes,", reference, names)
    if paired and seeds < 2:
        raise InputError("--paired: one seed has no spread; give --seeds 2 or more")
    cells = cells_of(target, names, models or [None], seeds, words)
    with watching(console or Console(stderr=True), len(cells)) as watch:
        runs = engine.run(cells, folder, on, jobs, watch)
    rows = summarise(runs, ("data", "model", "recipe"), reference, paired=paired)
    local, title = local_copy(folder), f"{Path(target).stem}: {', '.join(names)}"
    write_json(local / "compare.json", runs, target=target, rows=[row.to_dict() for row in rows])
    page = write_rows_page(rows, local / "compare.html", title, command=command, trust=True)
    return Comparison(title, rows, runs, engine.publish(folder, page, local / "compare.json")[0])
