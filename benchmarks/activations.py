"""Which activation, where the rest is done right: two Sobolev examples, three equations, two potentials.

python benchmarks/activations.py                                 the Sobolev examples, in runs/activations
python benchmarks/activations.py --cases advection compressible --seeds 0 1 2
python benchmarks/activations.py --cases schnet gemnet --seeds 0 1 --files D      D: the folder of rMD17 files

All weights are drawn by `init_`; potentials begin as published. "last": in the last hidden layer alone, SiLU in the
others; "values": trained without derivative labels. Compared with SiLU by Welch's interval. What is there is not
trained again.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from variants import Errors, Variants

import dcnn
from dcnn.activations import get, init_

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

SOBOLEV = ("options", "sobolev")
PROBLEMS = ("advection", "compressible", "diffusion_reaction")
POTENTIALS = ("schnet", "gemnet")
INTEGRATED = ("irelu", "integrated_silu", "integrated_softplus", "integrated_tanh")
EVERYWHERE = ("silu", "tanh", "relu", *INTEGRATED)
VARIANTS = (*EVERYWHERE, *(f"{name} last" for name in ("tanh", *INTEGRATED)), "silu values", "relu values")
STEPS = 2000
MINUTES = {**dict.fromkeys(PROBLEMS, 1.6), **dict.fromkeys(POTENTIALS, 5.0)}


def mlp(inputs: int, variant: str) -> nn.Sequential:
    """Four hidden layers of 64; the activation of the variant in all of them or in the last."""
    name, _, where = variant.partition(" ")
    layers: list[nn.Module] = []
    for number, (a, b) in enumerate(pairwise([inputs, 64, 64, 64, 64])):
        layers += [nn.Linear(a, b), get(name if where != "last" or number == 3 else "silu")]
    return nn.Sequential(*layers, nn.Linear(64, 1))


def labelled(case: str) -> tuple[Tensor, dict[str, Tensor], Any]:
    """Points, values and gradients to train on, and those to test on."""
    if case == "options":
        import options

        return *options.points(640, 0), options.points(2000, 1)
    import sobolev

    def points(count: int, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
        x = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
        gradient = dcnn.derivatives.gradient(sobolev.potential, x, create_graph=False)
        return x, {"": sobolev.potential(x), "grad": gradient}

    return *points(320, 0), points(2000, 1)


def train(files: Path | None, case: str, variant: str, seed: int, folder: Path) -> Errors:
    """Test errors by name, None of a run that diverged."""
    name, _, where = variant.partition(" ")
    common: dict[str, Any] = {"seed": seed}
    training = {"clock": "cpu", "threads": 1}
    if case in SOBOLEV:
        x, labels, test = labelled(case)
        torch.manual_seed(seed)
        net = mlp(x.shape[1], variant)
        init_(net, ((x - x.mean(0)) / x.std(0)).float())
        own = {"weights": {"grad": 0.0} if where == "values" else {}, "training": {"threads": 1, "step": "traced"}}
        run = dcnn.fit(net, folder, x=x, labels=labels, test=test, settings=own, steps=STEPS, **common)
    elif case in PROBLEMS:
        own = {"network": {"activation": name, "initialisation": "moments"}, "training": training}
        run = dcnn.fit(case, folder, settings=own, minutes=MINUTES[case], **common)
    else:
        if files is None:
            raise SystemExit(f"{case}: needs --files, the folder of the rMD17 files")
        frames, test = (str(files / f"rmd17_ethanol_{part}_01.npz") for part in ("train", "test"))
        own = {"model": {"name": case, "activation": name}, "training": training}
        run = dcnn.fit(frames, folder, test=test, settings=own, minutes=MINUTES[case], **common)
    wanted = ("rmse_value", "rmse_grad", "nrmse", "force_mae_kcal_mol_A", "energy_mae_kcal_mol")
    return {error: run.test[error] for error in wanted if error in run.test}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, help="folder of the rMD17 files, for potentials")
    parser.add_argument("--out", type=Path, default=Path("runs/activations"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--cases", nargs="+", default=SOBOLEV, choices=[*SOBOLEV, *PROBLEMS, *POTENTIALS])
    asked = parser.parse_args()
    for case in asked.cases:
        variants = VARIANTS if case in SOBOLEV else EVERYWHERE
        grid = Variants(asked.out, [case], variants, asked.seeds, f"{MINUTES.get(case, STEPS):g}")
        grid.run(partial(train, asked.files))
        grid.print_tables()


if __name__ == "__main__":
    main()
