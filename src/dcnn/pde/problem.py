"""A PDE as a short readable class: domain, fields, residuals, conditions and, if known, its solution."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dcnn.errors import InputError, unknown
from dcnn.pde.boundary import Neumann
from dcnn.pde.conditions import Condition, Periodic, Sampled
from dcnn.pde.dry_run import dry_run
from dcnn.pde.flux import plain_value, quantities
from dcnn.pde.geometry import Shape
from dcnn.pde.known_solution import known_solution
from dcnn.pde.named_field import Field, call_by_name
from dcnn.pde.problem_source import line_of, prefixed, source_text, users_file
from dcnn.pde.solution import Solution


@dataclass(frozen=True)
class Collocation:
    """How many points a problem is trained on, and how they are drawn.

    With `shared`, as in the published scripts, residuals are also evaluated on the boundary and initial
    points, and conditions pick their points among all of them instead of drawing their own.
    """

    domain: int = 4096
    boundary: int = 512
    initial: int = 1024
    distribution: str = "sobol"
    shared: bool = False


@dataclass(frozen=True)
class Hard:
    """A field that meets conditions by construction: u = lift + factor · network.

    `lift` and `factor` are functions of coordinates (by argument name); `satisfies` names the terms that
    are exactly zero then and need not be trained. With `begin` the lift is the field until that time: no equation is
    taken before it, and the factor should vanish there.
    """

    factor: Callable[..., Tensor]
    lift: Callable[..., Tensor]
    satisfies: tuple[str, ...] = ()
    begin: float | None = None


class Problem:
    """Base of all problems. A subclass states what is below; see ``examples/my_problem.py``.

    ``residuals`` takes arguments by name: fields (``u``, with ``u.x``, ``u.xx``, ``u.xt`` …), coordinates
    (tensors (N,)) and ``everywhere`` (values of all fields on all rows of a batch, ``everywhere.u``).
    Parameters and options are read as ``self.<name>``; a trainable parameter is a tensor. A parameter that is given as
    (low, high) is an input of the network before the coordinates, and a tensor (N,) in what is evaluated at points.
    """

    name: ClassVar[str] = ""
    coordinates: tuple[str, ...] = ()
    domain: Mapping[str, tuple[float, float]] = {}
    shape: Shape | None = None  # of the space axes, if it is no box; `domain` then needs the time only
    fields: ClassVar[tuple[str, ...]] = ()
    parameters: Mapping[str, Any] = {}
    ranges: Mapping[str, tuple[float, float]] = {}  # of those parameters that are inputs of the network
    options: ClassVar[Mapping[str, Any]] = {}
    periodic: ClassVar[Mapping[str, float]] = {}  # axis -> period, for inputs that are periodic by construction
    reflecting: ClassVar[tuple[str, ...]] = ()  # axes whose walls mirror: for inputs with no normal derivative there
    collocation: ClassVar[Collocation] = Collocation()
    trainable: ClassVar[str | Sequence[str]] = ()  # parameters that are learnt from data, unless it is said otherwise
    confined: ClassVar[bool] = True  # whether data outside the domain are a mistake
    expensive: ClassVar[bool] = False  # whether `solve` takes seconds, so that its result is kept on disk

    residuals: Callable[..., dict[str, Tensor]]
    flux_form: bool  # set by the dry run of residuals that differentiate products, (k * u.x).x

    def __init__(self, trainable: str | Sequence[str] | None = None, **given: Any):
        if self.shape is not None:
            corners = zip(*(corner.tolist() for corner in self.shape.bounds()), strict=True)
            self.domain = {**dict(zip(self.space, corners, strict=False)), **self.domain}
        self._check_statement()
        for key in given:
            if key not in (*self.parameters, *self.options):
                raise unknown(f"parameter of {self.where}", key, (*self.parameters, *self.options, "trainable"))
        stated = {key: given.get(key, value) for key, value in self.parameters.items()}
        self.ranges = {k: self._range(k, v) for k, v in stated.items() if isinstance(v, list | tuple)}
        middle = {key: (low + high) / 2 for key, (low, high) in self.ranges.items()}
        numbers = {key: _number(self.where, key, value) for key, value in {**stated, **middle}.items()}
        self.parameters = numbers
        if self.ranges:
            self.coordinates, self.domain = (*self.ranges, *self.coordinates), {**self.ranges, **self.domain}
        self.settings = {key: given.get(key, value) for key, value in self.options.items()}
        self.measurements: tuple[Condition, ...] = ()
        self.unknowns = nn.ParameterDict()
        learnt = type(self).trainable if trainable is None else trainable
        for key in (learnt,) if isinstance(learnt, str) else learnt:
            if key not in numbers or key in self.ranges:
                raise unknown(f"trainable parameter of {self.where}", key, {*numbers} - {*self.ranges})
            self.unknowns[key] = nn.Parameter(torch.tensor(numbers[key], dtype=torch.get_default_dtype()))

    def __getattr__(self, key: str) -> Any:
        if not key.startswith("_"):
            if key in self.ranges and isinstance(self.parameters[key], float):
                raise InputError(
                    f"{self.where}: {key} has the range {self.ranges[key]}, so a value only at points: in residuals "
                    f"and in functions, as in Dirichlet(u=lambda {key}: 2 * {key})"
                )
            for values in (self.unknowns, self.parameters, self.settings):
                if key in values:
                    return values[key]
        raise AttributeError(
            f"{type(self).__name__} has no {key!r}; parameters: {', '.join(self.parameters) or 'none'}"
        )

    # ---- what a subclass may state beyond the attributes above -------------------------------------------

    def conditions(self) -> Sequence[Condition]:
        """Initial and boundary conditions, measured data."""
        return ()

    def hard_constraints(self) -> dict[str, Hard]:
        """Output transforms per field by which conditions can hold exactly; empty if there are none."""
        return {}

    def features(self) -> dict[str, Callable[..., Tensor]]:
        """Functions of the coordinates, known without solving anything, that a network may take as inputs."""
        return {}

    def scales(self) -> dict[str, tuple[float, float]]:
        """(offset, unit) per field such that (field − offset) / unit is of order one."""
        return dict.fromkeys(self.fields, (0.0, 1.0))

    def solve(self) -> Solution | None:
        """The solution on a grid, computed; None if there is no way to know it."""
        return None

    # ---- what a trainer uses ------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """The name of the problem, or the file it was written in, for messages."""
        path = users_file(type(self))
        return str(path) if path is not None else self.name or type(self).__name__

    def source(self) -> str | None:
        """Text from which a run folder can define the problem again; None if it was not written down anywhere."""
        return source_text(type(self))

    def axis(self, coordinate: str) -> int:
        """Column of a coordinate."""
        if coordinate not in self.coordinates:
            raise unknown(f"coordinate of {self.where}", coordinate, self.coordinates)
        return self.coordinates.index(coordinate)

    @property
    def space(self) -> list[str]:
        """The coordinates but time."""
        return [c for c in self.coordinates if c != "t" and c not in self.ranges]

    def inside(self, points: Tensor) -> Tensor:
        """Which points (N, coordinates) of the box around the domain are in it."""
        if self.shape is None:
            return torch.ones(len(points), dtype=torch.bool, device=points.device)
        return self.shape.distance(points[:, [self.axis(c) for c in self.space]]) < 0

    def stretch(self, unit: Tensor) -> Tensor:
        """Points of the domain (N, coordinates) from points of the unit cube."""
        low, high = torch.tensor([self.domain[c] for c in self.coordinates], dtype=unit.dtype).to(unit).T
        return low + (high - low) * unit

    def named_fields(self, partials: Mapping[str, Tensor]) -> dict[str, Field]:
        """The objects that ``residuals`` computes with, from partial derivatives (N, fields)."""
        return {f: Field(f, i, partials, self.coordinates) for i, f in enumerate(self.fields)}

    def evaluate(
        self, partials: Mapping[str, Tensor], points: Tensor, everywhere: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Residuals (N,) by name from the partial derivatives at `points`.

        `everywhere` (M, fields): values on all rows of the batch, for problems with ``needs_everywhere``.
        """
        rows = partials[""] if everywhere is None else everywhere
        available = {
            **self.named_fields(partials),
            **dict(zip(self.coordinates, points.unbind(1), strict=True)),
            "everywhere": SimpleNamespace(**dict(zip(self.fields, rows.unbind(1), strict=True))),
        }
        if self.__dict__.get("flux_form"):
            available |= quantities(self.fields, self.coordinates, partials, points)
            named = self.call(self.residuals, available, "residuals")
            return {name: plain_value(residual) for name, residual in named.items()}
        found: dict[str, Tensor] = self.call(self.residuals, available, "residuals")
        return found

    def call(self, function: Callable[..., Any], available: Mapping[str, Any], what: str) -> Any:
        """`function` with what it names of `available`; meanwhile `self.nu` of a range is its value at the points."""
        numbers = self.parameters
        self.parameters = {**numbers, **{name: available[name] for name in self.ranges}}
        try:
            return call_by_name(function, available, f"{self.where}: {what}")
        finally:
            self.parameters = numbers

    @cached_property
    def _dry_run(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return dry_run(self)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Partial derivatives that the residuals use, e.g. ("", "t", "x"); the value "" always first."""
        return self._dry_run[0]

    @property
    def equations(self) -> tuple[str, ...]:
        """Names of the residuals."""
        return self._dry_run[1]

    @property
    def needs_everywhere(self) -> bool:
        """Whether a residual at one point depends on the values at all others (a quirk of the scripts)."""
        return "everywhere" in inspect.signature(self.residuals).parameters

    def soft_conditions(self, embedded: bool = False, hard: bool = False) -> list[Condition]:
        """The conditions that must be trained, checked.

        Periodic ones, and those of no flow through a wall that mirrors, fall away if the network's inputs are
        `embedded` accordingly, those that :meth:`hard_constraints` satisfies if they are used (`hard`).
        """
        exact = {name for h in self.hard_constraints().values() for name in h.satisfies} if hard else set()
        found = []
        try:
            for condition in (*self.conditions(), *self.measurements):
                terms = condition.terms(self)
                condition.wanted(self)
                if not (embedded and self._by_inputs(condition)) and not exact.issuperset(terms):
                    found.append(condition)
        except InputError as error:
            raise InputError(prefixed(self.where, str(error))) from None
        return found

    def _by_inputs(self, condition: Condition) -> bool:
        if isinstance(condition, Neumann):
            walls = all(axis in self.reflecting for axis in condition.axes(self))
            return walls and all(value == 0 for value in condition.values.values())
        return isinstance(condition, Periodic) and condition.along in self.periodic

    def reference(self) -> Solution | None:
        """The known solution; an expensive one comes from the user's cache directory if it is there."""
        return self._reference

    def solution(self) -> Solution:
        """The reference of a problem that must have one."""
        found = self.reference()
        if found is None:
            raise InputError(f"{self.where}: no known solution (its `solve` returns none)")
        return found

    @cached_property
    def _reference(self) -> Solution | None:
        return known_solution(self)

    def identity(self) -> dict[str, Any]:
        """The problem by name, with its parameters and options."""
        return {"problem": self.where, **self.stated, **{k: str(v) for k, v in self.settings.items()}}

    @property
    def stated(self) -> dict[str, Any]:
        """The parameters as they were given: numbers, and ranges as (low, high)."""
        return {**self.parameters, **self.ranges}

    def with_settings(self, **changes: Any) -> Problem:
        """The same problem with other parameters or options."""
        twin = type(self)(trainable=tuple(self.unknowns), **{**self.stated, **self.settings, **changes})
        twin.measurements = self.measurements
        return twin

    def with_data(self, points: Any, **values: Any) -> Problem:
        """The same problem with measured values of fields at points (N, coordinates), to learn parameters from."""
        twin = copy.copy(self)
        twin.measurements = (*self.measurements, Sampled(points, **values))
        return twin

    def settled(self) -> Problem:
        """The same problem with its learnt parameters, as they are now, for known ones."""
        learnt = {name: float(value.detach()) for name, value in self.unknowns.items()}
        return type(self)(trainable=(), **{**self.stated, **self.settings, **learnt})

    def check(self) -> None:
        """Raise an :class:`InputError` if the residuals or conditions cannot be evaluated."""
        _ = self.wanted
        unit = torch.rand(4, len(self.coordinates), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        try:
            stated = self.soft_conditions()
            for condition in stated:
                condition.prepare(self, condition.place(self, unit))
        except InputError as error:
            raise InputError(prefixed(self.where, str(error))) from None
        except Exception as error:
            line = line_of(error, type(self))
            raise InputError(f"{self.where}: conditions{line}: {type(error).__name__}: {error}") from error

    @property
    def has_data(self) -> bool:
        """Whether there are measured values, from which parameters can be learnt."""
        return any(c.kind == "data" and c.name != "initial" for c in self.soft_conditions())

    def check_posed(self) -> None:
        """Raise an :class:`InputError` if nothing makes one solution, or one value of a learnt parameter, right."""
        self.check()
        stated = self.soft_conditions()
        if not stated:
            raise InputError(
                f"{self.where}: no conditions: every constant may be a solution. State them, e.g. "
                f"def conditions(self): return [Initial({self.fields[0]}=0.0)]"
            )
        if self.unknowns and not self.has_data:
            raise InputError(
                f"{self.where}: {', '.join(self.unknowns)} is to be learnt, but there are no data to learn it from; "
                f"use with_data(points, {self.fields[0]}=values), or add Sampled(…) to the conditions"
            )

    def _check_statement(self) -> None:
        for attribute in ("coordinates", "domain", "fields"):
            if not getattr(self, attribute):
                raise InputError(f"{self.where}: {type(self).__name__} states no {attribute}")
        if not callable(getattr(type(self), "residuals", None)):
            raise InputError(f"{self.where}: {type(self).__name__} has no method residuals(self, {self.fields[0]})")
        for key in {*self.domain} ^ {*self.coordinates}:
            raise unknown(f"coordinate in the domain of {self.where}", key, self.coordinates)
        for key, bounds in self.domain.items():
            if not (len(bounds) == 2 and bounds[0] < bounds[1]):
                raise InputError(f"{self.where}: domain of {key!r} must be (low, high), found {bounds}")
        if self.shape is not None and len(self.shape.bounds()[0]) != len(self.space):
            axes = len(self.shape.bounds()[0])
            raise InputError(f"{self.where}: a shape of {axes} dimensions, but space has {', '.join(self.space)}")
        if any(len(c) != 1 for c in self.coordinates) or {*self.fields} & {*self.coordinates}:
            raise InputError(f"{self.where}: coordinates are single letters and differ from the fields")

    def _range(self, key: str, given: Sequence[Any]) -> tuple[float, float]:
        bounds = tuple(_number(self.where, key, value) for value in given)
        if len(bounds) != 2 or not bounds[0] < bounds[1]:
            raise InputError(f"{self.where}: the range of {key} must be (low, high), found {given}")
        if key in self.fields or set(key) <= set(self.coordinates):
            raise InputError(f"{self.where}: {key} cannot have a range: fields or derivatives are written so")
        return bounds

    def __deepcopy__(self, memo: dict[int, Any]) -> Problem:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update({key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()})
        return twin


def _number(where: str, key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: parameter {key} must be a number, found {value!r}") from None
