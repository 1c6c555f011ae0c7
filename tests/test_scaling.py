"""Label scales against closed forms, brute force and the revised MD17 files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dcnn.derivatives import partials
from dcnn.errors import InputError
from dcnn.scaling import LabelScale

MD17 = Path(__file__).parents[2] / "shared/data/rmd17"
WATER, HYDROGEN, HYDROXIDE = [8, 1, 1], [1, 1], [8, 1]


@dataclass
class Frame:
    z: list[int]
    energy: float | None = 0.0
    forces: np.ndarray | None = None
    stress: np.ndarray | None = None


def molecules(n: int = 12) -> list[Frame]:
    """Frames whose energies are exactly −13.5 per H and −430.25 per O."""
    rng = np.random.default_rng(0)
    energies = {1: -13.5, 8: -430.25}
    kinds = (WATER, HYDROGEN, HYDROXIDE)
    return [Frame(z, sum(energies[i] for i in z), rng.normal(size=(len(z), 3))) for z in (kinds * n)[:n]]


def rmd17(molecule: str) -> list[Frame]:
    path = MD17 / f"rmd17_{molecule}_train_01.npz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    data = np.load(path)
    z = data["nuclear_charges"]
    return [Frame(z, float(e), f) for e, f in zip(data["old_energies"], data["old_forces"], strict=True)]


@pytest.mark.parametrize(
    ("labels", "constant"),
    [
        ([-406737.5], 1e6),
        ([1000.0], 1e3),
        ([np.nextafter(1000.0, 2000)], 1e4),
        ([-1.0, 0.5], 1.0),
        ([0.03], 0.1),
        ([1e-5], 1e-5),
        ([9.99e-7, 1e-9], 1e-6),
        ([0.0, 0.0], 1.0),
        (7, 10.0),
        (torch.tensor([[3.0, -250.0]]), 1e3),
    ],
)
def test_power_of_ten_is_the_smallest_that_bounds_the_labels(labels, constant):
    assert LabelScale.power_of_ten(labels) == LabelScale(constant)


def test_power_of_ten_bounds_every_magnitude_and_is_minimal():
    for magnitude in np.concatenate([10.0 ** np.arange(-12, 13), np.logspace(-11.7, 11.9, 200)]):
        constant = LabelScale.power_of_ten(magnitude).constant
        assert magnitude / constant <= 1 < magnitude / (constant / 10) * (1 + 1e-15)


def test_power_of_ten_looks_at_all_label_arrays():
    assert LabelScale.power_of_ten([], -2.0, np.full((4, 3), 31.0), [[0.1]]).constant == 100.0


def test_references_per_element_are_the_least_squares_solution():
    scale = LabelScale.fit(molecules())
    assert scale.references == pytest.approx({1: -13.5, 8: -430.25}, abs=1e-11)
    rng = np.random.default_rng(1)
    frames = [Frame(f.z, f.energy + rng.normal(), f.forces) for f in molecules()]
    scale = LabelScale.fit(frames)
    counts = np.array([[f.z.count(1), f.z.count(8)] for f in frames], float)
    normal = np.linalg.solve(counts.T @ counts, counts.T @ [f.energy for f in frames])
    np.testing.assert_allclose(list(scale.references.values()), normal, rtol=1e-12)


def test_references_of_one_molecule_have_minimum_norm_and_remove_the_mean():
    energies = [-76.0, -77.0, -79.0]
    scale = LabelScale.fit([Frame(WATER, e, np.ones((3, 3))) for e in energies])
    mean = np.mean(energies)  # n·e = mean with n = (2, 1): the shortest e is mean·n / |n|²
    assert scale.references == pytest.approx({1: mean * 2 / 5, 8: mean / 5}, rel=1e-14)
    scaled = scale.scale_energy(np.array(energies), WATER)
    assert abs(scaled.mean()) < 1e-14
    np.testing.assert_allclose(scaled, np.array(energies) - mean, atol=1e-13)


def test_mean_reference_is_the_frame_mean_for_one_composition_and_per_atom_for_several():
    one = LabelScale.fit([Frame(WATER, e) for e in (-76.0, -79.0)], references="mean", unit=1.0)
    assert one.scale_energy(-76.0, WATER) == pytest.approx(1.5, abs=1e-14)
    several = LabelScale.fit([Frame(WATER, -90.0), Frame(HYDROGEN, -10.0)], references="mean", unit=1.0)
    assert several.references == -20.0
    scaled = several.scale_energy(np.array([-90.0, -10.0]), WATER + HYDROGEN, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(scaled, [-30.0, 30.0])


@pytest.mark.parametrize(("unit", "constant"), [("force_rms", 5.0), ("power_of_ten", 1e2), (4.5, 4.5)])
def test_units(unit, constant):
    forces = [[[5.0, -5, 5], [0, 0, 0]], [[10.0, 10, 0], [0, 0, -5]]]  # 12 components, squares add up to 300
    frames = [Frame(HYDROGEN, 40.0, np.array(f)) for f in forces]
    assert LabelScale.fit(frames, references=None, unit=unit).constant == pytest.approx(constant, rel=1e-15)


def test_power_of_ten_of_a_fit_counts_forces_stress_and_energies_without_their_references():
    frames = [Frame(WATER, -76000.0 + e, np.full((3, 3), 0.5), np.full((3, 3), 20.0)) for e in (-3, 3)]
    assert LabelScale.fit(frames, "mean", "power_of_ten").constant == 1e2
    assert LabelScale.fit(frames, None, "power_of_ten").constant == 1e5


def test_frames_without_forces_do_not_count_in_the_unit():
    frames = [Frame(HYDROGEN, -1.0, np.full((2, 3), 2.0)), Frame(HYDROGEN, -1.0)]
    assert LabelScale.fit(frames).constant == 2.0


@pytest.mark.parametrize("references", ["elements", "mean", None])
@pytest.mark.parametrize("unit", ["force_rms", "power_of_ten", 23.06])
def test_round_trip_is_exact_to_the_last_bits(references, unit):
    frames = molecules()
    scale = LabelScale.fit(frames, references, unit)
    energy = np.array([f.energy for f in frames]) * 1.000123
    z = np.concatenate([f.z for f in frames])
    system = np.repeat(np.arange(len(frames)), [len(f.z) for f in frames])
    back = scale.unscale_energy(scale.scale_energy(energy, z, system), z, system)
    assert np.all(np.abs(back - energy) <= 2 * np.spacing(np.abs(energy)))
    forces = frames[0].forces
    for scale_, unscale in (
        (scale.scale_forces, scale.unscale_forces),
        (scale.scale_stress, scale.unscale_stress),
    ):
        assert np.all(np.abs(unscale(scale_(forces)) - forces) <= np.spacing(np.abs(forces)))


def test_forces_stay_the_negative_gradient_of_the_energy():
    scale = LabelScale(27.5, {1: -13.5, 8: -430.25})
    x = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    energy = -456.0 + (x**3).sum()
    forces = -torch.autograd.grad(energy, x, retain_graph=True)[0]
    scaled = -torch.autograd.grad(scale.scale_energy(energy, WATER), x)[0]
    torch.testing.assert_close(scaled, scale.scale_forces(forces), rtol=1e-15, atol=0)


def test_tensors_and_arrays_agree_and_come_back_in_float64():
    scale = LabelScale(10.0, {1: -13.0, 8: -430.0})
    z, system, energy = WATER + HYDROGEN, [0, 0, 0, 1, 1], [-466.0, -31.0]
    array = scale.scale_energy(np.array(energy, np.float32), z, system)
    tensor = scale.scale_energy(torch.tensor(energy), torch.tensor(z), torch.tensor(system))
    column = scale.scale_energy(torch.tensor(energy)[:, None], torch.tensor(z), torch.tensor(system))
    np.testing.assert_array_equal(array, [-1.0, -0.5])
    assert array.dtype == np.float64
    assert tensor.dtype == torch.float64
    assert tensor.tolist() == array.tolist()
    assert column.tolist() == [[-1.0], [-0.5]]
    assert scale.scale_forces(torch.ones(2, 3)).dtype == torch.float64


@pytest.mark.parametrize("references", [{1: -13.123456789012345, 8: -430.1}, -0.1 / 3, None])
def test_json_keeps_a_scale_exactly(references):
    scale = LabelScale(27.693579379301067, references)
    assert LabelScale.from_dict(json.loads(json.dumps(scale.to_dict()))) == scale


def test_describe_shows_ranges_and_float32_steps_with_units():
    class Data(list):
        units = SimpleNamespace(energy="eV", length="Ang")

    frames = Data(Frame(WATER, e, np.full((3, 3), 2.0), np.eye(3)) for e in (-1000.0, -1004.0))
    table = LabelScale.fit(frames, "mean").describe(frames).splitlines()
    rows = {line[:32].strip(): line[32:].split() for line in table[1:-1]}
    # spacing of float32: 2⁻¹⁴ in [512, 1024), 2⁻²³ at 2 = 2.4e-7 doubled; / C = / 2 halves label and step
    assert rows["energy [eV]"] == ["-1004.0000", "-1000.0000", "2", "6.1e-05", "6.1e-05"]
    assert rows["energy − references [eV]"] == ["-2.0000", "2.0000", "2", "2.4e-07", "2.4e-07"]
    assert rows["forces [eV/Ang]"] == ["2.0000", "2.0000", "0", "2.4e-07", "2.4e-07"]
    assert rows["stress [eV/Ang³]"][:3] == ["0.0000", "1.0000", "0.4714"]
    assert table[-1] == "C = 2; reference energy -334.0000 per atom"


def test_describe_leaves_out_what_is_not_there():
    frames = [Frame(WATER, -76.0)]
    text = LabelScale(10.0).describe(frames)
    assert "forces" not in text
    assert text.endswith("C = 10; no reference energies")
    table = LabelScale(1.0, {1: -1.0, 8: -2.0}).describe(frames)
    assert "per atom: H -1.0000, O -2.0000 (the elements always occur in the same proportion" in table
    several = [Frame(WATER, -76.0), Frame([8, 8], -150.0)]
    assert LabelScale(1.0, {1: -1.0, 8: -2.0}).describe(several).endswith("per atom: H -1.0000, O -2.0000")


# --- any y and its derivatives ---------------------------------------------------------------------------------


def surface(x: torch.Tensor) -> torch.Tensor:
    return -4e5 + 7 * torch.sin(3e3 * x[:, :1]) * torch.exp(-x[:, 1:] / 50)


def labelled() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Values and derivatives of a function of x (of the order of 1e-3) and t (of the order of 100)."""
    points = torch.rand(64, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = points * torch.tensor([1e-3, 100.0])
    return x, partials(surface, x, ["", "x", "t", "xx", "xt"])


def test_scaled_derivatives_are_those_of_the_scaled_function_of_scaled_inputs():
    x, labels = labelled()
    scale = LabelScale.fit(labels, x=x)
    scaled, points = scale.scale(labels), scale.scale_inputs(x)
    torch.testing.assert_close(points.mean(0), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(points.std(0, correction=0), torch.ones(2, dtype=torch.float64))

    def function(x):
        return scale.scale({"": surface(scale.unscale_inputs(x))})[""]

    expected = partials(function, points, list(labels), coordinates=("x", "t"))
    for name in labels:
        torch.testing.assert_close(scaled[name], expected[name], rtol=1e-6, atol=1e-9)
    slopes = torch.cat([scaled["x"], scaled["t"]])
    assert float(slopes.square().mean().sqrt()) == pytest.approx(1.0)
    for name, label in scale.unscale(scaled).items():
        torch.testing.assert_close(label, labels[name], rtol=1e-12, atol=0)
    torch.testing.assert_close(scale.unscale_inputs(points), x, rtol=1e-12, atol=0)
    assert LabelScale.from_dict(json.loads(json.dumps(scale.to_dict()))) == scale


@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
def test_fit_takes_plain_values(kind):
    y = kind([1.0, 3.0, 5.0, 7.0])
    scale = LabelScale.fit(y)
    assert (scale.constant, scale.offset) == (pytest.approx(5**0.5), 4.0)
    assert LabelScale.fit(y, references=None, unit="power_of_ten") == LabelScale(10.0)
    assert LabelScale.fit({"": y}, unit=2.0).scale({"": 8.0}) == {"": 2.0}


def test_the_core_needs_no_ase():
    code = """
import sys
for name in ("ase", "scipy", "vesin", "h5py", "lightning", "pydantic"):
    sys.modules[name] = None
import torch, dcnn
scale = dcnn.LabelScale.fit({"": torch.ones(3, 1), "x": torch.ones(3, 1)})
assert scale.unscale_forces(scale.scale_forces(torch.ones(2))).tolist() == [1.0, 1.0]
assert scale.scale_energy(1.0, z=[1]) == 1.0 and scale.constant == 1.0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def bad(index: int, **labels) -> list[Frame]:
    frames = molecules()
    for name, value in labels.items():
        setattr(frames[index], name, value)
    return frames


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LabelScale.fit(bad(3, energy=np.nan)), r"NaN or infinite energy in frames 3: "),
        (
            lambda: LabelScale.fit(bad(6, forces=np.full((3, 3), np.inf))),
            r"NaN or infinite forces in frames 6: ",
        ),
        (lambda: LabelScale.fit([Frame(WATER, np.nan)] * 7), r"frames 0, 1, 2, 3, 4 and 2 more"),
        (lambda: LabelScale.fit(molecules(), {"Xx": 1.0}), r"'Xx' is no element"),
        (lambda: LabelScale.fit(molecules(), {"H": np.nan}), r"the energy of H is nan"),
        (lambda: LabelScale.fit(bad(1, forces=np.ones((4, 3)))), r"frame 1 has 2 atoms .* \(4, 3\)"),
        (
            lambda: LabelScale.fit([Frame(WATER, e) for e in (1.0, 3.0)]),
            r"none of the 2 frames .*, for example 1",
        ),
        (lambda: LabelScale.fit([Frame(WATER, None)], None), r"use unit='power_of_ten' or a number$"),
        (lambda: LabelScale.fit([Frame(WATER, 1.0, np.zeros((3, 3)))]), r"not all zero"),
        (lambda: LabelScale.fit([]), r"no frames"),
        (lambda: LabelScale.fit(molecules(), "element"), r"did you mean 'elements'"),
        (lambda: LabelScale.fit(molecules(), unit="rms_force"), r"unknown unit 'rms_force'; did you mean"),
        (lambda: LabelScale.fit(molecules(), unit=0), r"positive finite constant, not 0.0"),
        (lambda: LabelScale.fit({"": [1.0, np.nan]}), r"NaN or infinite label '' in rows 1: "),
        (lambda: LabelScale.fit(torch.ones(3)), r"labels that are not all equal"),
        (lambda: LabelScale.fit(torch.ones(0)), r"no labels"),
        (lambda: LabelScale.fit(torch.rand(3), "element"), r"did you mean 'elements'"),
        (lambda: LabelScale.fit(torch.rand(3), x=torch.rand(3)), r"\(N, d\); got shape \(3,\)"),
        (lambda: LabelScale.fit(torch.rand(3), x=torch.rand(3, 5)), r"x has 5 columns"),
        (lambda: LabelScale(1.0, inputs={"x": (0.0, 0.0)}), r"positive finite unit"),
        (lambda: LabelScale(1.0, inputs={"x": (0.0, 1.0)}).scale({"xy": 1.0}), r"unknown input .*'y'"),
        (lambda: LabelScale(1.0, inputs={"x": (0.0, 1.0)}).scale_inputs(np.ones((2, 3))), r"\(2, 3\) do not have"),
        (lambda: LabelScale.power_of_ten(), r"at least one label"),
        (
            lambda: LabelScale.power_of_ten([1.0], [[1, 2], [np.nan, 3]]),
            r"NaN or infinite label in rows 1 of array 2: ",
        ),
        (lambda: LabelScale.from_dict({"C": 1.0}), r"fields constant, references, offset and inputs, not \['C'\]"),
        (lambda: LabelScale(1.0, {1: 0.0}).scale_energy(1.0, [1, 17, 200]), r"for Cl, Z=200: .* with H only"),
        (
            lambda: LabelScale(1.0, {1: 0.0}).scale_energy(np.ones(1), [1, 1], [0, 1]),
            r"2 systems, .* 1 energ",
        ),
    ],
)
def test_wrong_input_says_where_and_what_to_do(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(("molecule", "paper_constant"), [("aspirin", 1e6), ("ethanol", 1e5), ("uracil", 1e6)])
def test_rmd17_labels(molecule, paper_constant):
    frames = rmd17(molecule)
    energies, forces = np.array([f.energy for f in frames]), np.stack([f.forces for f in frames])
    assert LabelScale.power_of_ten(energies, forces).constant == paper_constant
    scale = LabelScale.fit(frames)
    assert scale.constant == pytest.approx(np.sqrt((forces**2).mean()), rel=1e-14)
    scaled = scale.scale_energy(energies, frames[0].z)
    assert abs(scaled.mean() * scale.constant) < 1e-9  # kcal/mol, of 10⁵: rounding of float64 alone
    np.testing.assert_allclose(scaled * scale.constant, energies - energies.mean(), atol=1e-9)
    back = scale.unscale_energy(scaled, frames[0].z)
    assert np.all(np.abs(back - energies) <= np.spacing(np.abs(energies)))


def test_rmd17_energies_survive_float32_only_with_references():
    frames = rmd17("aspirin")
    energies, z = np.array([f.energy for f in frames]), frames[0].z

    def error(scale: LabelScale) -> float:
        stored = scale.scale_energy(energies, z).astype(np.float32)
        return np.abs(scale.unscale_energy(stored, z) - energies).max()

    assert error(LabelScale.fit(frames, None, "power_of_ten")) > 0.01  # the paper's division by C: 0.03 kcal/mol
    assert error(LabelScale.fit(frames)) < 2e-6
