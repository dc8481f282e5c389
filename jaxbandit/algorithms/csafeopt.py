"""Cumulative SafeOpt (CSafeOpt)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena
from jaxbandit.algorithms.safe_sets import Safe, SafeState
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.fields import Letter, nonnegative, positive
from jaxbandit.core.pytree import pytree
from jaxbandit.numerics.ties import pick, restricted_to
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.safety import Intervals
from jaxbandit.rules.widths import ImprovedGPUCB
from jaxbandit.surrogates import Belief


@pytree
class CSafeOpt(Safe):
    r"""CSafeOpt: safe GP-UCB that first visits uncertain points.

    .. math::
        x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) + \kappa_t \bar q_t(x), \\
        \bar q_t = q_t / \max q_t, \quad q_t(x) = (\sigma_f(x) - \tau_t)^+ 1\{\min_j 2 \beta_j \sigma_{g_j}(x) > \tau_t\}, \\
        \tau_t = \epsilon / \beta_t^{2 \alpha}, \quad \kappa_t = \max_{S_t} \mathrm{UCB}_f - \min_{S_t} \mathrm{UCB}_f + \zeta

    with the safe set ``S_t`` of :class:`~jaxbandit.SafeOpt`. While some safe point is uncertain in reward and constraints, the most
    uncertain one is chosen; after that the rule is safe GP-UCB. It looks at no pairs of points. ``beta_t`` is the reward's width. The rule
    is that of the authors' code, which maximises over all points with a penalty for unsafe ones; here the maximum is over the safe set,
    which is our reading.

    Attributes:
      epsilon: threshold ``> 0`` of uncertainty, in the units of the outputs.
      alpha: exponent ``>= 0`` by which the threshold shrinks as the width grows. Intervals are resolved ever finer above 1/2.
      zeta: advantage ``>= 0`` of an uncertain point over the best upper bound.
      estimator, seeds, count, allowed, safety: as in :class:`~jaxbandit.SafeOpt`, with the widths of improved GP-UCB by default.
    """

    name: ClassVar[str] = "csafeopt"
    title: ClassVar[str] = "CSafeOpt"
    papers: ClassVar[Mapping[str, str]] = {"wendl2026": "the code"}
    estimator: Bounds = Bounds(
        **dict.fromkeys(("reward_width", "cost_width"), ImprovedGPUCB(norm_bound=2.0, noise_scale=0.1, delta=0.1, union=1.0))
    )
    epsilon: Annotated[Scalar, positive, Letter("eps")] = 1.0
    alpha: Annotated[Scalar, nonnegative, Letter("alpha")] = 0.6
    zeta: Annotated[Scalar, nonnegative, Letter("zeta")] = 0.1

    def choose(self, arena: Arena, state: SafeState, belief: Belief, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        upper, threshold = known.upper[0], self.epsilon / known.widths[0] ** (2 * jnp.asarray(self.alpha, known.sd.dtype))
        lengths = jnp.min(2 * known.widths[1:, None] * known.sd[1:], axis=0, initial=jnp.inf)
        gate = jnp.where(safe & (lengths > threshold), jnp.maximum(known.sd[0] - threshold, 0), 0)
        widest = jnp.max(gate)
        gate = gate / jnp.where(widest > 0, widest, 1)
        spread = jnp.max(jnp.where(safe, upper, -jnp.inf)) - jnp.min(jnp.where(safe, upper, jnp.inf)) + self.zeta
        return pick(restricted_to(safe, upper + spread * gate))
