"""StageOpt (Sui, Zhuang, Burdick and Yue 2018, "Stagewise Safe Bayesian Optimization with Gaussian Processes")."""

from __future__ import annotations

from typing import Annotated, ClassVar

import jax.numpy as jnp

from jaxbandit import safety
from jaxbandit.acquisition import pick, restricted_to
from jaxbandit.algorithms.base import Algorithm, Arena, Decision
from jaxbandit.core.fields import Letter, how_many_points, nonnegative, points, positive
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Array, Indices, Key, PerConstraint, Scalar
from jaxbandit.estimators import Bounds
from jaxbandit.safety import Expansion, SafeState


@pytree
class StageOpt(Algorithm[SafeState]):
    r"""StageOpt: expand the safe set for ``T_0`` rounds, then maximise the upper bound of the reward on it.

    .. math::
        x_t = \arg\max_{G_t} \max_k 2 \beta_k \sigma_k(x) / \sigma_{k,0} \;\; (t \le T_0), \qquad
        x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T_0)

    with safe set ``S_t``, expanders ``G_t`` and maximisers as in :class:`~jaxbandit.SafeOpt`; in the first stage the widest maximiser
    is chosen while there is no expander. The safe set keeps growing in the second. (The paper also ends the first stage once every
    expander's interval is small; here its length is given.)

    Attributes:
      exploration: ``T_0 >= 0`` rounds.
      estimator, seeds, lipschitz, count, together: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "stageopt"
    title: ClassVar[str] = "StageOpt"
    paper: ClassVar[str] = "Sui et al. (2018), *Stagewise Safe Bayesian Optimization with Gaussian Processes*"
    estimator: Bounds = Bounds()
    seeds: Annotated[Indices, points, safety.SEEDS, Letter("seeds")] | None = None
    lipschitz: Annotated[PerConstraint, positive, Letter("L")] | None = None
    exploration: Annotated[Scalar, nonnegative, Letter("T0")] = 50.0
    count: Annotated[int, how_many_points(), Letter("count")] | None = static(default=None)
    together: Annotated[bool, Letter("together")] = static(default=True)

    def init(self, arena: Arena) -> SafeState:
        return safety.start(arena.surrogate, self.seeds, self.count, type(self).__name__)

    def select(self, arena: Arena, state: SafeState, t: Array, key: Key) -> tuple[Decision, SafeState]:
        known = safety.intervals(arena.surrogate, state.posterior, self.estimator, t, key)
        safe, flags, after = safety.observe_safety(state, known, t, self.count if self.seeds is None else None)
        exploring = jnp.asarray(t, known.sd.dtype) <= self.exploration
        expansion = Expansion(lipschitz=self.lipschitz, together=self.together)
        # Without candidates there is nothing to examine: the second stage costs no matrix product.
        widest = expansion.widest(arena.surrogate, state.posterior, known, safe, safe & exploring)
        expander = jnp.arange(safe.shape[0], dtype=jnp.int32) == widest
        allowed = jnp.where(jnp.any(expander), expander, safety.maximisers(known, safe))
        index = pick(jnp.where(exploring, restricted_to(allowed, known.size), restricted_to(safe, known.upper[0])))
        return Decision(index=index, widths=known.widths, flags=flags), after
