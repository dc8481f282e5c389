"""Losses of one trial, per round, as pure functions of its measures; every one is finite where the measure is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias

import jax.numpy as jnp

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Declared, checked
from jaxbandit.core.fields import finite, function, nonnegative, numbers
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Array, Scalar
from jaxbandit.metrics import Curves

Loss: TypeAlias = Callable[[Curves], Array]
"""Function of the measures ``[T]`` of one trial that returns a number ``[]``."""


@checked
def regret(measures: Curves) -> Array:
    """Return the mean regret of a round; negative where infeasible points with a larger reward were chosen."""
    return _per_round(measures.regret)


@checked
def positive_regret(measures: Curves) -> Array:
    """Return the mean over rounds of ``(f* - f(x_t))^+``."""
    return _per_round(measures.positive_regret)


@checked
def hard_violation(measures: Curves) -> Array:
    """Return the mean over rounds of ``sum_j g_j(x_t)^+``."""
    return _per_round(measures.hard_violation)


@checked
def soft_violation(measures: Curves) -> Array:
    """Return the norm of the cumulative violations divided by the number of rounds; rounds with slack make up for others."""
    return _per_round(measures.soft_violation)


@checked
def regret_and_violation(measures: Curves) -> Array:
    """Return the mean over rounds of ``(f* - f(x_t))^+ + sum_j g_j(x_t)^+``."""
    return positive_regret(measures) + hard_violation(measures)


@checked
def best_feasible(measures: Curves) -> Array:
    """Return the least ``(f* - f(x_t))^+ + sum_j g_j(x_t)^+`` of all rounds, the loss of one who keeps the best point."""
    return measures.best_constrained_regret[..., -1]


@pytree
class SubjectTo(Declared):
    """Lagrangian ``objective + multiplier (violation - budget)`` of "least objective subject to violation <= budget".

    With a multiplier of its own each budget has a loss to descend on; :func:`descend` finds the multiplier that fits the budget when it is
    given a ``dual_step``.

    Attributes:
      multiplier: dual variable, at least 0; programs of trials do not depend on it.
      budget: largest mean violation of a round that is allowed.
      objective: loss that is made small.
      violation: loss that stays within the budget.
    """

    multiplier: Annotated[Scalar, nonnegative] = 1.0
    budget: Annotated[Scalar, finite] = 0.0
    objective: Annotated[Loss, function("(curves)")] = static(default=positive_regret)
    violation: Annotated[Loss, function("(curves)")] = static(default=hard_violation)

    @checked
    def __call__(self, measures: Curves) -> Array:
        """Return the Lagrangian of one trial."""
        return self.combined(self.parts(measures))

    @property
    def parts(self) -> Parts:
        """Objective and violation of one trial, as a function of its measures that returns ``[2]``."""
        return Parts(self.objective, self.violation)

    @checked
    def combined(self, parts: Annotated[Array, numbers]) -> Array:
        """Return the Lagrangian ``[...]`` of objectives and violations ``parts [..., 2]``."""
        parts = jnp.asarray(parts)
        if parts.shape[-1:] != (2,):
            raise InvalidArgument(f"parts: expected [..., 2], objective and violation, got shape {list(parts.shape)}")
        return parts[..., 0] + self.multiplier * (parts[..., 1] - self.budget)


class Parts(NamedTuple):
    """Objective and violation of one trial; equal where both functions are, so that one program serves all multipliers."""

    objective: Loss
    violation: Loss

    def __call__(self, measures: Curves) -> Array:
        """Return both ``[2]``."""
        return jnp.stack([self.objective(measures), self.violation(measures)])


def _per_round(cumulative: Array) -> Array:
    return cumulative[..., -1] / cumulative.shape[-1]
