"""Units against ase.units and against each other."""

from __future__ import annotations

import pytest
from ase import units as ase_units

from dcnn.atoms import Units
from dcnn.errors import InputError

EV = Units("eV")


@pytest.mark.parametrize(
    ("name", "in_ev"),
    [
        ("kcal/mol", ase_units.kcal / ase_units.mol),
        ("kJ/mol", ase_units.kJ / ase_units.mol),
        ("Hartree", ase_units.Hartree),
        ("meV", 0.001),
        ("HA", ase_units.Hartree),
        ("kcal", ase_units.kcal / ase_units.mol),
    ],
)
def test_energies(name, in_ev):
    assert Units(name).energy_factor(EV) == pytest.approx(in_ev, rel=1e-15)
    assert EV.energy_factor(Units(name)) == pytest.approx(1 / in_ev, rel=1e-15)


@pytest.mark.parametrize("length", ["Bohr", "a0", "bohr"])
def test_lengths_forces_and_stress(length):
    atomic = Units("Hartree", length)
    assert atomic.length_factor(EV) == ase_units.Bohr
    assert atomic.force_factor(EV) == pytest.approx(ase_units.Hartree / ase_units.Bohr, rel=1e-15)
    assert atomic.stress_factor(EV) == pytest.approx(ase_units.Hartree / ase_units.Bohr**3, rel=1e-15)
    assert atomic.force == "Hartree/Bohr"


def test_parsing():
    assert Units.parse("kcal/mol") == Units("kcal/mol", "Ang")
    assert Units.parse(" hartree ,bohr") == Units("Hartree", "Bohr")
    assert Units.parse(EV) is EV
    assert Units("eV", "Å") == Units("eV", "angstrom") == EV


@pytest.mark.parametrize(("wrong", "hint"), [("kcal/mole", "kcal/mol"), ("eV, Bor", "Bohr")])
def test_unknown_units_are_named_with_the_closest(wrong, hint):
    with pytest.raises(InputError, match=f"unknown unit of .* did you mean '{hint}'"):
        Units.parse(wrong)
