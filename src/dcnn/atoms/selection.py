"""Which frames of a pool to label next: where a committee disagrees, and unlike each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dcnn.atoms.environments import fingerprint
from dcnn.atoms.potential import Potential
from dcnn.atoms.structures import Structure
from dcnn.errors import InputError, unknown

WAYS = ("both", "disagreement", "farthest")
MORE = 5  # times as many frames of high disagreement are the pool of the farthest, with "both"


def select(
    potential: Potential | None,
    pool: Sequence[Structure],
    count: int,
    by: str = "both",
    known: Sequence[Structure] = (),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[int], np.ndarray | None]:
    """Numbers of ``count`` frames of the pool, the most wanted first, and the disagreement (eV/Å) of every frame.

    by: "disagreement" takes those with the largest standard deviation of the force on an atom; "farthest" those that
    are farthest from all taken before and from ``known`` frames, by the smooth numbers of neighbours around their
    atoms (:func:`~dcnn.atoms.environments.fingerprint`), and needs no potential; "both" the farthest among those of
    highest disagreement.
    """
    if by not in WAYS:
        raise unknown("way to select", by, WAYS)
    if not 1 <= count <= len(pool):
        raise InputError(f"{count} frames are to be selected of {len(pool)}")
    spread = None
    candidates = np.arange(len(pool))
    if by != "farthest":
        spread = disagreement(potential, pool, progress)
        candidates = np.argsort(-spread, kind="stable")[: count if by == "disagreement" else MORE * count]
        if by == "disagreement":
            return candidates.tolist(), spread
    chosen = farthest([pool[int(n)] for n in candidates], count, known)
    return [int(candidates[n]) for n in chosen], spread


def disagreement(
    potential: Potential | None, pool: Sequence[Structure], progress: Callable[[int, int], None] | None = None
) -> np.ndarray:
    """(frames,) the largest standard deviation of a force in every frame, eV/Å."""
    spread = [] if potential is None else [f.info.get("force_std_eV_A") for f in potential.predict(pool, progress)]
    if not spread or spread[0] is None:
        raise InputError("disagreement needs a committee: give several runs, or use by='farthest'")
    return np.array(spread, float)


def farthest(frames: Sequence[Structure], count: int, known: Sequence[Structure] = ()) -> list[int]:
    """Farthest-point sampling: each next frame has the largest distance to its nearest among the known and chosen."""
    elements = sorted({z for frame in (*frames, *known) for z in np.unique(frame.z).tolist()})
    points = np.stack([fingerprint(frame, elements) for frame in frames])  # (M, D)
    if known:
        others = np.stack([fingerprint(frame, elements) for frame in known])
        nearest = np.min([np.square(points - other).sum(1) for other in others], axis=0)
        chosen = []
    else:
        chosen = [0]  # candidates come with the most wanted first
        nearest = np.square(points - points[0]).sum(1)
    while len(chosen) < count:
        nearest[chosen] = -1.0
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(1))
    return chosen
