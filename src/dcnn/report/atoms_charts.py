"""A trained potential against its test labels: parity, distributions of the errors, errors by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from ase.data import chemical_symbols

from dcnn.atoms import Batcher, Dataset, Structure, energy_and_forces
from dcnn.atoms.label_errors import KCAL_MOL_EV
from dcnn.atoms.task import AtomsTask
from dcnn.errors import InputError
from dcnn.report.chart import Array, Chart, Figure
from dcnn.results.metrics import short

MOST_FRAMES, FEWEST_FRAMES = 300, 20
MOST_ATOMS = 3000  # of all frames together, so that a page takes seconds for large molecules too
MOST_DOTS = 700  # of one element in a parity plot
FEW = 1000  # dots that may be larger
NAMED_ELEMENTS = 5  # with a colour of their own
_ELEMENT_COLOUR = {1: 7, 6: 6, 7: 0, 8: 1}  # H grey, C dark, N blue, O red; the others take what is left


@dataclass(frozen=True)
class Predictions:
    """Labels and predictions in kcal/mol and Å, on `frames` of the test frames (`of` in all)."""

    frames: tuple[Structure, ...]
    of: int
    z: np.ndarray  # (N,)
    system: np.ndarray  # (N,)
    energy: Array  # (M,)
    energy_label: Array  # (M,)
    forces: Array  # (N, 3)
    forces_label: Array  # (N, 3)

    @property
    def note(self) -> str:
        some = f"{len(self.frames)} of {self.of}" if len(self.frames) < self.of else f"All {self.of}"
        return f"{some} test frames."


def _some(split: Dataset, most: int) -> Dataset:
    return split[np.unique(np.linspace(0, len(split) - 1, most).round().astype(int))]


def predict(task: AtomsTask) -> Predictions:
    """Energies and forces of the network on the test frames of the task, or on some of them if there are many."""
    tested = cast(Dataset, task.frames["test"])
    both = [n for n, frame in enumerate(tested) if frame.energy is not None and frame.forces is not None]
    if not both:
        raise InputError("no test frame has both an energy and forces to draw")
    tested = tested[both]
    frames = _some(tested, int(np.clip(MOST_ATOMS // len(tested[0].z), FEWEST_FRAMES, MOST_FRAMES)))
    network: Any = task.network
    make = Batcher(frames, network.cutoff, next(network.parameters()).dtype)
    unit = task.energy_unit_eV / KCAL_MOL_EV  # kcal/mol in one energy unit of the data
    found: dict[str, list[np.ndarray]] = {"z": [], "n": [], "E": [], "E0": [], "F": [], "F0": []}
    for begin in range(0, len(frames), 50):
        batch = make(range(begin, min(begin + 50, len(frames))))
        with torch.no_grad():  # nothing is differentiated beyond the forces
            energy, forces = energy_and_forces(network, batch)
        assert batch.energy is not None
        assert batch.forces is not None
        found["z"].append(batch.z.numpy())
        found["n"].append(torch.bincount(batch.system).numpy())
        found["E"].append(unit * task.scale.unscale_energy(energy, batch.z, batch.system).numpy())
        found["E0"].append(unit * batch.energy.double().numpy())
        found["F"].append(unit * task.scale.unscale_forces(forces).numpy())
        found["F0"].append(unit * batch.forces.double().numpy())
    joined = {name: np.concatenate(parts) for name, parts in found.items()}
    system = np.repeat(np.arange(len(frames)), joined["n"])
    return Predictions(
        tuple(frames), len(tested), joined["z"], system, joined["E"], joined["E0"], joined["F"], joined["F0"]
    )  # fmt: skip


# ---- charts ----------------------------------------------------------------------------------------------------------


def figures(found: Predictions) -> list[Figure]:
    """Parity and error distribution of energies and of forces, forces by element."""
    return [_energy_parity(found), _energy_errors(found), _force_parity(found), _force_errors(found)]


def _energy_parity(found: Predictions) -> Figure:
    label, predicted, name = _comparable(found)
    chart = Chart(f"label: {name}", f"network: {name}", equal=True, height=300)
    chart.diagonal()
    chart.points(label, predicted, 0, style="small" if len(label) > FEW else "few")
    return chart.figure("Energies", found.note)


def _comparable(found: Predictions) -> tuple[Array, Array, str]:
    """Energies without their offset; of different molecules per atom, without a fit of elemental energies."""
    atoms = np.bincount(found.system)
    elements, which = np.unique(found.z, return_inverse=True)
    counts = np.zeros((len(atoms), len(elements)))
    np.add.at(counts, (found.system, which), 1)
    if (counts == counts[0]).all():
        offset = found.energy_label.mean()
        return found.energy_label - offset, found.energy - offset, "E − mean (kcal/mol)"
    share = np.linalg.lstsq(counts, found.energy_label, rcond=None)[0]
    offset = counts @ share
    return (found.energy_label - offset) / atoms, (found.energy - offset) / atoms, "E − elements (kcal/mol per atom)"


def _energy_errors(found: Predictions) -> Figure:
    error = found.energy - found.energy_label
    reach = max(float(np.quantile(np.abs(error), 0.99)), 1e-12) * 1.1
    counts, edges = np.histogram(error, np.linspace(-reach, reach, _bins(len(error)) + 1))
    chart = Chart("network − label (kcal/mol)", "frames", x_range=(-reach, reach), height=300)
    chart.steps(edges, counts, 0)
    mean, deviation = float(error.mean()), float(error.std())
    return chart.figure("Energy errors", f"Mean {short(mean)}, standard deviation {short(deviation)} kcal/mol.")


def _bins(count: int) -> int:
    return int(np.clip(2 * np.sqrt(count), 8, 40))


def _force_parity(found: Predictions) -> Figure:
    chart = Chart("label: force component (kcal/mol/Å)", "network (kcal/mol/Å)", equal=True, height=300)
    chart.diagonal()
    random = np.random.default_rng(0)
    style = "small" if found.forces.size > FEW else "few"
    for name, atoms, colour in by_element(found.z):
        label, predicted = found.forces_label[atoms].ravel(), found.forces[atoms].ravel()
        chosen = random.permutation(len(label))[:MOST_DOTS]
        chart.points(label[chosen], predicted[chosen], colour, name, style)
    return chart.figure("Forces", f"{found.note} At most {MOST_DOTS} components of an element are drawn.")


def _force_errors(found: Predictions) -> Figure:
    error = np.abs(found.forces - found.forces_label)
    high = float(error.max()) * (1 + 1e-9) + 1e-12
    low = max(float(np.quantile(error, 0.005)), 1e-4 * high)
    groups = by_element(found.z)
    edges = np.geomspace(low, high, _bins(error.size // len(groups)) + 1)
    name = "share of components (%)"
    chart = Chart("|network − label| (kcal/mol/Å)", name, log_x=True, x_range=(low, high), height=300)
    for element, atoms, colour in groups:
        part = error[atoms].ravel()
        chart.steps(edges, 100 * np.histogram(part, edges)[0] / len(part), colour, element)
    below = 100 * float((error < low).mean())  # atoms held by symmetry have no force, and no error
    return chart.figure("Force errors by element", f"{below:.0f} % of all components lie below." if below > 1 else "")


def by_element(z: np.ndarray) -> list[tuple[str, np.ndarray, int]]:
    """(symbol, which atoms, colour); beyond the most frequent elements the rest is one group."""
    elements, counts = np.unique(z, return_counts=True)
    frequent = elements[np.argsort(-counts, kind="stable")][:NAMED_ELEMENTS].tolist()
    free = [c for c in (2, 3, 4, 5, 0, 1, 6, 7) if c not in {_ELEMENT_COLOUR.get(e) for e in frequent}]
    groups = []
    for element in frequent:
        colour = _ELEMENT_COLOUR[element] if element in _ELEMENT_COLOUR else free.pop(0)
        groups.append((chemical_symbols[element], z == element, colour))
    rest = ~np.isin(z, frequent)
    return [*groups, ("others", rest, free.pop(0))] if rest.any() else groups


def element_table(found: Predictions) -> list[dict[str, Any]]:
    """Errors of force components in kcal/mol/Å, a row for each element."""
    error = found.forces - found.forces_label
    rows = []
    for element in np.unique(found.z):
        atoms = found.z == element
        part = error[atoms]
        rows.append(
            {
                "element": chemical_symbols[element],
                "atoms": int(atoms.sum()),
                "mae": float(np.abs(part).mean()),
                "rmse": float(np.sqrt((part**2).mean())),
                "max": float(np.abs(part).max()),
                "label_rms": float(np.sqrt((found.forces_label[atoms] ** 2).mean())),
            }
        )
    return rows


def frame_errors(found: Predictions) -> Array:
    """(M,) mean absolute error of the force components of each frame, kcal/mol/Å."""
    error = np.abs(found.forces - found.forces_label).mean(1)
    return np.bincount(found.system, error) / np.bincount(found.system)


def chosen_frames(found: Predictions) -> Sequence[tuple[str, int]]:
    """(what it is, number) of the frames with the middle, the largest and the smallest force error."""
    order = np.argsort(frame_errors(found), kind="stable")
    return [("typical", int(order[len(order) // 2])), ("worst", int(order[-1])), ("best", int(order[0]))]
