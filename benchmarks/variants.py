"""What benchmarks of variants share: runs that are kept, and tables of mean and spread against the first variant."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dcnn.results.metrics import Metric
from dcnn.results.statistics import Stat, compare

Errors = dict[str, float | None]


@dataclass(frozen=True)
class Variants:
    """Cases × variants × seeds in a folder; the first variant is what the others are compared with."""

    folder: Path
    cases: Sequence[str]
    variants: Sequence[str]
    seeds: Sequence[int]
    budget: str  # as it stands in the name of a run's folder

    def run(self, train: Callable[[str, str, int, Path], Errors]) -> None:
        """What has run is not run again. train: (case, variant, seed, folder) → test errors, None if it diverged."""
        for seed in self.seeds:
            for case in self.cases:
                for variant in self.variants:
                    folder = self._of(case, variant, seed)
                    if (folder / "errors.json").exists():
                        continue
                    shutil.rmtree(folder, ignore_errors=True)
                    with contextlib.redirect_stdout(io.StringIO()):
                        found = train(case, variant, seed, folder)
                    (folder / "errors.json").write_text(json.dumps(found))
                    print(f"{folder.name}: {found}", file=sys.stderr, flush=True)

    def print_tables(self) -> None:
        """Mean ± spread of every error over the seeds that did not diverge, and where it differs from the first."""
        for case in self.cases:
            errors = {variant: [self._read(case, variant, seed) for seed in self.seeds] for variant in self.variants}
            first = errors[self.variants[0]]
            names = list(first[0])
            print(f"\n{case}\n| variant | " + " | ".join(names) + " |\n" + "| --- " * (len(names) + 1) + "|")
            for variant, runs in errors.items():
                cells = [_cell(name, [run[name] for run in runs], [run[name] for run in first]) for name in names]
                print(f"| {variant} | " + " | ".join(cells) + " |")

    def _of(self, case: str, variant: str, seed: int) -> Path:
        return self.folder / f"{case}-{variant}-{seed}-{self.budget}".replace(" ", "_")

    def _read(self, case: str, variant: str, seed: int) -> Errors:
        return dict(json.loads((self._of(case, variant, seed) / "errors.json").read_text()))


def _cell(name: str, found: Sequence[float | None], first: Sequence[float | None]) -> str:
    mine, theirs = (Stat(tuple(value for value in each if value is not None)) for each in (found, first))
    diverged = f" ({list(found).count(None)} diverged)" if None in found else ""
    if not mine.values or not theirs.values:
        return diverged.strip()
    verdict = compare(Metric(name, name), mine, theirs)
    mark = f" **{verdict.direction}**" if verdict.beyond else ""
    return f"{mine}{mark}{diverged}"
