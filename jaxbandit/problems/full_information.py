"""Stochastic full information: a noisy constraint is seen on the whole domain before the choice (Zhou and Ji 2022, sec. 4)."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import check_fields, checked
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.core.types import Array, Key, Scalar, Table
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain
from jaxbandit.problems.base import AbstractProblem
from jaxbandit.problems.noise import Drawn, Index, Noise, PerPoint

__all__ = ["FullInformation", "full_information"]


@pytree
class FullInformation(AbstractProblem):
    """A problem, or family, whose rounds show ``g_t(.)`` on the whole domain; make one with :func:`full_information`.

    A round goes ``drawn = draw(key)``; ``constraint_sample(drawn)``, which the learner may see; its choice; ``observe(index, drawn)``,
    whose costs are the sample's at ``index``. The reward stays bandit feedback. All else is as in the problem inside.

    Attributes:
      problem: the problem inside; its noise says what a round's sample of the constraints is.
    """

    problem: AbstractProblem

    @property
    def domain(self) -> Domain:
        """Domain of the ``M`` points."""
        return self.problem.domain

    @property
    def means(self) -> Table:
        """Mean reward and constraints ``[1 + m, M]`` of an instance; a family has none before :meth:`sample`."""
        return self.problem.means

    @property
    def noise(self) -> Noise:
        """Noise model of the problem inside."""
        return self.problem.noise

    @property
    def delay(self) -> Delay:
        """Delay model of the problem inside."""
        return self.problem.delay

    @property
    def norm(self) -> Scalar | None:
        """RKHS norm ``[]`` of an instance's reward, ``None`` where it is unknown."""
        return self.problem.norm

    @property
    def name(self) -> str:
        """Label of the problem in tables, figures and files."""
        return self.problem.name

    @property
    def constraints(self) -> int:
        """Number of constraints, ``m``."""
        return self.problem.constraints

    @property
    def is_random(self) -> bool:
        """Say whether each trial has its own instance, as the problem inside says."""
        return self.problem.is_random

    @property
    def has_means(self) -> bool:
        """Return whether :attr:`means` are known, as those of the problem inside are."""
        return self.problem.has_means

    def noise_variances(self) -> np.ndarray | None:
        """Return the noise variance ``[1 + m]`` of the problem inside."""
        return self.problem.noise_variances()

    @property
    def reveals_constraints(self) -> bool:
        """Say whether :meth:`constraint_sample` shows each round's noisy constraint functions before the choice: always."""
        return True

    @checked
    def sample(self, key: Key) -> FullInformation:
        """Return the instance that a trial runs on, with full information too."""
        return replace(self, problem=self.problem.sample(key))

    @checked
    def draw(self, key: Key) -> Drawn:
        """Return the randomness of one round, before a point is chosen."""
        return self.problem.draw(key)

    def constraint_sample(self, drawn: Drawn) -> Array:
        """Return the round's noisy constraints ``g_t(.)`` at every point, ``[m, M]``."""
        means = jnp.asarray(self.means)
        everywhere = jnp.arange(means.shape[1], dtype=jnp.int32)
        return means[1:] + jax.vmap(self.noise.apply, (None, 0), 1)(drawn, everywhere)[1:]

    @checked
    def observe(self, index: Index, drawn: Drawn) -> Array:
        """Return the noisy values ``[1 + m]`` at the grid point ``index []``; the costs are those of :meth:`constraint_sample`."""
        return self.problem.observe(index, drawn)

    def validate(self) -> None:
        """Raise ``InvalidArgument`` where the problem inside does."""
        check_fields(self, type(self).__name__)
        self.problem.validate()


@checked
def full_information(problem: AbstractProblem, *, noise: Literal["shared", "independent"] = "shared") -> FullInformation:
    """Let the learner see a noisy sample of the whole constraint function of ``problem`` before it chooses.

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
