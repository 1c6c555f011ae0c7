"""Milliseconds of processor time a step of molecular dynamics in ASE: `Calculator`, compiled against usual.

    python benchmarks/md_step.py FRAMES.npz [--models schnet tensornet] [--dtype float64] [--json]

Velocity Verlet of the first frame of a file, small networks with fresh weights, whose speed is that of trained ones;
one thread; the two sides take turns. Compiling is not counted: the time that it takes is printed, too.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from ase import units
from ase.md.verlet import VelocityVerlet

from dcnn import atoms
from dcnn.bench.timing import StepRatio, interleaved
from dcnn.train.cpu import cpu_clock, prepare_cpu


def dynamics(model: str, frames: str, dtype: str, compiled: bool) -> Any:
    """Velocity Verlet whose calculator is compiled, or never will be."""
    torch.manual_seed(0)
    network = atoms.build(model, activation="silu", normalization=model == "tensornet")
    calculator = atoms.Calculator(atoms.Potential(network, dtype=dtype), compiled=compiled)
    moving = atoms.load(frames).to_units("eV", "Ang")[0].to_ase()
    moving.calc = calculator
    if compiled:
        calculator.potential.repeated.scale = 0.0
        for _ in range(3):
            moving.rattle(1e-3)
            moving.get_forces()
        if not calculator.potential.repeated.ready:
            raise SystemExit(f"{model}: could not be compiled")
    return VelocityVerlet(moving, 0.5 * units.fs)


def main() -> None:
    """Prints one line a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frames")
    parser.add_argument("--models", nargs="+", default=["schnet", "tensornet"])
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    prepare_cpu()
    clock = cpu_clock()
    for model in given.models:
        began = clock()
        fast = dynamics(model, given.frames, given.dtype, compiled=True)
        seconds = clock() - began
        usual = dynamics(model, given.frames, given.dtype, compiled=False)
        sides = {"compiled": lambda d=fast: d.run(1), "usual": lambda d=usual: d.run(1)}
        times = interleaved(sides, given.rounds, "cpu")
        more = {"frames": given.frames, "dtype": given.dtype, "seconds_to_compile": round(seconds, 1)}
        found = StepRatio(model, "usual calculator", times["compiled"], times["usual"], more).to_dict()
        line = "{name}: {ours_ms} ms compiled, {peer_ms} usual, ratio {ratio} {ratio_quartiles}, compiled in {s} s"
        print(json.dumps(found) if given.json else line.format(**found, s=found["seconds_to_compile"]), flush=True)


if __name__ == "__main__":
    main()
