"""What every weighting of loss terms has in common: its interface, its names and the state it saves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dcnn.errors import InputError, unknown
from dcnn.losses.terms import Term


class Weighting(ABC):
    """Makes one scalar of the values of named terms.

    The weight of a :class:`Term` is the user's; an adaptive weighting multiplies it by a factor of its own,
    so that with all weights 1 a method is the one of its paper. ``current`` holds the products last used.
    """

    state: ClassVar[tuple[str, ...]] = ()
    """Attributes that a checkpoint must hold."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = {term.name: term for term in terms}
        if not terms or len(self.terms) != len(terms):
            raise InputError(f"a weighting needs terms of different names, not {[term.name for term in terms]}")
        self.current: dict[str, float] = {}

    @abstractmethod
    def combine(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The scalar to call ``backward`` on.

        values: {name: scalar} of the terms computed at this step. parameters of the network, and residuals,
        {name: tensor}, are for weightings that compare gradients; ours do not.
        """

    def parameters(self) -> list[nn.Parameter]:
        """What the optimiser must train beside the network (only :class:`Uncertainty` has any)."""
        return []

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> None:
        """Moves the trainable weights, in place."""
        for parameter in self.parameters():
            parameter.data = parameter.data.to(device=device, dtype=dtype)

    def report(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{name_raw, name_weighted} of every term, detached, with the weights last used."""
        raw = {f"{name}_raw": value.detach() for name, value in values.items()}
        return raw | {f"{name}_weighted": self.current[name] * v.detach() for name, v in values.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on as if never stopped."""
        saved: dict[str, Any] = {"weighting": type(self).__name__, "terms": list(self.terms)}
        for name in self.state:
            value = getattr(self, name)
            saved[name] = value.detach().clone() if isinstance(value, Tensor) else deepcopy(value)
        return saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what :meth:`state_dict` saved."""
        ours = (type(self).__name__, list(self.terms))
        theirs = (state.get("weighting"), state.get("terms"))
        if ours != theirs:
            raise InputError("the saved state is of {} on {}, but this is {} on {}".format(*theirs, *ours))
        for name in self.state:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                value.data.copy_(state[name])  # in place: the optimiser holds this very parameter
            else:
                setattr(self, name, deepcopy(state[name]))

    def _active(self, values: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        """The values whose weight at this step is not zero; ``current`` starts as the user's weights."""
        for name in values:
            if name not in self.terms:
                raise unknown("term", name, self.terms)
        self.current = {name: self.terms[name].weight_at(step) for name in values}
        found = {name: value for name, value in values.items() if self.current[name] != 0}
        if not found:
            raise InputError(f"no term has a weight at step {step}: there is nothing to minimise")
        return found


class Fixed(Weighting):
    """Σ wᵢ Lᵢ with the weights (or schedules) of the terms."""

    def combine(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Σ wᵢ Lᵢ."""
        found = self._active(values, step)
        return torch.stack([self.current[name] * value for name, value in found.items()]).sum()
