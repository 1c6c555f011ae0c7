"""Interatomic potentials: frames of atoms in, networks that return energies out."""

from dcnn.atoms.batching import Batcher, batch, collate
from dcnn.atoms.data import load
from dcnn.atoms.dataset import Dataset, join
from dcnn.atoms.structures import AtomsBatch, Structure, Triplets
from dcnn.atoms.units import Units

__all__ = [
    "AtomsBatch",
    "Batcher",
    "Dataset",
    "Structure",
    "Triplets",
    "Units",
    "batch",
    "collate",
    "join",
    "load",
]
