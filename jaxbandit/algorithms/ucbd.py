"""UCB-D and UCB-C (Nguyen et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Traits
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.fields import Letter, between
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.numerics.ties import pick, restricted_to
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.safety import intervals


@pytree
class UcbDState(BeliefState):
    """State of UCB-D."""

    bound: Array  # [] least bound so far
    recommended: Array  # [] int32, -1 before the first


@pytree
class UcbD(Algorithm[UcbDState]):
    r"""UCB-D: CONFIG's point, and only its most uncertain function.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_f(x) \;\text{s.t.}\; \mathrm{LCB}_{g_j}(x) \le 0 \;\forall j, \\
        \nu = 2 \beta \sigma_f(x_t), \qquad e_j = \mathrm{UCB}_{g_j}(x_t)

    A round evaluates the function of the largest of ``nu, e_1, ..., e_m``, the reward on ties. When it is the reward, each constraint with
    ``2 beta sigma_gj > guard nu`` is evaluated, too. The coupled form, UCB-C, evaluates all functions. If no point satisfies every lower
    bound, both choose the point of least ``max_j LCB_gj`` and evaluate the constraint that attains it. The rule is that of the authors'
    code. It compares lengths of intervals, so that rewards and constraints need comparable scales.

    A run records as ``recommended`` the chosen point of the least ``max(nu, e_1, ..., e_m)`` so far. Under late feedback the policy is
    ``Wait``.

    Attributes:
      estimator: confidence bounds of width 3 by default.
      guard: ratio >= 1 of lengths above which a constraint is evaluated beside the reward; infinity for never.
      coupled: whether a round evaluates all functions, which is UCB-C.
    """

    name: ClassVar[str] = "ucbd"
    title: ClassVar[str] = "UCB-D"
    papers: ClassVar[Mapping[str, str]] = {"nguyen2024": "the authors' code"}
    shown = ("recommended",)
    estimator: Bounds = Bounds()
    guard: Annotated[Scalar, between(1, float("inf"), open_low=False), Letter("guard")] = 10.0
    coupled: bool = static(default=False)

    traits = Traits(decoupled=True)

    def init(self, arena: Arena) -> UcbDState:
        return UcbDState(posterior=arena.surrogate.init(), bound=jnp.asarray(jnp.inf, arena.dtype), recommended=jnp.int32(-1))

    def select(self, arena: Arena, state: UcbDState, t: Array, key: Key) -> tuple[Decision, UcbDState]:
        belief = arena.belief(state)
        known = intervals(belief.model, belief, self.estimator, t, key)
        worst = jnp.max(known.lower[1:], axis=0, initial=-jnp.inf)
        possible = jnp.any(worst <= 0)
        index = pick(jnp.where(possible, restricted_to(worst <= 0, known.upper[0]), -worst))
        # The index M of a NaN score is clamped.
        here = jnp.minimum(index, arena.size - 1)
        lengths, upper, lower = 2 * known.widths * known.sd[:, here], known.upper[:, here], known.lower[:, here]
        gaps = jnp.where(possible, upper.at[0].set(lengths[0]), lower.at[0].set(-jnp.inf))
        single = jnp.arange(len(gaps), dtype=jnp.int32) == jnp.argmax(gaps).astype(jnp.int32)
        guarded = single[0] & (lengths > jnp.asarray(self.guard) * lengths[0])
        better = possible & (jnp.max(gaps) < state.bound)
        after = replace(
            state,
            bound=jnp.where(better, jnp.max(gaps), state.bound),
            recommended=jnp.where(better, here.astype(jnp.int32), state.recommended),
        )
        return Decision(index=index, widths=known.widths, outputs=single | guarded | (possible & self.coupled)), after
