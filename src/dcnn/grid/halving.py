"""Asynchronous successive halving (ASHA, arXiv 1810.05934): at every rung only the best third goes on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

#: Shares of a trial's budget at which it is compared, and how many go on: one in three.
RUNGS, REDUCTION = (0.11, 0.33, 0.99), 3


class Halving:
    """The scores that trials had when they came to each rung; a lower score is better."""

    def __init__(self) -> None:
        self._scores: dict[float, dict[str, float]] = {rung: {} for rung in RUNGS}

    def lags(self, trial: str, history: Iterable[tuple[float, float]]) -> bool:
        """Whether a trial is to be given up, by its history of (share of the budget, score).

        It is compared with those that came to the rung before it: nobody waits, and the first one always goes on.
        """
        reached = list(history)
        for rung, scores in self._scores.items():
            score = next((score for share, score in reached if share >= rung), None)
            if score is None or trial in scores:
                continue
            before = list(scores.values())
            scores[trial] = score
            if before and not score <= np.quantile(before, 1 / REDUCTION):
                return True
        return False
