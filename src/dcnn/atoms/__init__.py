"""Interatomic potentials: frames of atoms in, networks that return energies out."""

import dcnn.atoms.audit_sample  # noqa: F401  (dcnn.audit takes batches of atoms)
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
