"""New labels from real physics, offline: Langevin dynamics on GFN2-xTB (molecules) or CHGNet (crystals).

The result is an MD17 file (``E F R z``, kcal/mol and Å). Work in progress is kept in ``<output>.part``: a
run that was stopped goes on from there, and the output appears only when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.atoms.dataset import Dataset
from dcnn.atoms.units import Units
from dcnn.errors import InputError, unknown
from dcnn.safe_files import written_beside

NAMES = {  # everyday names of molecules in ASE's collection
    "acetic acid": "CH3COOH",
    "ammonia": "NH3",
    "benzene": "C6H6",
    "ethane": "C2H6",
    "ethanol": "CH3CH2OH",
    "ethene": "C2H4",
    "methane": "CH4",
    "methanol": "CH3OH",
    "pyridine": "C5H5N",
    "water": "H2O",
}
THEORY = {"xtb": "GFN2-xTB (tblite)", "chgnet": "CHGNet"}
_EV = Units("eV").energy_factor(Units("kcal/mol"))  # kcal/mol per eV
_SAVE_EVERY = 100  # frames
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Recipe:
    """What decides the frames; a stopped run goes on only under the same recipe.

    ``every`` steps of ``timestep_fs`` lie between two frames, after ``equilibrate`` steps that are thrown away.
    ``friction_per_fs`` is that of the Langevin thermostat.
    """

    temperature: float = 500.0  # K
    engine: str = "xtb"
    every: int = 10
    equilibrate: int = 2000
    timestep_fs: float = 0.5
    friction_per_fs: float = 0.02
    offset: str | None = None
    seed: int = 0


def starting_point(molecule: str) -> Any:
    """``ase.Atoms`` of a structure file, a molecule's everyday name or one of ASE's names (``CH3CH2OH``)."""
    import ase.build
    import ase.io
    from ase.collections import g2

    if Path(molecule).suffix:
        if not Path(molecule).exists():
            raise InputError(f"{molecule}: no such file")
        try:
            return ase.io.read(molecule)
        except Exception as error:  # ASE's parsers raise whatever they trip over
            raise InputError(f"{molecule}: ASE cannot read it ({type(error).__name__}: {error})") from None
    name = NAMES.get(molecule.lower().replace("_", " "), molecule)
    if name not in g2.names:
        raise unknown("molecule (or give a structure file)", molecule, [*NAMES, *g2.names])
    return ase.build.molecule(name)


def calculator(engine: str) -> Any:
    """The ASE calculator of an engine; says what to install where it is missing."""
    if engine not in THEORY:
        raise unknown("engine", engine, THEORY)
    try:
        if engine == "xtb":
            from tblite.ase import TBLite

            return TBLite(method="GFN2-xTB", verbosity=0)
        from chgnet.model.dynamics import CHGNetCalculator

        return CHGNetCalculator(use_device="cpu")
    except ImportError as error:
        package = {"xtb": "tblite", "chgnet": "chgnet"}[engine]
        raise InputError(f"engine {engine!r} needs {package}: pip install 'dcnn[{engine}]' ({error})") from None


def pbe_energy(atoms: Any) -> float:
    """Total PBE/def2-TZVP energy of a molecule in eV, by pyscf."""
    try:
        from pyscf import dft, gto
    except ImportError:
        raise InputError("offset 'pbe' needs pyscf: pip install 'dcnn[dft]'") from None
    geometry = list(zip(atoms.get_chemical_symbols(), atoms.positions.tolist(), strict=True))
    field = dft.RKS(gto.M(atom=geometry, basis="def2-tzvp", verbose=0)).density_fit()
    field.xc = "pbe"
    energy = field.kernel()
    if not field.converged:
        raise InputError("the PBE single point did not converge; leave the offset out")
    return float(energy) * Units("Hartree").energy_factor(Units("eV"))


class _Work:
    """Dynamics and the frames so far; :meth:`save` and :meth:`resume` put both into the part file."""

    def __init__(self, atoms: Any, recipe: Recipe, part: Path) -> None:
        from ase import units
        from ase.md.langevin import Langevin

        self.atoms, self.recipe, self.part = atoms, recipe, part
        self.random = np.random.default_rng(recipe.seed)
        self.frames: dict[str, list[Any]] = {"R": [], "E": [], "F": [], "T": []}
        if atoms.pbc.any():
            self.frames |= {"cell": [], "stress": []}
        self.offset = 0.0  # eV
        # with the centre of mass held (ASE's default) small molecules run too hot
        self.dynamics = Langevin(
            atoms,
            recipe.timestep_fs * units.fs,
            temperature_K=recipe.temperature,
            friction=recipe.friction_per_fs / units.fs,
            fixcm=False,
            rng=self.random,
        )

    def start(self) -> None:
        """Relaxes, adds the offset, draws velocities and equilibrates."""
        from ase.optimize import BFGS
        from ase.units import kB

        with BFGS(self.atoms, logfile=None) as relaxation:
            relaxation.run(fmax=0.05, steps=200)
        if self.recipe.offset == "pbe":
            self.offset = pbe_energy(self.atoms) - float(self.atoms.get_potential_energy())
        spread = np.sqrt(self.atoms.get_masses() * kB * self.recipe.temperature)  # of Maxwell and Boltzmann
        self.atoms.set_momenta(self.random.standard_normal((len(spread), 3)) * spread[:, None])
        self.dynamics.run(self.recipe.equilibrate)
        self.save()

    def frame(self) -> None:
        """Runs on to the next frame and keeps it."""
        self.dynamics.run(self.recipe.every)
        positions = self.atoms.positions
        if not self.atoms.pbc.any():
            positions = positions - self.atoms.get_center_of_mass()
        kept = {
            "R": positions.astype(np.float32),
            "E": (self.atoms.get_potential_energy() + self.offset) * _EV,
            "F": (self.atoms.get_forces() * _EV).astype(np.float32),
            "T": self.atoms.get_temperature(),
        }
        if "stress" in self.frames:
            kept["cell"] = self.atoms.cell.array.astype(np.float32)
            kept["stress"] = (self.atoms.get_stress(voigt=False) * _EV).astype(np.float32)
        if not np.isfinite(kept["E"]) or not np.isfinite(kept["F"]).all():
            raise InputError(f"frame {len(self)}: the engine returned NaN; lower the temperature or the timestep")
        for key, value in kept.items():
            self.frames[key].append(value)

    def __len__(self) -> int:
        return len(self.frames["E"])

    def arrays(self) -> dict[str, np.ndarray]:
        return {key: np.stack(values) for key, values in self.frames.items() if values}

    def save(self) -> None:
        state = {"recipe": asdict(self.recipe), "random": self.random.bit_generator.state, "offset": self.offset}
        arrays: dict[str, Any] = {
            **self.arrays(),
            "z": self.atoms.numbers,
            "positions": self.atoms.positions,
            "momenta": self.atoms.get_momenta(),
            "state": json.dumps(state),
        }
        with written_beside(self.part) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)

    def resume(self) -> None:
        with np.load(self.part, allow_pickle=False) as file:
            stored = {key: file[key] for key in file.files}
        state = json.loads(str(stored["state"]))
        if state["recipe"] != asdict(self.recipe) or not np.array_equal(stored["z"], self.atoms.numbers):
            raise InputError(
                f"{self.part}: was begun with other settings or another molecule ({state['recipe']}); repeat "
                "those, or delete the file to start again"
            )
        self.atoms.positions[:] = stored["positions"]
        self.atoms.set_momenta(stored["momenta"])
        self.random.bit_generator.state = state["random"]
        self.offset = state["offset"]
        for key in self.frames:
            self.frames[key] = list(stored.get(key, ()))


def make(
    molecule: str,
    frames: int,
    output: str | Path,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> Path:
    """Runs dynamics and writes ``frames`` labelled frames as an MD17 file; goes on where a stopped run ended.

    ``progress(done, total)`` is called after every frame. Crystals also get ``cell`` and ``stress``.
    """
    recipe, output = recipe or Recipe(), Path(output)
    if output.suffix != ".npz":
        raise InputError(f"{output}: data make writes .npz files; give a name that ends in .npz (convert it later)")
    if frames < 1 or recipe.temperature <= 0:
        raise InputError(f"frames ({frames}) and temperature ({recipe.temperature} K) must be positive")
    if recipe.offset not in (None, "pbe"):
        raise unknown("offset", recipe.offset, ["pbe"])
    atoms = starting_point(molecule)
    atoms.calc = calculator(recipe.engine)
    if recipe.offset and atoms.pbc.any():
        raise InputError(f"{molecule}: the PBE offset is for molecules, this is periodic; leave it out")
    work = _Work(atoms, recipe, output.with_name(output.name + ".part"))
    if work.part.exists():
        work.resume()
    else:
        work.start()
    while len(work) < frames:
        work.frame()
        if len(work) % _SAVE_EVERY == 0:
            work.save()
        if progress is not None:
            progress(len(work), frames)
    arrays: dict[str, Any] = {key: values[:frames] for key, values in work.arrays().items()}
    temperature = float(np.mean(arrays.pop("T")))
    arrays |= {"z": atoms.numbers.astype(np.uint8), "e_unit": "kcal/mol", "r_unit": "Ang"}
    arrays |= {"name": Path(molecule).stem, "theory": THEORY[recipe.engine], "temperature_K": temperature}
    with written_beside(output, shared=True) as temporary:
        np.savez_compressed(temporary, **arrays, recipe=json.dumps(asdict(recipe)))
    work.part.unlink()
    return output


def demo_dataset() -> Dataset:
    """2,000 frames of ethanol at 500 K labelled with GFN2-xTB, made by :func:`make`; kcal/mol and Å.

    >>> demo_dataset()
    Dataset('ethanol_xtb', 2000 frames, kcal/mol, Ang)
    """
    from dcnn.atoms.data.load import DEMO
    from dcnn.atoms.data.npz import read_npz

    return read_npz(DEMO)
