"""Optimisation of a user's function in one call, by a session."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import digest
from jaxbandit.core.declare import FilePath, KeyOrSeed, checked
from jaxbandit.core.fields import Check, Words, anything, check_call, each, whole
from jaxbandit.core.text import html_fields
from jaxbandit.domains import Domain
from jaxbandit.domains.regions import Constraints, SuchThat
from jaxbandit.session.axes import Axis
from jaxbandit.session.journal import JOURNAL, SessionError
from jaxbandit.session.quantities import Outputs, readable
from jaxbandit.session.session import SIMILAR, Session
from jaxbandit.session.settled import Settled
from jaxbandit.session.specification import Specification
from jaxbandit.study.runs import Model

if TYPE_CHECKING:
    import pandas as pd

exception_class = Check("a class of exceptions such as MemoryError", lambda kind: isinstance(kind, type) and issubclass(kind, Exception))


@dataclasses.dataclass(frozen=True, repr=False)
class Optimised:
    """Result of :func:`optimise`, printed as text or a notebook's table.

    It has all evaluations that have ended, failed ones included.

    Attributes:
      session: session of the search. Its ``recommend(probability)`` returns the probability that constraints hold, its ``plot()`` shows the
        beliefs, and its ``ask`` and ``tell`` continue the search.
    """

    session: Session

    @property
    def best(self) -> dict[str, float | str]:
        """Best measured point, by the names of the axes.

        It violates constraints least, if not :attr:`feasible`. If values show noise, it is the point of ``session.recommend()``.
        """
        return self.points[self._best]

    @property
    def values(self) -> dict[str, float]:
        """Values measured at :attr:`best`, by the names of the outputs."""
        columns = self._columns
        return {name: float(columns[name][self._best]) for name in self.session.specification.outputs.names}

    @property
    def feasible(self) -> bool:
        """Return whether the measured constraints hold at :attr:`best`."""
        return float(self._violation[self._best]) == 0

    @property
    def points(self) -> list[dict[str, float | str]]:
        """All points, in the order of their evaluation."""
        columns, names = self._columns, self.session.specification.space.names
        return [dict(zip(names, row, strict=True)) for row in zip(*(columns[name].tolist() for name in names), strict=True)]

    @property
    def table(self) -> pd.DataFrame:
        """Table of evaluations: point, values (NaN if failed), and best feasible value."""
        space, outputs = self.session.specification.space, self.session.specification.outputs
        return self.session.history().to_dataframe()[[*space.names, *outputs.names, "best_so_far"]][_ended(self.session)]

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        return {name: column[_ended(self.session)] for name, column in self.session.columns().items()}

    @property
    def _violation(self) -> np.ndarray:
        """Sum ``[n]`` of relative violations, infinite for failed evaluations."""
        columns, outputs = self._columns, self.session.specification.outputs
        each = [constraint.violation(columns[constraint.name]) for constraint in outputs.constraints]
        sizes = [np.nanmax(violation, initial=0) or 1.0 for violation in each]
        total = sum((violation / size for violation, size in zip(each, sizes, strict=True)), np.zeros(len(columns["ticket"])))
        return np.where(np.isfinite(total + columns[outputs.objective.name]), total, np.inf)

    @property
    def _best(self) -> int:
        objective, violation = self.session.specification.outputs.objective, self._violation
        if not np.isfinite(violation).any():
            raise SessionError("best: every evaluation failed, and there is no point to recommend")
        if self.session.shows_noise:
            there = np.flatnonzero((self._columns["index"] == self.session.recommend().index) & np.isfinite(violation))
            # The recommended point's run may not have ended.
            if there.size:
                return int(there[0])
        reward = np.where(violation == violation.min(), objective.sign * self._columns[objective.name], -np.inf)
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
        if (settled := self.session.settlement) is not None:
            facts.append(("settled", f"within {settled.within:g} with probability {settled.probability:.2g}"))
        return facts + [(name, ", ".join(f"{key}={readable(value)}" for key, value in held)) for name, held in best]


@checked
def optimise(
    function: Annotated[
        Callable[..., float | Mapping[str, float | None] | None],
        Check("a function of a point's coordinates by name", lambda value: callable(value) and not isinstance(value, type)),
    ],
    axes: Annotated[Mapping[str, Any] | Sequence[Axis] | Domain, anything],
    evaluations: Annotated[int, whole(1)],
    *,
    objective: str = "maximise reward",
    constraints: Sequence[str] = (),
    such_that: Constraints = (),
    similar: Annotated[object, SIMILAR] = (),
    algorithm: Algorithm | None = None,
    model: Annotated[Model, Words("the model of a session, study.Model(...)")] | None = None,
    key: KeyOrSeed = 0,
    directory: FilePath | None = None,
    stop: Settled | None = None,
    catch: Annotated[type[Exception] | Sequence[type[Exception]], exception_class | each(exception_class)] = (),
) -> Optimised:
    """Search for the best point of a function with sequential evaluations.

    ``optimise(lambda x, y: -(x**2) - y, {"x": (-1.0, 2.0), "y": (0.0, 1.0)}, 25).best`` is near ``{"x": 0, "y": 0}``. A session chooses the
    points: the initial design first, then the algorithm's points. Use a :class:`Session` for values that arrive late or in parts.

    After Ctrl-C the search returns its completed evaluations, if any. Another exception has them as its attribute ``optimised`` and names
    this attribute in a note.

    Args:
      function: called with a point's coordinates by name, ``function(x=0.5, y=1.0)``, in the user's units, with labels for categories. It
        returns the objective's value, or with constraints a mapping from the names of all outputs to values. A failed evaluation returns
        ``None``, or a mapping with ``None`` or a number that is not finite for missing values; the model uses the other values. The search
        never repeats the point of a failed evaluation.
      axes: a mapping from names to ``(low, high)``, :func:`domains.log <jaxbandit.domains.log>`,
        :func:`domains.integers <jaxbandit.domains.integers>` or texts, as for :func:`domains.box <jaxbandit.domains.box>`; or another
        ``domain`` of :meth:`Session.create`.
      evaluations: number of calls, including the initial design.
      objective: ``"maximise NAME"`` or ``"minimise NAME"``.
      constraints: ``"NAME <= c"``, ``"NAME >= c"``, both for one output, or ``"NAME = c +- tolerance"`` for each further output.
      such_that: constraints on the points themselves, known beforehand, such as ``"x + y <= 1"``, as for :meth:`Session.create`. The
        function is called at no other points.
      similar: sessions of similar functions, or their directories, as for :meth:`Session.create`. A search that continues in a directory
        keeps its first means.
      algorithm: any algorithm of a session; default constrained expected improvement, :class:`Cei(augmented=True) <jaxbandit.Cei>`.
      model: the GP model, as for :meth:`Session.create`; default: a fitted model.
      key: a JAX PRNG key, or its seed.
      directory: directory to write each value to at once; default: none. A search in the directory continues until ``evaluations`` have
        ended, an interrupted evaluation first. Its other arguments must be the same.
      stop: rule for an earlier end, such as ``Settled(within=0.1)``: the recommended point then loses at most 0.1 to the best point, with
        the rule's probability.
      catch: classes of exceptions that mean a failed evaluation, such as ``MemoryError``.

    Raises:
      InvalidArgument: if an argument is out of range, the function returns a wrong value, or the directory has another search.
      SessionError: if the evaluations at all points have failed, and as :meth:`Session.create` and :meth:`Session.open` do.
    """
    specification = Specification.of(
        axes,
        algorithm,
        objective=objective,
        constraints=constraints,
        such_that=such_that,
        model=model,
        key=key,
        # A search on a disk may be asked for more evaluations later.
        horizon=evaluations if directory is None else max(evaluations, Specification.horizon),
    )
    names = specification.space.names
    check_call("function", function, f"a function that can be called with {', '.join(names)} by name", **dict.fromkeys(names))
    if directory is None:
        session = Session.begin(None, specification, similar=similar)
    else:
        session = _session_in(Path(directory), specification, algorithm, such_that, similar)
    failures = tuple(catch) if isinstance(catch, Sequence) else (catch,)
    try:
        while np.count_nonzero(_ended(session)) < evaluations:
            ticket = next((ticket for ticket in session.pending if not ticket.observed), None)
            ticket = ticket or (session.ask() if stop is None else session.ask(stop=stop))
            if ticket is None:
                break
            try:
                outcome = function(**ticket.point)
            except failures:
                outcome = None
            values, has_failed = _values_of(outcome, specification.outputs)
            if values:
                # The second evaluation of an interrupted run replaces its earlier values.
                session.tell(ticket, values, correct=True)
            if has_failed:
                session.tell(ticket, failed=True)
    except BaseException as error:
        ended = np.count_nonzero(_ended(session))
        if ended and isinstance(error, KeyboardInterrupt):
            return Optimised(session)
        if ended:
            vars(error)["optimised"] = Optimised(session)
            goes_on = "" if directory is None else f", and optimise goes on with them in directory {str(directory)!r}"
            error.add_note(f"optimise: {ended} evaluations had ended; the attribute optimised of this exception holds them{goes_on}")
        raise
    return Optimised(session)


def _session_in(
    directory: Path, specification: Specification, algorithm: Algorithm | None, such_that: Sequence[SuchThat], similar: object
) -> Session:
    """Begin or open the directory's session, or raise ``InvalidArgument`` if it differs."""
    if not (directory / JOURNAL).exists():
        return Session.begin(directory, specification, similar=similar)
    functions = such_that if any(map(callable, such_that)) else None
    session = Session.open(directory, algorithm=algorithm, such_that=functions)
    if similar:
        # The similar session may have more values by now.
        specification = dataclasses.replace(specification, similar=session.specification.similar)
    before, now = session.specification.table(), specification.table()
    if others := [name for name in now | before if name != "horizon" and digest(before.get(name)) != digest(now.get(name))]:
        session.close()
        words = f"holds a search with another {', '.join(others)}"
        raise InvalidArgument(f"directory: {directory} {words}; choose another directory, or give the same arguments")
    return session


def _ended(session: Session) -> np.ndarray:
    """Return whether each ticket ``[n]`` has ended, complete or failed."""
    return np.isin(session.columns()["state"], ("complete", "failed", "dropped"))


def _values_of(outcome: object, outputs: Outputs) -> tuple[dict[str, float], bool]:
    """Return the values by name, and whether values are missing by failure."""
    values: Mapping[str, Any] = outcome if isinstance(outcome, Mapping) else {outputs.objective.name: outcome}
    try:
        lacking = [name for name in outputs.names if values.get(name) is None or not math.isfinite(values[name])]
    except (TypeError, ValueError, OverflowError) as error:
        words = "must return a number, or a mapping from the names of outputs to numbers"
        raise InvalidArgument(f"function: {words}, got {short(outcome)}") from error
    if values and lacking and all(name not in values for name in lacking):
        raise InvalidArgument(f"function: must return a value of {', '.join(lacking)}, too, got {short(outcome)}")
    return {name: value for name, value in values.items() if name not in lacking}, bool(lacking)
