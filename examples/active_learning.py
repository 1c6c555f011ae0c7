"""A closed loop: a committee runs hot ethanol, stops where it disagrees, and tblite (GFN2-xTB) labels such frames.

pip install 'dcnn[all,xtb]'
python examples/active_learning.py            # a few CPU minutes; figures in results/potentials-at-work.md
"""

import argparse
from pathlib import Path

import numpy as np
from tblite.ase import TBLite

from dcnn.atoms import Calculator, Dataset, Potential, Structure, demo_dataset, write
from dcnn.atoms.dynamics import simulate
from dcnn.atoms.selection import select
from dcnn.atoms.trained_range import OutsideRangeError
from dcnn.results import fit_committee

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--start", type=int, default=40, help="labelled frames to begin with, at 500 K")
parser.add_argument("--add", type=int, default=20, help="frames that are labelled in every round")
parser.add_argument("--steps", type=int, default=1500, help="training steps of a member")
parser.add_argument("--members", type=int, default=3)
parser.add_argument("--paths", type=int, default=6, help="trajectories a round")
parser.add_argument("--temperature", type=float, default=900.0, help="K")
parser.add_argument("-o", "--output", type=Path, default=Path("runs/active-learning"))
options = parser.parse_args()


def labelled(atoms):
    """One more call of the engine."""
    atoms = atoms.copy()
    atoms.calc = TBLite(method="GFN2-xTB", verbosity=0)
    atoms.get_forces()
    return Structure.from_ase(atoms)


def explored(potential, limit, number):
    """Frames of hot trajectories, each until the committee disagrees by more than `limit` eV/Å or leaves its range."""
    found, lengths = [], []
    for path in range(options.paths):
        atoms = demo_dataset()[50 * path].to_ase()
        atoms.calc = Calculator(potential)
        try:
            for _ in range(40):
                more = {"temperature": options.temperature, "seed": 100 * number + path}
                simulate(atoms, 10, ensemble="nvt", stop_uncertainty=limit, **more)
                found.append(Structure(atoms.numbers, atoms.positions.copy()))
            lengths.append(400)
        except OutsideRangeError as stop:
            found.append(Structure(atoms.numbers, atoms.positions.copy()))
            lengths.append(10 * (len(found) - sum(1 + n // 10 for n in lengths)))
            print(f"   stopped: {stop}"[:110])
    return found, lengths


hot = demo_dataset()[0].to_ase()  # a test of what is asked for: the engine's own dynamics at this temperature
hot.calc = TBLite(method="GFN2-xTB", verbosity=0)
test = []
for number in range(40):
    simulate(hot, 25, ensemble="nvt", temperature=options.temperature, timestep=1.0, seed=number)
    test.append(labelled(hot))
frames = list(demo_dataset()[np.arange(0, 2000, 2000 // options.start)[: options.start]].to_units("eV", "Ang"))
for number in range(options.rounds + 1):
    file = options.output / f"round-{number}.traj"
    file.parent.mkdir(parents=True, exist_ok=True)
    write(Dataset(frames, "eV"), file)
    fit_committee(
        {
            "data": {"path": str(file), "train": len(frames) - 8, "validation": 4, "test": 4},
            "training": {"steps": options.steps, "clock": "cpu", "threads": 1},
        },
        options.output / f"committee-{number}",
        options.members,
    )
    committee = Potential.load(options.output / f"committee-{number}")
    errors = committee.evaluate(test)
    print(
        f"round {number}: {len(frames)} frames, force MAE {1e3 * errors['force_mae_eV_A']:.0f} meV/Å at "
        f"{options.temperature:.0f} K, disagreement {1e3 * errors['force_std_eV_A']:.0f} meV/Å, "
        f"{errors['outside']} of {len(test)} test frames outside", flush=True,
    )  # fmt: skip
    if number == options.rounds:
        break
    pool, lengths = explored(committee, 1.0, number)
    print(f"   {len(pool)} frames of trajectories of {lengths} steps", flush=True)
    chosen, _ = select(committee, pool, min(options.add, len(pool)), known=frames)
    frames += [labelled(pool[n].to_ase()) for n in chosen]
