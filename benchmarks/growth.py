"""A training step on one MgO crystal of more and more atoms: CPU seconds and memory, each size in its own process.

python benchmarks/growth.py --model schnet --atoms 216 1000 4096
python benchmarks/growth.py --atoms 1000 --plain             with a row for every edge, as for few pairs
python benchmarks/growth.py --atoms 10648 --no-step         energies and forces alone
MALLOC_MMAP_THRESHOLD_=16777216 python benchmarks/growth.py   freed memory goes back to the system
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
from ase.build import bulk

SIZES = {216: 3, 1000: 5, 4096: 8, 10648: 11}  # atoms: cells of eight atoms along an edge


def step(model: str, atoms: int, plain: bool, no_step: bool) -> dict[str, float]:
    """The second of two steps (the first one warms up), and the memory beyond that before them."""
    import torch

    from dcnn.atoms import Structure, build, collate, convolution, energy_and_forces
    from dcnn.train.cpu import prepare_cpu

    if plain:
        convolution.PIECE = 10**12
    torch.manual_seed(0)
    crystal = bulk("MgO", "rocksalt", a=4.21, cubic=True) * ([SIZES[atoms]] * 3)
    crystal.rattle(0.05, seed=0)
    forces = np.random.default_rng(0).standard_normal((atoms, 3))
    network = build(model).train()
    structure = Structure(crystal.numbers, crystal.positions, crystal.cell.array, energy=0.0, forces=forces)
    batch = collate([structure], float(network.cutoff), torch.float32)
    prepare_cpu()  # as every run does
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        began = time.process_time()
        with torch.set_grad_enabled(not no_step):
            energy, found = energy_and_forces(network, batch)
        if not no_step:
            loss = (energy / atoms).square().mean() + (found - batch.forces).square().mean()
            loss.backward()
            network.zero_grad()
        used = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes = {"mb_atom": (peak - before) / 1024 / atoms, "gb": peak / 1024**2}
    return {"atoms": atoms, "pairs": len(batch.pair_i), "cpu_s": used, **sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="schnet")
    parser.add_argument("--atoms", type=int, nargs="+", default=[216, 1000, 4096], choices=list(SIZES))
    parser.add_argument("--plain", action="store_true", help="no convolution in pieces")
    parser.add_argument("--no-step", action="store_true", help="energies and forces alone")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(step(asked.model, asked.atoms[0], asked.plain, asked.no_step)))
        return
    rows = []
    for atoms in asked.atoms:
        flags = ["--plain"] * asked.plain + ["--no-step"] * asked.no_step
        command = [sys.executable, __file__, "--model", asked.model, "--atoms", str(atoms), "--one", *flags]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        row = (
            "{atoms:6d} atoms {pairs:8d} pairs {cpu_s:8.3f} CPU s a step {mb_atom:6.3f} MB an atom {gb:6.2f} GB in all"
        )
        print(row.format(**rows[-1]))
    if len(rows) > 1:
        times = np.log([row["cpu_s"] for row in rows])
        print(f"exponent {np.polyfit(np.log([row['atoms'] for row in rows]), times, 1)[0]:.3f}")


if __name__ == "__main__":
    main()
