"""Problems made of others: equality constraints as pairs of inequalities, and constraints that are seen before the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import check_fields, checked
from jaxbandit.core.fields import Words, nonnegative, of_class, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, Key, PerFunction, Table
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.delays import Mirrored as MirroredDelay
from jaxbandit.domains import Domain
from jaxbandit.problems.base import AbstractProblem, Family, Problem
from jaxbandit.problems.noise import Drawn, Index, Mirrored, Noise, PerPoint

__all__ = ["Equalities", "FullInformation", "full_information", "with_equalities"]


def _inside(name: str) -> property:
    """Return the property that is that of the problem inside."""
    return property(lambda self: getattr(self.problem, name))


@pytree
class FullInformation(AbstractProblem):
    """A problem, or family, whose rounds show ``g_t(.)`` on the whole domain; make one with :func:`full_information`.

    A round goes ``drawn = draw(key)``; ``constraint_sample(drawn)``, which the learner may see; its choice; ``observe(index, drawn)``,
    whose costs are the sample's at ``index``. The reward stays bandit feedback. All else (:attr:`domain`, :attr:`means`, :attr:`noise`,
    :attr:`delay`, :attr:`name` ...) is as in the problem inside.

    Attributes:
      problem: the problem inside; its noise says what a round's sample of the constraints is.
    """

    problem: AbstractProblem
    reveals_constraints: ClassVar[bool] = True

    if not TYPE_CHECKING:  # the base class declares their types
        domain, means, noise, delay = _inside("domain"), _inside("means"), _inside("noise"), _inside("delay")
        norm, name, constraints = _inside("norm"), _inside("name"), _inside("constraints")
        is_random, has_means = _inside("is_random"), _inside("has_means")

    def noise_variances(self) -> np.ndarray | None:
        return self.problem.noise_variances()

    @checked
    def sample(self, key: Key) -> FullInformation:
        return replace(self, problem=self.problem.sample(key))

    @checked
    def draw(self, key: Key) -> Drawn:
        return self.problem.draw(key)

    def constraint_sample(self, drawn: Drawn) -> Array:
        means = jnp.asarray(self.means)
        everywhere = jnp.arange(means.shape[1], dtype=jnp.int32)
        return means[1:] + jax.vmap(self.noise.apply, (None, 0), 1)(drawn, everywhere)[1:]

    @checked
    def observe(self, index: Index, drawn: Drawn) -> Array:
        return self.problem.observe(index, drawn)

    def validate(self) -> None:
        check_fields(self, type(self).__name__)
        self.problem.validate()


@checked
def full_information(problem: AbstractProblem, *, noise: Literal["shared", "independent"] = "shared") -> FullInformation:
    """Let the learner see a noisy sample of the whole constraint function of ``problem`` before it chooses (Zhou and Ji 2022, sec. 4).

    The paper asks only that ``g_t(.)`` be i.i.d. samples of ``g(.)`` (Assumption 5). ``"shared"``, the default, adds one number per
    round and constraint to all of ``g``, as the random arrivals of the paper's own example do (a table of residuals: one row per
    round). ``"independent"`` draws the problem's noise at every point anew; a learner then favours the points whose noise is low in the
    round.

    Args:
      problem: a :class:`~jaxbandit.problems.Problem` or a random family, with at least one constraint.
      noise: ``"shared"`` or ``"independent"``.

    Raises:
      InvalidArgument: on another ``noise``, what is no problem, or a problem without constraints.
    """
    if problem.constraints < 1:
        raise checks.InvalidArgument(f"problem: {problem.name!r} has no constraint to show; give one with m >= 1")
    if noise == "independent":
        problem = replace(problem, noise=PerPoint(model=problem.noise))
    return FullInformation(problem=problem)


@pytree
class Equalities(Family):
    """A random family some of whose constraints are equalities; make one with :func:`with_equalities`.

    Attributes:
      family: the family inside, with one output for each equality.
      domain, noise, delay, name: as of the family, noise and delays mirrored: the two outputs of an equality arrive together.
      tolerance: largest ``|h| >= 0`` that counts as 0, ``[e]``, one per equality.
      doubled: numbers of the outputs of ``family`` that are equalities, ascending; the first constraint is output 1.
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
        return self.family.constraints + len(self.doubled)

    @checked
    def sample(self, key: Key) -> Problem:
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
    observations, ``y - tolerance`` and ``-y - tolerance``, which arrive together.

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
    noise, delay = Mirrored(model=problem.noise, doubled=doubled), problem.delay
    if not isinstance(delay, NoDelay):  # which is kept as it is: the engine compiles no buffer for it
        delay = MirroredDelay(delay=delay, doubled=doubled)
    if isinstance(problem, Problem):
        return replace(problem, means=_pairs(problem.means, doubled, margin), noise=noise, delay=delay)
    return Equalities(
        family=cast(Family, problem), domain=problem.domain, noise=noise, delay=delay, tolerance=margin, doubled=doubled, name=problem.name
    )


def _pairs(means: Table, doubled: tuple[int, ...], tolerance: PerFunction) -> Table:
    """Return ``means [k, M]`` with the row ``h`` of every equality replaced by ``h - tolerance`` and ``-h - tolerance``."""
    library: Any = jnp if isinstance(means, jax.Array) or checks.is_traced(tolerance) else np  # tables on the host stay there, in float64
    means = library.asarray(means)
    margins = dict(zip(doubled, library.broadcast_to(library.asarray(tolerance, means.dtype), (len(doubled),)), strict=True))
    pairs = [[row - margins[n], -row - margins[n]] if n in margins else [row] for n, row in enumerate(means)]
    return library.stack([row for pair in pairs for row in pair])
