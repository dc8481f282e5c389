"""A problem: mean reward and constraints tabulated on a domain, and the noise on top. Maximise ``f`` subject to ``g_j <= 0``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static
from jaxbandit.delays import NoDelay
from jaxbandit.domains import Domain
from jaxbandit.problems.noise import Gaussian, check_points

Array = jax.Array


class Family:
    """What a random problem family offers: ``domain``, ``constraints``, ``name``, ``validate()`` and a pure ``sample(key)``.

    Abstract: families are final pytree dataclasses. Under ``vmap`` over keys ``sample`` gives distinct instances of one structure.
    """

    domain: Any
    noise: Any
    delay: Any = NoDelay()
    name: str

    @property
    def constraints(self) -> int:
        """``m``."""
        return 1

    @property
    def outputs(self) -> int:
        """``1 + m``."""
        return 1 + self.constraints

    def sample(self, key: Array) -> Problem:
        """The instance that belongs to ``key``."""
        raise TypeError(f"{type(self).__name__} must define sample(key)")

    def draw(self, key: Array) -> Any:
        """Raises ``InvalidArgument``: a family has no values, its instances have."""
        raise checks.InvalidArgument(f"{self.name}: a random family cannot be observed; observe an instance, family.sample(key)")

    def observe(self, index: Array, drawn: Any) -> Array:
        """Raises ``InvalidArgument``: a family has no values, its instances have."""
        return self.draw(drawn)

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on parameters outside their range."""
        self.noise.validate(self.outputs)
        check_points(self.noise, self.domain.size)
        self.delay.validate(self.outputs)


def is_random(problem: Any) -> bool:
    """Whether every trial has its own instance: a family, or a wrapper around one."""
    return isinstance(getattr(problem, "problem", problem), Family)


@pytree
class Problem:
    """Mean tables on a domain plus noise; make your own with :func:`from_tables` or :func:`from_functions`.

    Attributes:
      domain: the ``M`` points.
      means: ``[1 + m, M]`` mean reward, then mean constraints (``<= 0`` feasible).
      noise: a model of :mod:`jaxbandit.problems.noise`.
      delay: a model of :mod:`jaxbandit.delays`, after which feedback arrives unless a run says otherwise.
      norm: ``[]`` RKHS norm of the reward before any shift, under the kernel it was made with; ``None`` where there is none.
      name: what tables and files call it.
    """

    domain: Domain
    means: Any
    noise: Any = Gaussian()
    delay: Any = NoDelay()
    norm: Any = None
    name: str = static(default="user")

    @property
    def outputs(self) -> int:
        """``1 + m``."""
        return int(np.shape(self.means)[0])

    @property
    def constraints(self) -> int:
        """``m``."""
        return self.outputs - 1

    def sample(self, key: Array) -> Problem:
        """The instance that one trial runs on: this one. Random families return a new instance here."""
        return self

    def draw(self, key: Array) -> Any:
        """One round's randomness, before a point is chosen."""
        return self.noise.draw(key, self.outputs, jnp.asarray(self.means).dtype)

    def observe(self, index: Array, drawn: Any) -> Array:
        """Noisy values ``[1 + m]`` at grid ``index`` under the round's randomness."""
        return jnp.asarray(self.means)[:, index] + self.noise.apply(drawn, index)

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on tables of the wrong shape or with values that are not finite, or on bad noise or delays."""
        checks.shape("problem.means", self.means, (None, self.domain.size), remedy="one row per function, one column per point")
        if self.outputs < 1:
            raise checks.InvalidArgument("problem.means: needs at least the reward's row")
        checks.finite("problem.means", self.means, remedy="the functions must be finite on the whole domain")
        self.noise.validate(self.outputs)
        check_points(self.noise, self.domain.size)
        self.delay.validate(self.outputs)


@pytree
class Optimum:
    """The best feasible point of a problem on its grid, and how hard the constraints are."""

    value: Array  # [] f(x*), NaN when no point is feasible
    index: Array  # [] int32
    feasible_fraction: Array  # [] share of points with all g_j <= 0
    slater_slack: Array  # [] max_x min_j -g_j(x): how far inside the constraints one can be; negative if infeasible
    unconstrained_value: Array  # [] max f


def optimum(problem: Problem) -> Optimum:
    """Enumerate the grid; pure, so it works on sampled instances under ``vmap``. No feasible point gives a NaN value."""
    means = jnp.asarray(problem.means)
    reward = means[0]
    feasible = jnp.all(means[1:] <= 0, axis=0)
    index = jnp.argmax(jnp.where(feasible, reward, -jnp.inf)).astype(jnp.int32)
    slack = jnp.max(jnp.min(-means[1:], axis=0)) if problem.constraints else jnp.asarray(jnp.inf, means.dtype)
    return Optimum(
        value=jnp.where(jnp.any(feasible), reward[index], jnp.nan),
        index=index,
        feasible_fraction=jnp.mean(feasible.astype(means.dtype)),
        slater_slack=slack,
        unconstrained_value=jnp.max(reward),
    )


def best_mixed_policy(problem: Problem) -> tuple[float, np.ndarray]:
    """The best distribution over points that satisfies the constraints *in expectation*, and its reward.

    Solves ``max_pi E f  s.t.  E g_j <= 0`` on the grid by linear programming, on the host (the benchmark of strong regret; Zhou and
    Ji 2022, sec. 2). Returns the value and ``pi [M]``; a problem without any such distribution gives NaN and zeros.
    """
    from scipy.optimize import linprog  # comes with JAX; imported here because start-up should not pay for it

    means = np.asarray(problem.means, np.float64)
    size = means.shape[1]
    constraints = {"A_ub": means[1:], "b_ub": np.zeros(len(means) - 1)} if len(means) > 1 else {}
    solution = linprog(-means[0], A_eq=np.ones((1, size)), b_eq=[1.0], bounds=(0, None), method="highs", **constraints)
    if solution.status == 2:  # infeasible
        return float("nan"), np.zeros(size)
    if not solution.success:
        raise RuntimeError(f"best_mixed_policy: the linear programme failed: {solution.message}")
    return float(-solution.fun), np.asarray(solution.x)


def from_tables(domain: Domain, reward: Any, constraints: Any, *, noise: Any = None, delay: Any = None, name: str = "user") -> Problem:
    """A problem from tables of mean values.

    Args:
      domain: the ``M`` points.
      reward: ``[M]`` mean reward.
      constraints: ``[m, M]`` mean constraints, or ``[M]`` for one.
      noise: noise model; default standard Gaussian.
      delay: delay model; default none.
      name: name for tables and files.

    Raises:
      InvalidArgument: on tables of the wrong shape or with NaN or infinite values.
    """
    reward, constraints = np.asarray(reward, np.float64), np.asarray(constraints, np.float64)
    checks.shape("reward", reward, (domain.size,), remedy="one value per point of the domain")
    if constraints.ndim == 1:
        constraints = constraints[None, :]
    checks.shape("constraints", constraints, (None, domain.size), remedy="one row per constraint")
    return _checked(domain, np.concatenate([reward[None, :], constraints]), noise, delay, name)


def from_functions(
    domain: Domain,
    reward: Callable[[Array], Array],
    constraints: Sequence[Callable[[Array], Array]],
    *,
    noise: Any = None,
    delay: Any = None,
    name: str = "user",
) -> Problem:
    """A problem from JAX-traceable functions of one point ``x [d]``, tabulated on the domain in float64.

    ``noise``, ``delay`` and ``name`` are as for :func:`from_tables`.

    Raises:
      InvalidArgument: when a function does not give one finite number per point.
    """
    tables = []
    with jax.enable_x64(True):
        for number, function in enumerate([reward, *constraints]):
            label = "reward" if number == 0 else f"constraint {number}"
            table = np.asarray(jax.vmap(function)(jnp.asarray(domain.points)))
            checks.shape(f"{label}(x)", table, (domain.size,), remedy="return one number for one point x [d]")
            tables.append(table)
    return _checked(domain, np.stack(tables), noise, delay, name)


def _checked(domain: Domain, means: np.ndarray, noise: Any, delay: Any, name: str) -> Problem:
    problem = Problem(domain=domain, means=means, noise=noise or Gaussian(), delay=delay or NoDelay(), name=name)
    problem.validate()
    return problem
