"""Modified problems: equality constraints, and constraints shown before the choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Key, PerFunction, checked
from jaxbandit.core.fields import Words, mask, nonnegative, whole
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.delays import Failing, NoDelay
from jaxbandit.delays import Mirrored as MirroredDelay
from jaxbandit.domains import Domain, tabulate
from jaxbandit.problems.base import AbstractProblem, Problem
from jaxbandit.problems.boxes import BoxProblem, Certificate, certified, check_traceable, value_and_point
from jaxbandit.problems.noise import Drawn, Further, Mirrored, PerPoint, function_of_point

__all__ = ["FullInformation", "full_information", "with_equalities", "with_failures"]


def _inside(name: str) -> property:
    """Return a property that forwards to the problem inside."""
    return property(lambda self: getattr(self.problem, name))


@pytree
class FullInformation(AbstractProblem):
    """Problem or family whose rounds show ``g_t(.)`` on the whole domain.

    Make it with :func:`full_information`. A round is ``drawn = draw(key)``, ``constraint_sample(drawn)`` for the learner, its choice, and
    ``observe(index, drawn)`` with the sample's costs at ``index``. The reward stays bandit feedback. Everything else (``domain``,
    ``means``, ``noise``, ``delay``, ``name`` ...) is as in the problem inside.

    Attributes:
      problem: the problem inside; its noise makes a round's sample of the constraints.
    """

    problem: AbstractProblem
    reveals_constraints: ClassVar[bool] = True

    # The base class declares the types of these.
    if not TYPE_CHECKING:
        domain, means, noise, delay = _inside("domain"), _inside("means"), _inside("noise"), _inside("delay")
        norm, name, constraints, drawn_from = _inside("norm"), _inside("name"), _inside("constraints"), _inside("drawn_from")
        is_random, has_means, draw, observe = _inside("is_random"), _inside("has_means"), _inside("draw"), _inside("observe")

    @checked
    def sample(self, key: Key) -> FullInformation:
        return replace(self, problem=self.problem.sample(key))

    def constraint_sample(self, drawn: Drawn) -> Array:
        means = jnp.asarray(self.means)
        everywhere = jnp.arange(means.shape[1], dtype=jnp.int32)
        return means[1:] + jax.vmap(self.noise.apply, (None, 0), 1)(drawn, everywhere)[1:]


@checked
def full_information(problem: AbstractProblem, *, noise: Literal["shared", "independent"] = "shared") -> FullInformation:
    """Show the learner a noisy sample of all constraints before it chooses.

    That is the setting of Zhou and Ji (2022, sec. 4). The paper only assumes that ``g_t(.)`` are i.i.d. samples of ``g(.)`` (Assumption 5).
    ``"shared"``, the default, adds one number per round and constraint to all of ``g``, like the random arrivals of the paper's example (a
    table of residuals: one row per round). ``"independent"`` draws the problem's noise at every point anew; a learner then favours the
    points with low noise in the round.

    Args:
      problem: a :class:`~jaxbandit.problems.Problem` or a random family, with at least one constraint.
      noise: ``"shared"`` or ``"independent"``.

    Raises:
      InvalidArgument: on another ``noise``, an object that is no problem, or a problem without constraints.
    """
    if problem.constraints < 1:
        raise checks.InvalidArgument(f"problem: {problem.name!r} has no constraint to show; give one with m >= 1")
    return FullInformation(problem=problem if noise == "shared" else replace(problem, noise=PerPoint(model=problem.noise)))


@checked
def with_equalities(
    problem: Annotated[Problem, Words("a Problem of jaxbandit.problems")],
    constraints: Sequence[Annotated[int, whole(1)]] | None = None,
    *,
    tolerance: Annotated[PerFunction, nonnegative],
) -> Problem:
    """Return a problem with equalities in place of some constraints.

    A constraint ``h(x) <= 0`` of ``problem`` becomes ``h(x) = 0`` up to a tolerance, by two outputs in its place: ``h - tolerance`` and
    ``-h - tolerance``, both ``<= 0``. For algorithms they are any two constraints. One noisy reading ``y`` of ``h``, the same as in
    ``problem``, determines both observations, ``y - tolerance`` and ``-y - tolerance``, and they arrive together.

    A grid seldom has points with ``h = 0``: choose a tolerance of at least half the change of ``h`` between neighbours, otherwise no point
    is feasible and every trial is flagged. A surrogate with ``prior_mean=-tolerance`` for both outputs has the bands of ``h`` about a prior
    mean of 0.

    Args:
      problem: a :class:`~jaxbandit.problems.Problem`, such as an instance of a random family.
      constraints: numbers of the equalities among ``1..m``; default all.
      tolerance: the largest ``|h|`` that counts as 0, ``>= 0``, in the units of ``h``: one number, or one per equality.

    Returns:
      A problem with ``m + e`` constraints.

    Raises:
      InvalidArgument: on another kind of problem, an unknown or repeated constraint, or a tolerance out of range.
    """
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
    # Tables on the host stay there, in float64.
    library: Any = jnp if isinstance(problem.means, jax.Array) or checks.is_traced(tolerance) else np
    means = library.asarray(problem.means)
    margins = dict(zip(chosen, library.broadcast_to(library.asarray(tolerance, means.dtype), (len(chosen),)), strict=True))
    rows = [row for n, h in enumerate(means) for row in ((h - margins[n], -h - margins[n]) if n in margins else (h,))]
    doubled = tuple(sorted(chosen))
    # Without delay the problem stays without, because then the engine compiles no buffer.
    delay = problem.delay
    delay = delay if isinstance(delay, NoDelay) else MirroredDelay(delay=delay, doubled=doubled)
    return replace(problem, means=library.stack(rows), noise=Mirrored(model=problem.noise, doubled=doubled), delay=delay)


@dataclasses.dataclass(frozen=True)
class Fails:
    """Function that is 1 where runs fail, else -1."""

    region: Callable[[Any], Any]

    def __call__(self, point: Any) -> Array:
        return jnp.where(self.region(point), 1.0, -1.0)


@checked
def with_failures(
    problem: Annotated[Problem, Words("a Problem")] | Annotated[BoxProblem, Words("a BoxProblem of jaxbandit.problems")],
    region: Annotated[Callable[[Any], Any], function_of_point] | Annotated[Array, mask],
    *,
    best: Annotated[tuple[float, Sequence[float]], value_and_point] | None = None,
) -> Any:
    """Return a problem whose runs fail in a region.

    A failed run gives no values. A further constraint is 1 where runs fail and -1 elsewhere, and it is observed without noise in every run.
    The reward and the other constraints of a failed run are never observed. Failed runs of an initial design only show that they failed.

    Sessions model such a constraint with prior mean -1 and noise variance 0.01, such as
    ``problem.model(kernel, prior_mean=[0, 0, -1], noise_variance=[0.05, 0.05, 0.01])`` for a problem with another constraint.

    Args:
      problem: a problem on a grid or on a box, such as an instance of a random family.
      region: function of a point ``x [d]`` in the units of the axes, true where runs fail; on a grid also booleans ``[M]``. On a box it is
        made of ``jax.numpy``.
      best: the best point on a box, as for :func:`on_box`; default: it is searched again, and at an edge of the region it is one of 16,384
        points.

    Returns:
      A problem with ``m + 1`` constraints, with the delay :class:`delays.Failing <jaxbandit.delays.Failing>`.

    Raises:
      InvalidArgument: on another kind of problem, on a region that is no such function or mask, or if all runs fail.
    """
    domain = problem.domain
    if isinstance(problem, BoxProblem):
        if not callable(region):
            raise checks.InvalidArgument(f"region: must be a function of a point on a box, got {checks.short(region)}")
        check_traceable("region", fails := Fails(region), domain.dimension)
        functions: tuple[Any, ...] = (*problem.functions, fails)
        row = tabulate("region", fails, Domain(points=np.asarray(domain.points, np.float64)))
        found = certified(problem.domain, functions) if best is None else Certificate(value=float(best[0]), point=np.asarray(best[1]))
        changes: dict[str, Any] = {"functions": functions, "best": found}
    else:
        if best is not None:
            raise checks.InvalidArgument("best: is for problems on a box, and a grid has a best point of its own; leave it out")
        if not callable(region):
            checks.shape("region", region, (domain.size,), remedy="one for each point")
        row = tabulate("region", Fails(region), domain) if callable(region) else np.where(np.asarray(region), 1.0, -1.0)
        changes = {}
    if np.all(row > 0):
        raise checks.InvalidArgument("region: must leave points where runs do not fail, got all")
    means = np.concatenate([np.asarray(problem.means), row[None].astype(np.asarray(problem.means).dtype)])
    return replace(problem, means=means, noise=Further(model=problem.noise), delay=Failing(delay=problem.delay), **changes)
