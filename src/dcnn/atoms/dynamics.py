"""Molecular dynamics through ASE, with what tells whether a potential can be trusted with it: the energy drift."""

# ruff: noqa: N815  units are written as they are: K, eV, meV
from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import units
from ase.constraints import FixBondLengths, FixInternals, FixLinearTriatomic
from ase.md.langevin import Langevin
from ase.md.nose_hoover_chain import IsotropicMTKNPT
from ase.md.velocitydistribution import Stationary
from ase.md.verlet import VelocityVerlet

from dcnn.atoms.trained_range import OutsideRangeError
from dcnn.errors import DcnnError, InputError, unknown

TRAJECTORIES = (".traj", ".xyz", ".extxyz")  # formats that grow frame by frame
ENSEMBLES = ("nve", "nvt", "npt")
TURNED_EV = 1e-4  # change of energy an atom, when a molecule is turned, that is more than rounding
EXPLODED_K = 1e5  # no molecule is that hot


@dataclass(frozen=True)
class Simulation:
    """What came out of a run. ``time_ps``, ``total_eV`` and ``temperatures_K`` (M,) are its course, step by step.

    ``drift_meV_atom_ps`` is the slope of a straight line fitted to the total energy, ``fluctuation_meV_atom`` the
    root mean square around that line. With a thermostat the total energy is not conserved; both are None then.
    """

    ensemble: str
    atoms: int
    steps: int
    timestep_fs: float
    temperature_K: float
    temperature_std_K: float
    drift_meV_atom_ps: float | None
    fluctuation_meV_atom: float | None
    ms_per_step: float
    time_ps: np.ndarray
    total_eV: np.ndarray
    temperatures_K: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Everything but the course, as plain values."""
        return {name: value for name, value in vars(self).items() if not isinstance(value, np.ndarray)}


def simulate(
    atoms: Any,
    steps: int,
    *,
    ensemble: str = "nve",
    temperature: float = 300.0,
    timestep: float = 0.5,
    friction: float = 0.01,
    equilibrate: int = 0,
    trajectory: str | Path | None = None,
    every: int = 10,
    seed: int = 0,
    pressure: float = 0.0,
    stop_uncertainty: float | None = None,
    last_frame: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Moves ``atoms`` (with a calculator) by ``steps`` of ``timestep`` fs and reports drift and temperature.

    ensemble: "nve" (velocity Verlet), "nvt" (Langevin with ``friction`` in 1/fs at ``temperature`` K) or, for crystals,
    "npt" (isotropic Martyna–Tobias–Klein at ``pressure`` GPa, with damping times of 100 and 1000 steps). Atoms at
    rest get velocities drawn at ``temperature``; those that move keep theirs. Constraints hold, and the degrees of
    freedom they take away count neither in the velocities nor in the temperature. ``equilibrate`` steps of Langevin
    dynamics come first and are not counted. Every so many steps a frame goes to the ``trajectory`` (.traj or .xyz).
    A calculator that leaves the range it was trained on, or whose forces a committee does not agree on to
    ``stop_uncertainty`` eV/Å, ends it with an :class:`OutsideRangeError`; the atoms then go to ``last_frame``.
    ``progress(done, total)`` is called now and then.
    """
    if ensemble not in ENSEMBLES:
        raise unknown("ensemble", ensemble, ENSEMBLES)
    if ensemble == "npt" and not np.all(atoms.pbc):
        raise InputError("npt needs a structure that is periodic in all directions; take nve or nvt")
    for name, value in {"steps": steps, "timestep": timestep, "every": every, "temperature": temperature}.items():
        if value <= 0:
            raise InputError(f"{name} is {value}; it must be positive")
    random = np.random.default_rng(seed)
    conserved = ensemble == "nve"
    total_eV, temperatures_K = [], []

    def record() -> None:
        kinetic = atoms.get_kinetic_energy()
        total_eV.append(atoms.get_potential_energy() + kinetic)
        temperatures_K.append(2 * kinetic / (max(freedoms, 1) * units.kB))
        if not temperatures_K[-1] < EXPLODED_K:
            raise InputError(f"the temperature is {temperatures_K[-1]:.3g} K")
        if stop_uncertainty is not None:
            _agreed(atoms, stop_uncertainty)

    with _kept(atoms, last_frame), _trajectory(trajectory, atoms) as keep:
        _warn_if_turning_matters(atoms)
        if not atoms.get_momenta().any():
            draw_velocities(atoms, temperature, random)
        thermostat = _langevin(atoms, timestep, temperature, friction, random)
        if equilibrate:
            _run(thermostat, equilibrate)
        freedoms = _freedoms(atoms) if conserved else int(atoms.get_number_of_degrees_of_freedom())
        dynamics: Any = VelocityVerlet(atoms, timestep * units.fs) if conserved else thermostat
        if ensemble == "npt":
            step = timestep * units.fs
            dynamics = IsotropicMTKNPT(
                atoms, step, temperature, pressure * units.GPa, tdamp=100 * step, pdamp=1000 * step
            )  # fmt: skip
        dynamics.nsteps = 0
        dynamics.attach(record)
        dynamics.attach(keep, interval=every)
        if progress is not None:
            dynamics.attach(lambda: progress(dynamics.nsteps, steps), interval=max(1, steps // 200))
        began = time.perf_counter()
        _run(dynamics, steps)
        seconds = time.perf_counter() - began

    time_ps = np.arange(steps + 1) * timestep * 1e-3
    slope, offset = np.polyfit(time_ps, total_eV, 1)
    spread = np.std(total_eV - (slope * time_ps + offset))
    per_atom = 1e3 / len(atoms)  # meV an atom in one eV
    return Simulation(
        ensemble=ensemble,
        atoms=len(atoms),
        steps=steps,
        timestep_fs=timestep,
        temperature_K=float(np.mean(temperatures_K)),
        temperature_std_K=float(np.std(temperatures_K)),
        drift_meV_atom_ps=float(slope * per_atom) if conserved else None,
        fluctuation_meV_atom=float(spread * per_atom) if conserved else None,
        ms_per_step=1e3 * seconds / steps,
        time_ps=time_ps,
        total_eV=np.array(total_eV),
        temperatures_K=np.array(temperatures_K),
    )


def draw_velocities(atoms: Any, temperature: float, random: np.random.Generator) -> None:
    """Maxwell–Boltzmann velocities without total momentum or, for a molecule, total angular momentum.

    Where atoms are held in space, neither is conserved, and both stay as drawn.

    They are scaled so that the remaining degrees of freedom hold ½ kT each exactly.
    """
    spread = np.sqrt(atoms.get_masses() * units.kB * temperature)
    atoms.set_momenta(random.standard_normal((len(atoms), 3)) * spread[:, None])
    if _conserves_momentum(atoms):
        Stationary(atoms, preserve_temperature=False)
    if not atoms.pbc.any() and _conserves_momentum(atoms):
        away = atoms.positions - atoms.get_center_of_mass()
        mass = atoms.get_masses()[:, None]
        inertia = np.sum(mass * away**2) * np.eye(3) - away.T @ (mass * away)
        # ASE's ZeroRotation divides by zero for linear molecules; a pseudo-inverse does not
        turning = np.linalg.pinv(inertia, rcond=1e-10) @ np.cross(away, atoms.get_momenta()).sum(0)
        atoms.set_momenta(atoms.get_momenta() - mass * np.cross(turning, away))
    kinetic = atoms.get_kinetic_energy()
    if kinetic > 0:
        wanted = 0.5 * _freedoms(atoms) * units.kB * temperature
        atoms.set_momenta(atoms.get_momenta() * np.sqrt(wanted / kinetic))


def _conserves_momentum(atoms: Any) -> bool:
    """Whether no atom is held in space; bonds and angles that are held do not stop a molecule as a whole."""
    return all(isinstance(c, (FixBondLengths, FixInternals, FixLinearTriatomic)) for c in atoms.constraints)


def _freedoms(atoms: Any) -> int:
    """Degrees of freedom that can hold kinetic energy, given the momenta that the dynamics conserves."""
    free = int(atoms.get_number_of_degrees_of_freedom())  # without those that constraints take away
    if not _conserves_momentum(atoms):
        return free
    momenta = atoms.get_momenta()
    size = np.abs(momenta).sum() + 1e-300
    held = 3 if np.abs(momenta.sum(0)).max() < 1e-8 * size else 0
    if not atoms.pbc.any():
        extent = np.abs(atoms.positions - atoms.get_center_of_mass()).max() + 1e-300
        if np.abs(atoms.get_angular_momentum()).max() < 1e-6 * size * extent:
            held += int(np.count_nonzero(atoms.get_moments_of_inertia() > 1e-6))  # 2 for a linear molecule
    return free - held


def _langevin(atoms: Any, timestep: float, temperature: float, friction: float, random: np.random.Generator) -> Any:
    # with the centre of mass held (ASE's default) small molecules run too hot
    return Langevin(
        atoms,
        timestep * units.fs,
        temperature_K=temperature,
        friction=friction / units.fs,
        fixcm=False,
        rng=random,
    )


def _agreed(atoms: Any, limit_eV_A: float) -> None:
    spread = atoms.calc.results.get("forces_std")
    if spread is None:
        raise InputError("stop_uncertainty needs a committee (dcnn train --committee 4)")
    if spread.max() > limit_eV_A:
        error = OutsideRangeError(
            f"the committee disagrees by {spread.max():.3g} eV/Å on the force on atom {int(spread.argmax())}, "
            f"more than {limit_eV_A:g}"
        )
        error.atoms = atoms
        raise error


@contextmanager
def _kept(atoms: Any, path: str | Path | None) -> Iterator[None]:
    """Writes the atoms to a file where a run ends outside of its range."""
    try:
        yield
    except OutsideRangeError as error:
        if path is not None:
            plain = atoms.copy()
            plain.info["stopped"] = str(error)
            ase.io.write(path, plain, format="extxyz")
            error.args = (f"{error} (frame in {path})",)
        raise


def _warn_if_turning_matters(atoms: Any) -> None:
    """A free molecule turns; where its energy depends on that, as ForceNet's does, it gains spin."""
    if atoms.pbc.any() or len(atoms) < 2:
        return
    turned = atoms.copy()
    turned.rotate(70.0, (1.0, 2.0, 3.0), center="COM")
    energy = atoms.get_potential_energy()
    turned.calc = atoms.calc
    change = abs(turned.get_potential_energy() - energy)
    if change > TURNED_EV * len(atoms):
        warnings.warn(
            f"the energy changes by {change:.3g} eV when the molecule is turned: this network (ForceNet?) is not "
            "invariant, and the dynamics of a free molecule is not that of any molecule",
            stacklevel=3,
        )


def _run(dynamics: Any, steps: int) -> None:
    try:
        dynamics.run(steps)
    except OutsideRangeError as error:
        error.args = (f"step {dynamics.nsteps} of {steps}: {error}",)
        raise
    except InputError as error:
        raise DcnnError(
            f"step {dynamics.nsteps} of {steps}: {error}. The potential does not hold here: use a shorter timestep, a "
            "lower temperature, or train on frames like these"
        ) from None


@contextmanager
def _trajectory(path: str | Path | None, atoms: Any) -> Iterator[Callable[[], None]]:
    """A function that writes the atoms as they are, with energy and forces, to the end of the file."""
    if path is None:
        yield lambda: None
        return
    path = Path(path)
    if path.suffix not in TRAJECTORIES:
        raise InputError(f"{path}: a trajectory is written as {', '.join(TRAJECTORIES)}")
    if path.exists():
        raise InputError(f"{path}: exists already; give another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".traj":
        with ase.io.Trajectory(path, "w") as writer:
            yield lambda: writer.write(atoms)
    else:
        with path.open("w") as file:
            yield lambda: ase.io.write(file, atoms, format="extxyz")
