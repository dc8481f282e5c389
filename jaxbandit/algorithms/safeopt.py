"""SafeOpt (Sui, Gotovos, Burdick and Krause 2015, "Safe Exploration for Optimization with Gaussian Processes"; without a Lipschitz
constant and with several constraints: Berkenkamp, Krause and Schoellig 2021, "Bayesian Optimization with Safety Constraints")."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit import safety
from jaxbandit.acquisition import pick, restricted_to, tie_share
from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core.fields import Letter, how_many_points, nonnegative, points, positive
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Array, Indices, Key, PerConstraint, Scalar
from jaxbandit.estimators import Bounds
from jaxbandit.safety import Expansion, SafeState


@pytree
class SafeOpt(Algorithm[SafeState]):
    r"""SafeOpt: the most uncertain point among possible maximisers and expanders of a set of certainly safe points.

    .. math::
        S_t = \{x : \mathrm{UCB}_{g_j}(x) \le 0 \;\forall j\} \cup S_0, \quad
        M_t = \{x \in S_t : \mathrm{UCB}_f(x) \ge \max_{S_t} \mathrm{LCB}_f\}, \quad
        x_t = \arg\max_{M_t \cup G_t} \max_k 2 \beta_k \sigma_k(x) / \sigma_{k,0}

    where ``G_t``, the expanders, are the points of ``S_t`` whose observation could certify a point outside, see
    :class:`~jaxbandit.safety.Expansion`. When no point is certified any more, the safe set is the seeds and the trial is flagged. A
    seed outside the domain fails the trial.

    Attributes:
      estimator: confidence bounds of width 3 by default.
      seeds: ``S_0``, the indices of points known to be safe, without which it does not start: given here, or told by
        ``informed=jaxbandit.informed.SafestSeeds(count=n)``, the truly safest of each instance.
      lipschitz: ``L > 0``, one number or ``[m]``; expanders are then those of the 2015 paper. Default: none is needed.
      threshold: an expander must be less certain than this, ``sd > threshold`` for some output; 0 for all.
      count: instead of ``seeds``, how many to take from the model: the points of least ``max_j UCB_gj`` before round 1, after the
        initial design. Nothing says that they are safe; a trial is flagged where one of them was not certified.
      together: whether one point outside must satisfy all constraints, see :class:`~jaxbandit.safety.Expansion`.
    """

    name: ClassVar[str] = "safeopt"
    title: ClassVar[str] = "SafeOpt"
    paper: ClassVar[str] = "Sui et al. (2015), *Safe Exploration for Optimization with Gaussian Processes*"
    estimator: Bounds = Bounds()
    seeds: Annotated[Indices, points, safety.SEEDS, Letter("seeds")] | None = None
    lipschitz: Annotated[PerConstraint, positive, Letter("L")] | None = None
    threshold: Annotated[Scalar, nonnegative, Letter("threshold")] = 0.0
    count: Annotated[int, how_many_points(), Letter("count")] | None = static(default=None)
    together: Annotated[bool, Letter("together")] = static(default=True)

    def init(self, arena: Arena) -> SafeState:
        return safety.start(arena.surrogate, self.seeds, self.count, type(self).__name__)

    def select(self, arena: Arena, state: SafeState, t: Array, key: Key) -> tuple[Decision, SafeState]:
        known = safety.intervals(arena.surrogate, state.posterior, self.estimator, t, key)
        safe, flags, after = safety.observe_safety(state, known, t, self.count if self.seeds is None else None)
        promising = safety.maximisers(known, safe)
        # An expander can be chosen only where the interval is wider than every maximiser's.
        wider = known.size * (1 - tie_share(known.size.dtype)) > jnp.max(jnp.where(promising, known.size, -jnp.inf))
        candidates = safe & wider & jnp.any(known.sd > self.threshold, axis=0)
        expansion = Expansion(lipschitz=self.lipschitz, together=self.together)
        widest = expansion.widest(arena.surrogate, state.posterior, known, safe, candidates)
        chosen = promising | (jnp.arange(safe.shape[0], dtype=jnp.int32) == widest)
        return Decision(index=pick(restricted_to(chosen, known.size)), widths=known.widths, flags=flags), after
