"""A task with terms, metrics or a weighting of the user's own beside its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.losses import Term, Weighting
from dcnn.train.loop import Task

OwnTerm = Callable[[nn.Module, Any], Tensor] | tuple[Callable[[nn.Module, Any], Tensor], float]
Metric = Callable[[nn.Module, Task, str], float]


class ExtendedTask:
    """`terms`: {name: function(network, batch) → residual, or (function, weight)}. `metrics`: {name: function(network,
    task, split) → number}. `weighting`: made of all terms.
    """

    def __init__(
        self,
        task: Task,
        terms: Mapping[str, OwnTerm],
        metrics: Mapping[str, Metric],
        weighting: Callable[[Sequence[Term]], Weighting] | None,
    ) -> None:
        self.inner, self.metrics = task, dict(metrics)
        self._own = {name: term if isinstance(term, tuple) else (term, 1.0) for name, term in terms.items()}
        if double := {term.name for term in task.terms} & self._own.keys():
            raise InputError(f"terms={{{double.pop()!r}: …}}: the task has a term of that name already")
        self.terms = (*task.terms, *(Term(name, weight) for name, (_, weight) in self._own.items()))
        make: Any = weighting or type(task.weighting)
        self.weighting: Weighting = make(self.terms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def residuals(self, network: nn.Module, batch: Any) -> dict[str, Tensor]:
        own = {name: function(network, batch) for name, (function, weight) in self._own.items() if weight != 0}
        return self.inner.residuals(network, batch) | own

    def evaluate(self, network: nn.Module, split: str) -> dict[str, Any]:
        found = self.inner.evaluate(network, split)
        return found | {name: float(metric(network, self.inner, split)) for name, metric in self.metrics.items()}
