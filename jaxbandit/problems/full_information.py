"""Stochastic full information: a noisy constraint is seen on the whole domain before the choice (Zhou and Ji 2022, sec. 4)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.domains import Domain
from jaxbandit.problems.noise import PerPoint

__all__ = ["FullInformation", "full_information"]

Array = jax.Array


@pytree
class FullInformation:
    """A problem, or family, whose rounds show ``g_t(.)`` on the whole domain; make one with :func:`full_information`.

    A round goes ``drawn = draw(key)``; ``constraint_sample(drawn)``, which the learner may see; its choice; ``observe(index, drawn)``,
    whose costs are the sample's at ``index``. The reward stays bandit feedback. In all else it is the problem inside.
    """

    problem: Any

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.problem.domain

    @property
    def means(self) -> Any:
        """``[1 + m, M]`` mean tables; a family has none before :meth:`sample`."""
        return self.problem.means

    @property
    def noise(self) -> Any:
        """The noise model."""
        return self.problem.noise

    @property
    def delay(self) -> Any:
        """The delay model."""
        return self.problem.delay

    @property
    def norm(self) -> Any:
        """RKHS norm of the reward where it is known; a family has none before :meth:`sample`."""
        return self.problem.norm

    @property
    def name(self) -> str:
        """What tables and files call it."""
        return self.problem.name

    @property
    def outputs(self) -> int:
        """``1 + m``."""
        return self.problem.outputs

    @property
    def constraints(self) -> int:
        """``m``."""
        return self.problem.constraints

    def sample(self, key: Array) -> FullInformation:
        """The instance that one trial runs on."""
        return replace(self, problem=self.problem.sample(key))

    def draw(self, key: Array) -> Any:
        """One round's randomness, before a point is chosen."""
        return self.problem.draw(key)

    def constraint_sample(self, drawn: Any) -> Array:
        """The round's noisy constraints ``g_t(.)``, ``[m, M]``."""
        means = jnp.asarray(self.means)
        everywhere = jnp.arange(means.shape[1], dtype=jnp.int32)
        return means[1:] + jax.vmap(self.noise.apply, (None, 0), 1)(drawn, everywhere)[1:]

    def observe(self, index: Array, drawn: Any) -> Array:
        """Noisy values ``[1 + m]`` at grid ``index``; the costs are those of :meth:`constraint_sample`."""
        return self.problem.observe(index, drawn)

    def validate(self) -> None:
        """Raise ``InvalidArgument`` where the problem inside does."""
        self.problem.validate()


def full_information(problem: Any, *, noise: str = "shared") -> FullInformation:
    """Let the learner see a noisy sample of the whole constraint function of ``problem`` before it chooses.

    The paper asks only that ``g_t(.)`` be i.i.d. samples of ``g(.)`` (Assumption 5). ``"shared"``, the default, adds one number per
    round and constraint to all of ``g``, as the random arrivals of the paper's own example do (a table of residuals: one row per
    round). ``"independent"`` draws the problem's noise at every point anew; a learner then picks points that were lucky in the round.

    Args:
      problem: a :class:`~jaxbandit.problems.Problem` or a random family, with at least one constraint.
      noise: ``"shared"`` or ``"independent"``.

    Raises:
      InvalidArgument: on another ``noise``, or a problem without constraints.
    """
    checks.one_of("noise", noise, ("shared", "independent"))
    if problem.constraints < 1:
        raise checks.InvalidArgument(f"problem: {problem.name!r} has no constraint to show; give one with m >= 1")
    if noise == "independent":
        problem = replace(problem, noise=PerPoint(model=problem.noise))
    return FullInformation(problem=problem)
