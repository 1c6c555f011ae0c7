"""Which frames make up the batches of an epoch: from seed and epoch alone, so that a resumed run has the same."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dcnn.errors import InputError

RATIO = 1.25  # of the sizes in a bucket: a batch is filled to 80 % at least


def frames_per_batch(given: int | str, sizes: np.ndarray) -> int:
    """Frames of a batch: as given, or "auto": as few as have 90 atoms together, of the one molecule that all show.

    That is what was best for ethanol (10) and for aspirin (5); where frames differ in size nothing was tried: 10.
    """
    if isinstance(given, int):
        return given
    return -(-90 // int(sizes[0])) if len(np.unique(sizes)) == 1 else 10


class BatchPlan:
    """Batches of ``batch_size`` of ``count`` frames, or of frames of like size with at most ``most`` in all.

    ``sizes`` (M,) are atoms or pairs of the frames. The frames of a bucket, whose sizes lie within a factor of 1.25,
    are dealt into batches of one length, so that few shapes of batches occur; what is left over makes a shorter one.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, sizes: np.ndarray | None = None, most: int | None = None
    ) -> None:
        self.count, self.seed = count, seed
        self._bucket: np.ndarray | None = None
        if sizes is None or most is None:
            self.batch_size = min(batch_size, count)
            self.steps = count // self.batch_size
            return
        if sizes.max() > most:
            raise InputError(
                f"training.batch_atoms or batch_edges is {most}, but training frame {int(sizes.argmax())} alone has "
                f"{sizes.max()}; give at least that"
            )
        levels = np.floor(np.log(np.maximum(sizes, 1)) / np.log(RATIO)).astype(np.int64)
        _, self._bucket = np.unique(levels, return_inverse=True)
        held = np.bincount(self._bucket)
        largest = np.zeros(len(held), np.int64)
        np.maximum.at(largest, self._bucket, sizes)
        length = most // np.maximum(largest, 1)
        first = np.cumsum(held) - held
        self._starts = np.concatenate([np.arange(a, a + n, k) for a, n, k in zip(first, held, length, strict=True)])
        self.steps = len(self._starts)
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def frames(self, epoch: int, step: int, rank: int = 0, world: int = 1) -> np.ndarray:
        """The frames of a batch that one of several processes takes; a batch of fewer frames than that repeats some."""
        order, starts, stops = self._order(epoch)
        found = order[starts[step] : stops[step]]
        return (found if len(found) >= world else np.resize(found, world))[rank::world]

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._bucket is not None:
            return self._epoch(epoch)
        return _permuted(self.seed, epoch, self.count, self.batch_size)

    def _shuffled(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(self.count)
        assert self._bucket is not None
        order = order[np.argsort(self._bucket[order], kind="stable")]
        stops = np.append(self._starts[1:], self.count)
        turn = random.permutation(self.steps)
        return order, self._starts[turn], stops[turn]


@lru_cache(maxsize=4)
def _permuted(seed: int, epoch: int, count: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.random.default_rng([seed, epoch]).permutation(count)
    starts = np.arange(0, count - size + 1, size)
    return order, starts, starts + size
