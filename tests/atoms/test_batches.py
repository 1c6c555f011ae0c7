"""Which batches a run sees: the same for a seed, whatever makes them; sizes within bounds; workers that die."""

import os
import signal
from collections import Counter

import numpy as np
import pytest
import torch

from dcnn.atoms import Dataset, Structure, build, demo_dataset
from dcnn.atoms.batch_plan import BatchPlan
from dcnn.atoms.batching import pair_counts
from dcnn.atoms.config import AtomsConfig
from dcnn.atoms.data_workers import DataWorkers
from dcnn.atoms.neighbours import half_pairs
from dcnn.atoms.task import build_atoms
from dcnn.errors import DcnnError, InputError
from dcnn.results import fit_config, resume_run
from dcnn.train import checkpoint
from dcnn.train.config import Training

SIZES = {"features": 8, "filters": 8, "blocks": 1, "gaussians": 6, "cutoff": 3.0}


def chains(count=30):
    """Chains of 2 to 12 atoms."""
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        n = int(rng.integers(2, 13))
        positions = np.stack([1.2 * np.arange(n), np.zeros(n), np.zeros(n)], 1) + 0.1 * rng.standard_normal((n, 3))
        found.append(Structure(np.full(n, 6), positions, energy=float(-n), forces=rng.standard_normal((n, 3))))
    return Dataset(found, "eV")


def task_of(frames=None, workers=0, **training):
    torch.manual_seed(0)
    frames = chains() if frames is None else frames
    config = {"data": {"workers": workers}, "training": {"epochs": 1, "batch_size": 4, **training}}
    splits = dict.fromkeys(("train", "validation", "test"), frames)
    return build_atoms(AtomsConfig(**config), frames=splits, network=build("schnet", **SIZES))


def equal(a, b):
    for name, value in vars(a).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(getattr(b, name), value, rtol=0, atol=0)
        elif name != "edges":
            assert getattr(b, name) == value, name
    assert torch.equal(a.edge_center, b.edge_center)


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_make_the_same_batches(workers):
    alone, helped = task_of(), task_of(workers=workers)
    for epoch, rank, world, start in ((0, 0, 1, 0), (1, 0, 1, 0), (1, 0, 1, 3), (2, 1, 2, 1)):
        expected, found = (list(task.batches(epoch, rank, world, start)) for task in (alone, helped))
        assert len(expected) == len(found) == alone.steps_per_epoch - start
        for a, b in zip(expected, found, strict=True):
            equal(a, b)
    first = next(iter(helped.batches(3)))  # an epoch that ends early
    equal(first, next(iter(alone.batches(3))))
    equal(next(iter(helped.batches(4))), next(iter(alone.batches(4))))


def test_a_batch_of_the_same_pairs_keeps_what_was_derived_from_them():
    task = task_of(demo_dataset()[:12], workers=2, step="traced")
    batches = list(task.batches(0))
    assert batches[0].edges is batches[2].edges


def test_a_worker_that_dies_is_named():
    task = task_of(workers=2)
    batches = iter(task.batches(0))
    next(batches)
    os.kill(task._pool._processes[1].pid, signal.SIGKILL)
    with pytest.raises(DcnnError, match=r"data worker 1 \(process \d+\) ended with exit code -9"):
        list(batches)


def test_what_a_worker_refuses_is_said():
    def refuse(task):
        raise InputError(f"frame {task}: bad")

    with pytest.raises(InputError, match="frame 7: bad"):
        list(DataWorkers(refuse, 1)([7]))


@pytest.mark.parametrize("name", ["batch_atoms", "batch_edges"])
def test_batches_by_size_hold_every_frame_once_within_the_bound(name):
    most = {"batch_atoms": 24, "batch_edges": 40}[name]
    task = task_of(**{name: most})
    counts, shapes = Counter(), set()
    for step in range(task.steps_per_epoch):
        counts.update(task.plan.frames(0, step).tolist())
    assert counts == Counter(range(30))
    for batch in task.batches(0):
        assert (len(batch.z) if name == "batch_atoms" else len(batch.pair_i)) <= most
        sizes = torch.bincount(batch.system)
        shapes.add(batch.n_systems)
        if name == "batch_atoms":
            assert sizes.max() < 1.25 * sizes.min() + 1e-9
    orders = [[task.plan.frames(epoch, step).tolist() for step in range(task.steps_per_epoch)] for epoch in (0, 1, 1)]
    assert orders[0] != orders[1] == orders[2]
    shares = [task.plan.frames(0, step, rank, 2) for step in range(task.steps_per_epoch) for rank in (0, 1)]
    assert all(len(share) for share in shares)
    with pytest.raises(
        InputError, match=r"batch_atoms or batch_edges is 11, but training frame \d+ alone has 12; give at least that"
    ):
        task_of(batch_atoms=11)
    with pytest.raises(ValueError, match="batch_atoms or batch_edges, not both"):
        task_of(batch_atoms=20, batch_edges=20)


@pytest.mark.parametrize(("atoms", "frames"), [(9, 10), (21, 5), (120, 1)])
def test_the_number_of_frames_in_a_batch_follows_from_the_atoms_of_a_molecule(atoms, frames):
    positions = 1.5 * np.arange(3 * atoms, dtype=float).reshape(atoms, 3)
    molecule = Structure(np.full(atoms, 6), positions, energy=-1.0, forces=np.ones((atoms, 3)))
    task = task_of(Dataset([molecule] * 12, "eV"), batch_size="auto")
    assert {batch.n_systems for batch in task.batches(0)} == {frames}
    assert {batch.n_systems for batch in task_of(batch_size="auto").batches(0)} == {10}  # of several sizes
    with pytest.raises(ValueError, match="batch_size: must be auto or at least 1"):
        Training(epochs=1, batch_size="most")  # type: ignore[arg-type]


def test_pairs_are_counted():
    frames = chains(5)
    expected = [len(half_pairs(frame.positions, 3.0)) for frame in frames]
    assert pair_counts(frames, 3.0).tolist() == expected


def test_a_plan_of_a_million_frames_costs_a_step_nothing():
    plan = BatchPlan(1_000_000, 5, seed=0)
    assert plan.steps == 200_000
    first = plan.frames(0, 0)
    assert len(plan.frames(0, 199_999)) == 5
    assert plan.frames(0, 0) is not first
    assert np.array_equal(plan.frames(0, 0), np.random.default_rng([0, 0]).permutation(1_000_000)[:5])


def test_a_resumed_run_with_workers_ends_where_one_without_ends(tmp_path):
    settings = {
        "kind": "atoms",
        "data": {"path": "demo", "train": 12, "validation": 4, "test": 4},
        "model": {"name": "schnet", "overrides": SIZES},
        "training": {"epochs": 2, "batch_size": 4, "step": "eager", "stages": [{"schedule": "constant"}]},
    }
    fit_config(settings, tmp_path / "one")
    helped = {**settings, "data": {**settings["data"], "workers": 2}}
    fit_config({**helped, "training": {**settings["training"], "epochs": 1}}, tmp_path / "two")
    resume_run(tmp_path / "two", overrides=["training.epochs=2"])
    states = [checkpoint.load(tmp_path / name / "checkpoints" / "last.ckpt")["network"] for name in ("one", "two")]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
