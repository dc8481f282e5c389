"""Equality constraints: ``h(x) = 0`` as the two inequalities ``h(x) <= 0`` and ``-h(x) <= 0``, observed by one noisy reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Words, nonnegative, of_class, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Key, PerConstraint, PerFunction, Table
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.delays import Mirrored as MirroredDelay
from jaxbandit.domains import Domain
from jaxbandit.problems.base import AbstractProblem, Family, Problem
from jaxbandit.problems.full_information import FullInformation
from jaxbandit.problems.noise import Mirrored, Noise

__all__ = ["Equalities", "with_equalities"]


@pytree
class Equalities(Family):
    """A random family some of whose constraints are equalities; make one with :func:`with_equalities`.

    Attributes:
      family: the family inside, with one output for each equality.
      domain: the ``M`` points.
      noise: the family's noise model, mirrored.
      delay: the family's delay model; the two outputs of an equality arrive together.
      tolerance: largest ``|h| >= 0`` that counts as 0, one number or ``[e]``, one per equality.
      doubled: numbers of the outputs of ``family`` that are equalities, ascending; the first constraint is output 1.
      name: label of the problem in tables, figures and files.
    """

    family: Annotated[Family, Words("a random family of jaxbandit.problems")]
    domain: Domain
    noise: Noise
    delay: Delay
    tolerance: Annotated[PerFunction, nonnegative]
    doubled: tuple[int, ...] = static()
    name: str = static(default="equalities")

    @property
    def constraints(self) -> int:
        """Number of constraints, ``m``; every equality counts as two."""
        return int(self.family.constraints) + len(self.doubled)

    @checked
    def sample(self, key: Key) -> Problem:
        """Return the instance that belongs to ``key``: that of the family inside, with its equalities as pairs of inequalities."""
        instance = self.family.sample(key)
        return replace(instance, means=_pairs(instance.means, self.doubled, self.tolerance), noise=self.noise, delay=self.delay)

    def validate(self) -> None:
        super().validate()
        self.family.validate()


KINDS = (
    of_class(Problem, "a Problem of jaxbandit.problems")
    | of_class(Family, "a random family")
    | of_class(FullInformation, "either under full information")
)


@checked
def with_equalities(
    problem: Annotated[AbstractProblem, KINDS],
    constraints: Sequence[Annotated[int, whole(1)]] | None = None,
    *,
    tolerance: Annotated[PerFunction, nonnegative],
) -> Problem | FullInformation | Equalities:
    """Return a problem that asks for ``h(x) = 0``, up to a tolerance, where ``problem`` asks for ``h(x) <= 0``.

    The output of ``h`` becomes two: ``h - tolerance`` and, after it, ``-h - tolerance``, both ``<= 0``; all algorithms take them as
    they take any two constraints. One noisy reading ``y`` of ``h``, the same as ``problem`` itself would have given, determines both
    observations, ``y - tolerance`` and ``-y - tolerance``.

    A grid seldom has points where ``h`` is 0: choose a tolerance of at least half the change of ``h`` between neighbours, or no point
    is feasible and every trial is flagged. A surrogate with ``prior_mean=-tolerance`` for both outputs has the bands of ``h`` itself
    about a prior mean of 0.

    Args:
      problem: a :class:`~jaxbandit.problems.Problem`, a random family, or either under full information.
      constraints: numbers of the equalities among ``1..m``; default all.
      tolerance: the largest ``|h|`` that counts as 0, ``>= 0``, in the units of ``h``: one number, or one per equality.

    Returns:
      A problem of the same kind, with ``m + e`` constraints.

    Raises:
      InvalidArgument: on another kind of problem, a constraint that the problem does not have, or named twice, or a tolerance out of
        range.
    """
    if isinstance(problem, FullInformation):
        return replace(problem, problem=with_equalities(problem.problem, constraints, tolerance=tolerance))
    most = problem.constraints
    chosen = tuple(range(1, most + 1)) if constraints is None else tuple(int(n) for n in constraints)
    if not chosen or len(set(chosen)) < len(chosen) or max(chosen) > most:
        raise checks.InvalidArgument(
            f"constraints: problem {problem.name!r} has m = {most}, numbered from 1; name at least one, each once, got {list(chosen)}"
        )
    if np.shape(tolerance) not in ((), (len(chosen),)):
        raise checks.InvalidArgument(
            f"tolerance: expected one number, or one for each of the {len(chosen)} equalities, got shape {list(np.shape(tolerance))}"
        )
    order = np.argsort(chosen)
    doubled = tuple(chosen[n] for n in order)
    margin = jnp.asarray(tolerance) if checks.is_traced(tolerance) else np.asarray(tolerance, np.float64)
    margin = margin[order] if margin.ndim else margin
    prompt = isinstance(problem.delay, NoDelay)  # kept as it is: the engine compiles no buffer for it
    delay = problem.delay if prompt else MirroredDelay(delay=problem.delay, doubled=doubled)
    noise = Mirrored(model=problem.noise, doubled=doubled)
    if isinstance(problem, Problem):
        return replace(problem, means=_pairs(problem.means, doubled, margin), noise=noise, delay=delay)
    return Equalities(
        family=cast(Family, problem), domain=problem.domain, noise=noise, delay=delay, tolerance=margin, doubled=doubled, name=problem.name
    )


def _pairs(means: Table, doubled: tuple[int, ...], tolerance: PerConstraint) -> Table:
    """Return ``means [k, M]`` with the row ``h`` of every equality replaced by ``h - tolerance`` and ``-h - tolerance``."""
    traced = isinstance(means, jax.Array) or checks.is_traced(tolerance)
    library: Any = jnp if traced else np  # tables that are on the host stay there, in float64
    means = library.asarray(means)
    margins = iter(library.broadcast_to(library.asarray(tolerance, means.dtype), (len(doubled),)))
    rows: list[Table] = []
    for number, row in enumerate(means):
        if number in doubled:
            margin = next(margins)
            rows += [row - margin, -row - margin]
        else:
            rows.append(row)
    return library.stack(rows)
