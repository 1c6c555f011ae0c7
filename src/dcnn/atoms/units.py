"""Units of energy and length, as names that travel with a dataset; the numbers come from ``ase.units``."""

from __future__ import annotations

from dataclasses import dataclass

from ase import units as ase_units

from dcnn.errors import unknown

ENERGY = {  # in eV
    "kcal/mol": ase_units.kcal / ase_units.mol,
    "kJ/mol": ase_units.kJ / ase_units.mol,
    "eV": 1.0,
    "meV": 1e-3,
    "Hartree": ase_units.Hartree,
}
LENGTH = {"Ang": 1.0, "Bohr": ase_units.Bohr}  # in Å

_ALIASES = {
    "kcal": "kcal/mol",
    "kcal mol-1": "kcal/mol",
    "kj": "kJ/mol",
    "ha": "Hartree",
    "eh": "Hartree",
    "a.u.": "Hartree",
    "å": "Ang",
    "a": "Ang",
    "angstrom": "Ang",
    "ångström": "Ang",
    "a0": "Bohr",
}


def _name(kind: str, text: str, table: dict[str, float]) -> str:
    known = {name.lower(): name for name in table}
    known |= {alias: name for alias, name in _ALIASES.items() if name in table}
    found = known.get(str(text).strip().lower())
    if found is None:
        raise unknown(f"unit of {kind}", text, table)
    return found


@dataclass(frozen=True)
class Units:
    """An energy unit (kcal/mol, kJ/mol, eV, meV, Hartree) and a length unit (Ang, Bohr).

    Forces are energy / length, stress is energy / length³.

    >>> Units("kcal/mol").energy_factor(Units("eV"))  # eV per kcal/mol
    0.04336410390059322
    >>> Units.parse("Hartree, Bohr")
    Units(energy='Hartree', length='Bohr')
    """

    energy: str = "eV"
    length: str = "Ang"

    def __post_init__(self) -> None:
        object.__setattr__(self, "energy", _name("energy", self.energy, ENERGY))
        object.__setattr__(self, "length", _name("length", self.length, LENGTH))

    @classmethod
    def parse(cls, text: str | Units) -> Units:
        """Units from ``"kcal/mol"`` (lengths in Å) or ``"Hartree, Bohr"``; units pass through."""
        if isinstance(text, Units):
            return text
        return cls(*(part.strip() for part in text.split(",")[:2]))

    def energy_factor(self, target: Units) -> float:
        """What an energy in these units is multiplied by to be in the target's."""
        return ENERGY[self.energy] / ENERGY[target.energy]

    def length_factor(self, target: Units) -> float:
        """What a length in these units is multiplied by to be in the target's."""
        return LENGTH[self.length] / LENGTH[target.length]

    def force_factor(self, target: Units) -> float:
        """What a force in these units is multiplied by to be in the target's."""
        return self.energy_factor(target) / self.length_factor(target)

    def stress_factor(self, target: Units) -> float:
        """What a stress (energy / length³) in these units is multiplied by to be in the target's."""
        return self.energy_factor(target) / self.length_factor(target) ** 3

    @property
    def force(self) -> str:
        """Name of the force unit, e.g. ``kcal/mol/Ang``."""
        return f"{self.energy}/{self.length}"
