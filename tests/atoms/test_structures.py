"""Pair lists and batches against brute force."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch

from dcnn.atoms import AtomsBatch, Batcher, Structure, batch, collate
from dcnn.atoms.neighbours import PairCache, half_pairs
from dcnn.errors import InputError

RNG = np.random.default_rng(0)
SKEWED = np.array([[3.1, 0.0, 0.0], [1.2, 2.9, 0.0], [-0.4, 0.7, 3.3]])
ETHANOL = Structure([6, 6, 8, 1, 1, 1, 1, 1, 1], RNG.permutation(np.argwhere(np.ones((3, 3, 1)))) * 1.2)


def brute_force(positions, cutoff, cell=None, pbc=(False,) * 3):
    """Every directed (i, j, shift) within the cutoff, by looking at all images."""
    ranges = [range(-10, 11) if cell is not None and p else (0,) for p in pbc]
    found = set()
    for shift in itertools.product(*ranges):
        offset = np.array(shift) @ cell if cell is not None else np.zeros(3)
        for i, j in itertools.product(range(len(positions)), repeat=2):
            if (i != j or any(shift)) and np.linalg.norm(positions[j] + offset - positions[i]) < cutoff:
                found.add((i, j, *shift))
    return found


CASES = {
    "molecule": (RNG.normal(size=(7, 3)) * 2, 3.5, None, (False,) * 3),
    "isolated atom": (np.zeros((1, 3)), 3.5, None, (False,) * 3),
    "one atom, many images": (np.zeros((1, 3)), 7.0, SKEWED, (True,) * 3),
    "crystal": (np.array([[0.1, 0.2, 0], [1.4, 1.5, 1.6]]), 6.0, SKEWED, (True,) * 3),
    "atoms outside the cell": (np.array([[0.1, 0.2, 0], [11.4, -21.5, 1.6]]), 4.0, SKEWED, (True,) * 3),
    "slab": (np.array([[0.0, 0, 0], [1.4, 1.5, 2.6]]), 5.0, SKEWED, (True, True, False)),
    "slab without a third vector": (np.zeros((1, 3)), 5.0, np.diag([3.0, 4.0, 0.0]), (True, True, False)),
    "wire": (np.array([[0.0, 0, 0], [1.4, 1.5, 2.6]]), 5.0, SKEWED, (False, False, True)),
}


@pytest.mark.parametrize("case", CASES)
def test_each_pair_and_image_once(case):
    positions, cutoff, cell, pbc = CASES[case]
    pairs = half_pairs(positions, cutoff, cell, np.array(pbc))
    shift = np.zeros((len(pairs), 3), int) if pairs.shift is None else pairs.shift
    forward = [(i, j, *s) for i, j, s in zip(pairs.i, pairs.j, shift, strict=True)]
    reverse = [(j, i, *-s) for i, j, s in zip(pairs.i, pairs.j, shift, strict=True)]
    expected = brute_force(positions, cutoff, cell, pbc)
    assert len(set(forward)) == len(forward)
    assert not set(forward) & set(reverse)
    assert set(forward) | set(reverse) == expected


@pytest.mark.parametrize("case", CASES)
def test_edges_are_the_pairs_in_both_directions(case):
    positions, cutoff, cell, pbc = CASES[case]
    graph = collate([Structure([6] * len(positions), positions, cell, pbc)], min(cutoff, 5.0))
    vectors = graph.pair_vectors()
    assert (vectors.norm(dim=1) < graph.cutoff).all()
    torch.testing.assert_close(graph.edge_vectors(), torch.cat([vectors, -vectors]))
    assert torch.equal(graph.edge_center, torch.cat([graph.pair_i, graph.pair_j]))
    assert torch.equal(graph.edge_neighbour, graph.edge_center.roll(len(vectors)))
    near = collate([Structure([6] * len(positions), positions, cell, pbc)], 2.5)
    for name in ("pair_i", "pair_j", "pair_shift", "cutoff"):
        torch.testing.assert_close(getattr(graph.within(2.5), name), getattr(near, name))
    assert near.within(2.5) is near


def mixed():
    """A molecule, an isolated atom, a crystal with self images, and the molecule again."""
    crystal = Structure([22, 8], CASES["crystal"][0], SKEWED)
    return [ETHANOL, Structure([2], np.zeros((1, 3))), crystal, ETHANOL]


def test_batch_is_its_frames_renumbered():
    frames = mixed()
    whole = collate(frames, 4.0)
    again = batch(z=whole.z, positions=whole.positions, system=whole.system, cell=whole.cell, pbc=whole.pbc, cutoff=4.0)
    assert whole.system.tolist() == [0] * 9 + [1] + [2] * 2 + [3] * 9
    for name in ("pair_i", "pair_j", "pair_shift", "edge_center", "edge_neighbour"):
        torch.testing.assert_close(getattr(whole, name), getattr(again, name))
    vectors = torch.cat([collate([frame], 4.0).pair_vectors() for frame in frames])
    torch.testing.assert_close(whole.pair_vectors(), vectors)


def test_atoms_of_a_system_need_not_stand_together():
    order = torch.randperm(18, generator=torch.Generator().manual_seed(1))
    positions = torch.as_tensor(np.concatenate([ETHANOL.positions] * 2))
    shuffled = batch(
        z=[6] * 18, positions=positions[order], system=torch.arange(2).repeat_interleave(9)[order], cutoff=3.0
    )
    straight = batch(z=[6] * 18, positions=positions, system=[0] * 9 + [1] * 9, cutoff=3.0)
    pairs = {frozenset(p) for p in zip(order[shuffled.pair_i].tolist(), order[shuffled.pair_j].tolist(), strict=True)}
    assert pairs == {frozenset(p) for p in zip(straight.pair_i.tolist(), straight.pair_j.tolist(), strict=True)}


def test_pair_vectors_carry_gradients_of_positions_and_cell():
    positions = torch.tensor(CASES["crystal"][0], requires_grad=True)
    cell = torch.tensor(SKEWED, requires_grad=True)
    graph = batch(z=[22, 8], positions=positions, cell=cell, cutoff=4.0)
    assert torch.autograd.gradcheck(
        lambda p, c: AtomsBatch(**{**vars(graph), "positions": p, "cell": c[None], "edges": None}).pair_vectors(),
        (positions, cell),
    )


def test_moving_keeps_the_energy_in_float64():
    frame = Structure([1, 1], [[0, 0, 0], [0, 0, 0.7]], energy=-97076.3, forces=np.ones((2, 3)))
    graph = collate([frame, frame], 3.0).to(dtype=torch.float32)
    assert graph.positions.dtype == graph.forces.dtype == torch.float32
    assert graph.energy.dtype == torch.float64
    assert graph.energy.tolist() == [-97076.3] * 2
    assert graph.to("meta").pair_i.device.type == "meta"


def test_labels_that_only_some_frames_have_are_nan_for_the_others():
    labelled = Structure([1], [[0, 0, 0]], energy=1.0, forces=[[0, 0, 1]], stress=np.eye(3), cell=9 * np.eye(3))
    bare = Structure([1], [[0, 0, 0]], energy=2.0)
    graph = collate([labelled, bare], 3.0)
    assert graph.energy.tolist() == [1.0, 2.0]
    assert graph.forces[0].tolist() == [0, 0, 1]
    assert graph.forces[1].isnan().all()
    assert graph.stress[0].tolist() == np.eye(3).tolist()
    assert graph.stress[1].isnan().all()
    assert collate([bare], 3.0).stress is None
    assert collate([bare], 3.0).forces is None
    assert collate([labelled], 3.0).stress.shape == (1, 3, 3)


def test_batcher_computes_each_list_once_and_shares_equal_ones(monkeypatch):
    frames = [Structure(ETHANOL.z, ETHANOL.positions + RNG.normal(size=(9, 3)) * 0.01) for _ in range(6)]
    calls = []
    monkeypatch.setattr("dcnn.atoms.batching.half_pairs", lambda *a: calls.append(1) or half_pairs(*a))
    batcher = Batcher(frames, cutoff=9.0, dtype=torch.float64)
    first, second = batcher([0, 1, 2]), batcher(np.array([5, 4, 3]))
    batcher(range(6))
    assert len(calls) == 6
    assert first.edge_center is second.edge_center
    torch.testing.assert_close(second.positions[:9], torch.as_tensor(frames[5].positions))


def test_pair_cache_stays_within_its_memory():
    lists = [half_pairs(RNG.normal(size=(9, 3)) * 3, 5.0) for _ in range(20)]
    cache = PairCache(5.0, memory=2000)  # about three
    kept = [cache.get(number, lambda pairs=pairs: pairs) for number, pairs in enumerate(lists)]
    for found, pairs in zip(kept, lists, strict=True):
        assert np.array_equal(found.i, pairs.i)
        assert np.array_equal(found.j, pairs.j)
    assert 3 <= len(cache._kept) < 20
    assert cache.get(19, None) is kept[19], "not computed again"
    assert np.array_equal(cache.get(0, lambda: lists[0]).i, lists[0].i)


def test_pickles():
    frame = pickle.loads(pickle.dumps(ETHANOL))
    np.testing.assert_array_equal(frame.positions, ETHANOL.positions)


def test_ase_there_and_back():
    stress = np.array([[1.0, 0.6, 0.5], [0.6, 2.0, 0.4], [0.5, 0.4, 3.0]])
    frame = Structure(
        [22, 8], CASES["crystal"][0], SKEWED, (True, True, False), -3.0, np.ones((2, 3)), stress, {"a": 1}
    )
    back = Structure.from_ase(frame.to_ase())
    for name in ("z", "positions", "cell", "pbc", "energy", "forces", "stress"):
        np.testing.assert_array_equal(getattr(back, name), getattr(frame, name))
    assert back.info == {"a": 1}
    assert Structure.from_ase(ETHANOL.to_ase()).cell is None


BAD = {
    "on top of each other": lambda: batch(z=[1, 1], positions=[[0.0, 0, 0], [0, 0, 0.05]]),
    "frame 1: atoms 0 and 1": lambda: Batcher([ETHANOL, Structure([1, 1], np.zeros((2, 3)))], 5.0)([0, 1]),
    "no structures": lambda: collate([], 5.0),
    "system 1 of 3 has no atoms": lambda: batch(z=[1, 1, 1], positions=np.eye(3), system=[0, 0, 2]),
    "system 1 of 2 has no atoms": lambda: batch(z=[1], positions=np.eye(3)[:1], cell=np.stack([9 * np.eye(3)] * 2)),
    "system holds -1": lambda: batch(z=[1, 1], positions=np.eye(3)[:2], system=[0, -1]),
    "cell has shape": lambda: batch(z=[1, 1], positions=np.eye(3)[:2], system=[0, 1], cell=9 * np.eye(3)[None]),
    "do not fit": lambda: batch(z=[1, 1], positions=[[0.0, 0, 0]]),
    "unknown element with atomic number 119": lambda: batch(z=[119], positions=[[0.0, 0, 0]]),
    "unknown element with atomic number 0": lambda: batch(z=[0], positions=[[0.0, 0, 0]]),
    "no volume": lambda: batch(z=[1], positions=[[0.0, 0, 0]], cell=np.zeros((3, 3))),
    "forces of a structure with 1 atoms": lambda: Structure([1], [[0, 0, 0]], forces=np.zeros((2, 3))),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises(InputError, match=message):
        BAD[message]()
