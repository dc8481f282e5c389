"""``optimise``: the best point of a user's function in one call; a session in memory asks for points and is told values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from jaxbandit.algorithms import Algorithm, Cei
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import KeyOrSeed, checked
from jaxbandit.core.fields import Check, Words, anything, whole
from jaxbandit.core.pytree import html_fields
from jaxbandit.domains import Domain
from jaxbandit.session.axes import Axis
from jaxbandit.session.journal import SessionError
from jaxbandit.session.quantities import readable
from jaxbandit.session.session import Session
from jaxbandit.study.runs import Model

if TYPE_CHECKING:
    import pandas as pd

Outcome: TypeAlias = float | Mapping[str, float] | None
"""Value of the objective, values of all outputs by name, or ``None`` of an evaluation that failed."""
FUNCTION = Check("a function of a point's coordinates by name", lambda value: callable(value) and not isinstance(value, type))


@dataclasses.dataclass(frozen=True, repr=False)
class Optimised:
    """Outcome of :func:`optimise`; it shows itself as text and, in notebooks, as a table.

    Attributes:
      session: the session that asked for the points: its ``recommend()`` goes by what is believed, as noise asks for, its ``plot()`` shows
        that, and ``ask`` and ``tell`` go on with it.
    """

    session: Session

    @property
    def best(self) -> dict[str, float | str]:
        """The point of the best value measured where all constraints held, by the names of the axes; see :attr:`feasible`."""
        points: list[dict[str, float | str]] = self.points
        return points[self._best]

    @property
    def values(self) -> dict[str, float]:
        """The values measured at :attr:`best`, by the names of the outputs."""
        columns = self.session.columns()
        return {name: float(columns[name][self._best]) for name in self.session.specification.outputs.names}

    @property
    def feasible(self) -> bool:
        """Return whether all constraints were measured to hold at :attr:`best`; else it is the point where they were violated least."""
        return float(self._violation[self._best]) == 0

    @property
    def points(self) -> list[dict[str, float | str]]:
        """All points, in the order of their evaluation."""
        columns, names = self.session.columns(), self.session.specification.space.names
        return [dict(zip(names, row, strict=True)) for row in zip(*(columns[name].tolist() for name in names), strict=True)]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each evaluation: its point, its values, NaN where it failed, and the best value so far where constraints held."""
        space, outputs = self.session.specification.space, self.session.specification.outputs
        return self.session.history().to_dataframe()[[*space.names, *outputs.names, "best_so_far"]]

    @property
    def _violation(self) -> np.ndarray:
        """Sum ``[n]`` over constraints of how far each was violated, as shares of the largest violation; infinity of what failed."""
        columns, outputs = self.session.columns(), self.session.specification.outputs
        each = [constraint.violation(columns[constraint.name]) for constraint in outputs.constraints]
        sizes = [np.nanmax(violation, initial=0) or 1.0 for violation in each]
        total = sum((violation / size for violation, size in zip(each, sizes, strict=True)), np.zeros(len(columns["ticket"])))
        return np.where(np.isfinite(total + columns[outputs.objective.name]), total, np.inf)

    @property
    def _best(self) -> int:
        objective, violation = self.session.specification.outputs.objective, self._violation
        if not np.isfinite(violation).any():
            raise SessionError("best: every evaluation failed, and there is no point to recommend")
        reward = np.where(violation == violation.min(), objective.sign * self.session.columns()[objective.name], -np.inf)
        return int(np.argmax(reward))

    def __repr__(self) -> str:
        return f"Optimised({'; '.join(f'{name}: {text}' for name, text in self._in_brief())})"

    def _repr_html_(self) -> str:
        return html_fields("Optimised", self._in_brief())

    def _in_brief(self) -> list[tuple[str, str]]:
        count, failed = len(self._violation), int(np.isinf(self._violation).sum())
        facts = [("evaluations", f"{count}{f', {failed} failed' if failed else ''}")]
        if failed == count:
            return facts
        best = [("best" if self.feasible else "least violating", self.best.items()), ("values", self.values.items())]
        return facts + [(name, ", ".join(f"{key}={readable(value)}" for key, value in held)) for name, held in best]


@checked
def optimise(
    function: Annotated[Callable[..., Outcome], FUNCTION],
    axes: Annotated[Mapping[str, Any] | Sequence[Axis] | Domain, anything],
    evaluations: Annotated[int, whole(1)],
    *,
    objective: str = "maximise reward",
    constraints: Sequence[str] = (),
    algorithm: Algorithm | None = None,
    model: Annotated[Model, Words("the model of a session, study.Model(...)")] | None = None,
    key: KeyOrSeed = 0,
) -> Optimised:
    """Look for the best point of a function, which is called once for each of so many points, one after another.

    ``optimise(lambda x, y: -(x**2) - y, {"x": (-1.0, 2.0), "y": (0.0, 1.0)}, 25).best`` is near ``{"x": 0, "y": 0}``. A session in memory
    asks for the points: the initial design first, then those of the algorithm. What is to survive a crash, or comes late or in parts, wants
    a :class:`Session` on a disk.

    Args:
      function: called with a point's coordinates by name, ``function(x=0.5, y=1.0)``, in the user's units; categories are their labels. It
        returns the objective's value, or where there are constraints a mapping from the names of all outputs to values. Of an evaluation
        that failed it returns ``None``, or a value that is not finite. What it raises ends the search.
      axes: by name ``(low, high)``, :func:`domains.log <jaxbandit.domains.log>` or
        :func:`domains.integers <jaxbandit.domains.integers>` of such, or texts, as for :func:`domains.box <jaxbandit.domains.box>`; or what
        :meth:`Session.create` takes.
      evaluations: number of calls, those of the initial design included.
      objective: ``"maximise NAME"`` or ``"minimise NAME"``.
      constraints: ``"NAME <= c"``, ``"NAME >= c"`` or ``"NAME = c +- tolerance"`` for each further output.
      algorithm: any algorithm of a session; default constrained expected improvement, :class:`~jaxbandit.Cei`.
      model: the GP model, as for :meth:`Session.create`; default one that is fitted.
      key: a JAX PRNG key, or its seed.

    Raises:
      InvalidArgument: on any argument out of range, and on what the function returns that is no value of the outputs.
    """
    parts: dict[str, Any] = {"objective": objective, "constraints": constraints, "key": key, "horizon": evaluations}
    session = Session.create(None, axes, Cei() if algorithm is None else algorithm, model, **parts)
    name = session.specification.outputs.objective.name
    for _ in range(evaluations):
        ticket = session.ask()
        outcome = function(**ticket.point)
        values = outcome if isinstance(outcome, Mapping) else {} if outcome is None else {name: outcome}
        try:
            finite = bool(values) and all(math.isfinite(value) for value in values.values())
        except TypeError as error:
            words = "must return a number, or a mapping from the names of outputs to numbers"
            raise InvalidArgument(f"function: {words}, got {short(outcome)}") from error
        if not finite:
            session.drop(ticket)
            continue
        if missing := [name for name in session.specification.outputs.names if name not in values]:
            raise InvalidArgument(f"function: must return a value of {', '.join(missing)}, too, got {short(outcome)}")
        session.tell(ticket, values)
    return Optimised(session)
