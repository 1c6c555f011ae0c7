"""Exported potentials: the numbers of the network, for other sizes, in a process that has no dcnn."""

import json
import shutil
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import dcnn.testing as checks
from dcnn.atoms import Potential, Structure, batch, build, collate, demo_dataset
from dcnn.atoms.export import METADATA, export, inputs, trace
from dcnn.errors import DcnnError, InputError
from dcnn.scaling import LabelScale

CUTOFF = 3.5
SIZES = {
    "schnet": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 6},
    "cgcnn": {"features": 8, "convolutions": 1, "head_features": 8, "gaussians": 6},
    "dimenet_plus_plus": {"hidden": 8, "triplet": 4, "basis": 2, "output": 8, "blocks": 1},
    "forcenet": {"features": 8, "blocks": 1, "gaussians": 6, "head_features": 8},
    "gemnet": {"blocks": 1},
    "tensornet": {"features": 4, "layers": 1, "radial": 6},
}
ANGLES = ("dimenet_plus_plus", "gemnet", "tensornet")
ALONE = """
import json, sys
import numpy as np
import torch

sys.modules["dcnn"] = None  # any import of it fails from here on
try:
    import dcnn
    raise SystemExit("dcnn could be imported")
except ImportError:
    pass
package, arrays, out = sys.argv[1:]
extra = {"dcnn.json": ""}
potential = torch.export.load(package, extra_files=extra).module()
given = np.load(arrays)
names = json.loads(extra["dcnn.json"])["inputs"]
energy, forces, stress, atomic = potential(*(torch.from_numpy(given[name]) for name in names))
np.savez(out, energy=energy.numpy(), forces=forces.numpy())
"""


def potential_of(name, **options):
    torch.manual_seed(0)
    network = build(name, cutoff=CUTOFF, **SIZES[name], **options)
    with torch.no_grad():
        for parameter in network.parameters():
            if not parameter.any():
                parameter.normal_(std=0.2)
    return Potential(network, LabelScale(2.0, {z: -float(z) for z in (1, 6, 8, 12)}), energy_unit_eV=0.5)


@cache
def program_of(name):
    """The exported network; a few seconds each."""
    return trace(potential_of(name), name in ANGLES, name not in ("cgcnn", "forcenet"))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n == "gemnet" else ()) for n in SIZES])
def test_every_network_is_exported_for_any_size(name):
    potential, exported = potential_of(name), program_of(name).module()
    several = checks.molecules(CUTOFF)
    pair = batch(z=[8, 1], positions=[[0.0, 0, 0], [0, 0, 1.0]], cutoff=CUTOFF)
    for atoms in (several, checks.crystal(CUTOFF), pair.to(dtype=torch.float64)):
        energy, forces, stress, atomic = exported(*inputs(atoms, name in ANGLES))
        periodic = atoms.cell is not None
        expected = potential(atoms, stress=periodic)
        torch.testing.assert_close(energy, expected.energy, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(forces, expected.forces, rtol=1e-9, atol=1e-9)
        if name in ("cgcnn", "forcenet"):
            assert atomic.isnan().all(), "its energy is no sum over atoms"
        else:
            torch.testing.assert_close(energy, torch.zeros_like(energy).index_add(0, atoms.system, atomic))
        if periodic:
            torch.testing.assert_close(stress, expected.stress, rtol=1e-9, atol=1e-10)
        else:
            assert stress.isnan().all()
    strange = batch(z=[6, 14], positions=[[0.0, 0, 0], [0, 0, 1.5]], cutoff=CUTOFF)
    energy, forces, *_ = exported(*inputs(strange, name in ANGLES))
    assert energy.isnan().all()
    assert forces.isnan().all(), "silicon was not trained on"


def test_any_number_of_neighbours_is_taken_and_more_than_slots_give_nan():
    grid = torch.cartesian_prod(*[torch.arange(4.0)] * 3).double()  # 64 atoms 1 Å apart
    atoms = batch(
        z=torch.full((66,), 6),
        positions=torch.cat([grid, torch.tensor([[0.0, 0, 0], [0, 0, 1.4]])]),
        system=torch.tensor([0] * 64 + [1] * 2),
        cutoff=CUTOFF,
    )
    exported, given = program_of("dimenet_plus_plus").module(), inputs(atoms, angles=True)
    energy, forces, *_ = exported(*given)
    assert len(given[-1]) > 40, "as many as there are"
    torch.testing.assert_close(energy, potential_of("dimenet_plus_plus")(atoms).energy)
    energy, forces, *_ = exported(*given[:-1], torch.arange(30))
    assert energy.isnan().tolist() == [True, False]
    assert forces.isnan().all(1).tolist() == [True] * 64 + [False] * 2


@pytest.mark.parametrize("name", ["schnet", "dimenet_plus_plus"])
def test_a_lone_atom_needs_no_pairs(name):
    potential = potential_of(name)
    lone = batch(z=[8], positions=torch.zeros(1, 3, dtype=torch.float64), cutoff=CUTOFF)
    energy, forces, *_ = program_of(name).module()(*inputs(lone, name in ANGLES))
    torch.testing.assert_close(energy, potential(lone).energy)
    assert not forces.any()


def test_a_process_without_dcnn_gets_the_same_numbers(ethanol_run, tmp_path):
    potential = Potential.load(ethanol_run, dtype="float64")
    frames = demo_dataset()
    about = export(potential, tmp_path / "ethanol.pt2", frames[:2])
    assert about["elements"] == [1, 6, 8]
    assert about["cutoff_A"] == 6.0
    assert about["outputs"] == ["energy", "forces", "stress", "atomic_energies"]
    assert about["atomic_energies"]
    several = collate(frames[10:15], potential.cutoff)
    np.savez(tmp_path / "in.npz", **dict(zip(about["inputs"], (t.numpy() for t in inputs(several)), strict=True)))
    (tmp_path / "alone.py").write_text(textwrap.dedent(ALONE))
    names = ["alone.py", "ethanol.pt2", "in.npz", "out.npz"]
    subprocess.run([sys.executable, *names], cwd=tmp_path, check=True, timeout=300)
    found, expected = np.load(tmp_path / "out.npz"), potential(several)
    np.testing.assert_allclose(found["energy"], expected.energy, rtol=1e-12)
    np.testing.assert_allclose(found["forces"], expected.forces, atol=1e-10)


def test_networks_with_angles_say_that_they_take_slots(tmp_path, monkeypatch):
    monkeypatch.setattr("dcnn.atoms.export.trace", lambda *_: program_of("dimenet_plus_plus"))
    about = export(potential_of("dimenet_plus_plus"), tmp_path / "a.pt2", demo_dataset()[:1])
    assert about["inputs"][-1] == "slots"
    extra = {METADATA: ""}
    torch.export.load(tmp_path / "a.pt2", extra_files=extra)
    assert json.loads(extra[METADATA]) == about


def test_wrong_use_is_explained(tmp_path):
    potential = potential_of("schnet")
    with pytest.raises(InputError, match=r"end in .pt2"):
        export(potential, tmp_path / "a.onnx", demo_dataset()[:1])
    with pytest.raises(InputError, match="at least one structure"):
        export(potential, tmp_path / "a.pt2", [])
    potential.device = torch.device("meta")
    with pytest.raises(InputError, match="is on meta"):
        export(potential, tmp_path / "a.pt2", demo_dataset()[:1])


def test_a_package_that_differs_from_the_network_is_not_written(tmp_path, monkeypatch):
    other = Potential(
        potential_of("schnet").network, LabelScale(2.1, {z: -float(z) for z in (1, 8)}), energy_unit_eV=0.5
    )
    monkeypatch.setattr("dcnn.atoms.export.trace", lambda *_: program_of("schnet"))
    with pytest.raises(DcnnError, match=r"the exported energy is .* off the network's; nothing was written"):
        export(other, tmp_path / "a.pt2", [Structure([8, 1], [[0, 0, 0], [0, 0, 1.0]])])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_compiled_package_gets_the_same_numbers(tmp_path):
    potential = potential_of("schnet")
    export(potential, tmp_path / "a.pt2", demo_dataset()[:2], aot=True)
    compiled = torch._inductor.aoti_load_package(str(tmp_path / "a.pt2"))
    for atoms in (checks.molecules(CUTOFF), checks.crystal(CUTOFF)):
        energy, forces, *_ = compiled(*inputs(atoms))
        torch.testing.assert_close(energy, potential(atoms).energy, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(forces, potential(atoms).forces, rtol=1e-9, atol=1e-9)
    assert json.loads(compiled.get_metadata()[METADATA])["network"] == "SchNet"


@pytest.mark.slow
def test_the_example_in_cpp_prints_the_numbers_of_the_network(tmp_path):
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("needs cmake and a C++ compiler")
    potential = potential_of("schnet")
    water = Structure([8, 1, 1], [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    export(potential, tmp_path / "water.pt2", [water], aot=True)
    source = Path(__file__).parents[2] / "examples" / "programs"
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (["cmake", "-S", source, "-B", "build", prefix], ["cmake", "--build", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, timeout=900, capture_output=True)
    told = subprocess.run(["build/energy", "water.pt2"], cwd=tmp_path, check=True, capture_output=True, text=True)
    found = {name: np.array(values, float) for name, *values in map(str.split, told.stdout.splitlines())}
    expected = potential(collate([water], CUTOFF))
    np.testing.assert_allclose(found["energy"], expected.energy, rtol=1e-10)
    np.testing.assert_allclose(found["forces"], expected.forces.flatten(), atol=1e-9)
    assert found["atomic_energies"].sum() == pytest.approx(found["energy"][0])
    assert np.isnan(found["stress"]).all()
