"""Interatomic potentials: frames of atoms in, networks that return energies out."""

from typing import TYPE_CHECKING

from dcnn.lazy import lazy_names

if TYPE_CHECKING:
    from dcnn.atoms.atoms_batch import AtomsBatch
    from dcnn.atoms.batching import Batcher, batch, collate
    from dcnn.atoms.calculator import Calculator
    from dcnn.atoms.data import demo_dataset, load, write
    from dcnn.atoms.dataset import Dataset, join
    from dcnn.atoms.forces import energy_and_forces, energy_forces_stress
    from dcnn.atoms.models import build
    from dcnn.atoms.potential import Potential
    from dcnn.atoms.reference import from_reference
    from dcnn.atoms.structures import Structure
    from dcnn.atoms.units import Units

__all__ = [
    "AtomsBatch",
    "Batcher",
    "Calculator",
    "Dataset",
    "Potential",
    "Structure",
    "Units",
    "batch",
    "build",
    "collate",
    "demo_dataset",
    "energy_and_forces",
    "energy_forces_stress",
    "from_reference",
    "join",
    "load",
    "write",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AtomsBatch": "atoms_batch",
        "Batcher": "batching",
        "Calculator": "calculator",
        "Dataset": "dataset",
        "Potential": "potential",
        "Structure": "structures",
        "Units": "units",
        "batch": "batching",
        "build": "models",
        "collate": "batching",
        "demo_dataset": "data",
        "energy_and_forces": "forces",
        "energy_forces_stress": "forces",
        "from_reference": "reference",
        "join": "dataset",
        "load": "data",
        "write": "data",
        **{name: name for name in ("bases", "data", "dynamics", "models", "splits", "units")},
    },
    {"": "atoms"},
)
