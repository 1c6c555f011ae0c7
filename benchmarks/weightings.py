"""What weightings of loss terms and SOAP are worth: three equations, two molecules and option prices.

python benchmarks/weightings.py D               D: the folder of rMD17 files; trains in runs/weightings, then the table
python benchmarks/weightings.py D --seeds 0     one seed; what is there is not trained again

Every variant has the same CPU minutes on one thread. Equations are trained with Adam on soft conditions, since only
there are several terms to be weighted. Compared with "fixed" by Welch's interval, as everywhere. What was found, also
of five weightings that are gone since: results/weightings.md.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from variants import Errors, Variants

import dcnn
from dcnn.losses import Schedule, weighting
from dcnn.losses.interface import Fixed

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

PROBLEMS = ("advection", "burgers", "heat")
MOLECULES = ("ethanol", "aspirin")
VARIANTS = ("fixed", "schedule", "uncertainty", "soap")
ADAM = {"optimizer": "adam", "learning_rate": 2e-3}
SOAP = {"optimizer": "soap", "learning_rate": 3e-3}
LATE = ("energy", "value", *PROBLEMS)  # terms whose weight rises; an equation is named after its problem
RAMP = 1000  # steps during which a schedule goes from its first to its last weight


def scheduled(terms: Any) -> Fixed:
    """Conditions before the equation; forces before energies (as MACE's second stage); slopes before prices."""
    late = [term for term in terms if term.name in LATE]
    if not late or len(late) == len(terms):
        raise ValueError(f"a schedule needs terms of which some come late: {[term.name for term in terms]}")
    return Fixed(
        [replace(t, weight=Schedule.cosine(0.1 * t.weight, t.weight, RAMP)) if t in late else t for t in terms]
    )


def of_variant(variant: str) -> Any:
    """What makes the weighting of the terms."""
    if variant == "schedule":
        return scheduled
    return None if variant in ("fixed", "soap") else lambda terms: weighting.get(variant, terms)


def train(minutes: float, files: Path, case: str, variant: str, seed: int, folder: Path) -> Errors:
    """Test errors by name, None of a run that diverged."""
    stage = SOAP if variant == "soap" else ADAM
    common: dict[str, Any] = {"minutes": minutes, "seed": seed, "weighting": of_variant(variant)}
    training: dict[str, Any] = {"clock": "cpu", "threads": 1, "stages": [stage]}
    if case in PROBLEMS:
        soft = {"network": {"hard": False}, "training": training}
        run = dcnn.fit(case, folder, settings=soft, **common)
    elif case in MOLECULES:
        training["stages"] = [{**stage, "warmup": 0.02, "clip_norm": 10.0}]  # of the recipe, which has SOAP
        names = [str(files / f"rmd17_{case}_{part}_01.npz") for part in ("train", "test")]
        own = {"training": training, "model": {"name": "schnet", "preset": "small"}}
        run = dcnn.fit(names[0], folder, test=names[1], settings=own, **common)
    else:
        import options

        x, labels = options.points(640, 0)
        torch.manual_seed(seed)
        net = options.network(dcnn.activations.IReLU, False)
        dcnn.activations.init_(net, ((x - x.mean(0)) / x.std(0)).float())
        training["stages"] = [{**stage, "learning_rate": 3e-3, "warmup": 0.02, "clip_norm": 10.0}]
        run = dcnn.fit(
            net, folder, x=x, labels=labels, test=options.points(2000, 1), settings={"training": training}, **common
        )
    wanted = ("nrmse", "force_mae_kcal_mol_A", "energy_mae_kcal_mol", "rmse_value", "rmse_grad")
    return {name: run.test[name] for name in wanted if name in run.test}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, help="folder of the rMD17 files")
    parser.add_argument("--out", type=Path, default=Path("runs/weightings"))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    cases = [*PROBLEMS, *MOLECULES, "options"]
    parser.add_argument("--cases", nargs="+", default=cases, choices=cases)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    asked = parser.parse_args()
    variants = ["fixed", *(variant for variant in asked.variants if variant != "fixed")]
    grid = Variants(asked.out, asked.cases, variants, asked.seeds, f"{asked.minutes:g}")
    grid.run(partial(train, asked.minutes, asked.files))
    grid.print_tables()


if __name__ == "__main__":
    main()
