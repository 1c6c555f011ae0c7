"""Interatomic potentials: frames of atoms in, networks that return energies out."""

from dcnn.atoms.batching import Batcher, batch, collate
from dcnn.atoms.structures import AtomsBatch, Structure, Triplets

__all__ = ["AtomsBatch", "Batcher", "Structure", "Triplets", "batch", "collate"]
