"""Batch pure exploration, BPE and BPE-Delay (Li and Scarlett 2022; Vakili et al. 2023, "Delayed Feedback in Kernel Bandits",
Algorithm 1)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.acquisition import pick
from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Diagnostics, Observation
from jaxbandit.core import checks
from jaxbandit.core.pytree import float_dtype, pytree, replace, static
from jaxbandit.feedback import Feedback, Hallucinate, Policy
from jaxbandit.surrogates import Prediction

Array = jax.Array

CODE_FIRST_ROUND = 5  # the least t that the published code's round lengths are consistent with


@pytree
class Elimination:
    r"""Confidence bounds of Theorems 6.1 and 6.2, ``mu +- beta sigma`` on finite sets, else ``mu +- (2/q + beta (sigma + 2/sqrt(q)))``.

    .. math::
        \beta = C + \frac{\sigma}{\sqrt\lambda} \sqrt{2 \ln \frac{4 R |X|}{\delta}} \quad\text{(finite)}, \qquad
        \beta = C + \frac{\sigma}{\sqrt\lambda} \sqrt{2 \ln \frac{8 R (\tilde C q)^d}{\delta}} \quad\text{(continuous)}, \\
        \tilde C = C + \max(\sigma, k_{\max}) \sqrt{q / \lambda} \sqrt{2 \ln \frac{16 R q}{\delta}}

    ``R`` is the number of stages. The size of Assumption 4.2's discretisation of a continuous set is taken with constant 1.

    Attributes:
      norm_bound: ``C > 0``, bound on the function's RKHS norm.
      noise_scale: ``sigma > 0``, sub-Gaussian scale of the noise.
      delta: failure probability in (0, 1).
      continuous: whether the grid stands for a continuous set.
    """

    norm_bound: Any = 1.0
    noise_scale: Any = 1.0
    delta: Any = 0.1
    continuous: bool = static(default=False)

    def __call__(self, arena: Arena, stages: Array, q: Array) -> tuple[Array, Array, Array]:
        """``beta`` and what is added to the bound and to the deviation."""
        noise_sd = jnp.sqrt(arena.surrogate.model.noise_variance[0])
        logarithm, slack = jnp.log(4 * stages / self.delta), 0.0
        if self.continuous:
            logarithm, slack = logarithm + np.log(2.0) + self._covering(arena, stages, q, noise_sd), 1.0
        else:
            logarithm = logarithm + np.log(arena.surrogate.domain.size)
        beta = self.norm_bound + self.noise_scale / noise_sd * jnp.sqrt(2 * logarithm)
        return beta, slack * 2 / q, slack * 2 / jnp.sqrt(q)

    def _covering(self, arena: Arena, stages: Array, q: Array, noise_sd: Array) -> Array:
        """``ln (C~ q)^d``: how many points stand for a continuous set, for means whose norms are at most ``C~``, Lemma 4.3."""
        largest = jnp.maximum(self.noise_scale, jnp.max(arena.surrogate.model.forms[0].prior_variance))
        norm = self.norm_bound + largest * jnp.sqrt(q) / noise_sd * jnp.sqrt(2 * jnp.log(16 * stages * q / self.delta))
        return arena.surrogate.domain.dimension * jnp.log(norm * q)

    def validate(self, name: str) -> None:
        """Raise ``InvalidArgument`` on a parameter outside its range."""
        checks.positive(f"{name}.norm_bound", self.norm_bound)
        checks.positive(f"{name}.noise_scale", self.noise_scale)
        checks.within(f"{name}.delta", self.delta, 0.0, 1.0, open_high=True)


@pytree
class BpeState:
    """State of BPE. A *stage* is what the paper calls a round."""

    posterior: Any  # of this stage's points only
    alive: Array  # [M] whether a point can still be the maximiser
    q: Array  # [] q_r of the current stage
    end: Array  # [] int32, the stage's last round
    stage: Array  # [] int32, r, from 1
    stages: Array  # [] R, how many there are in all


@pytree
class Bpe(Algorithm):
    r"""Explore where the deviation is largest, and strike out what cannot be the maximiser at the end of each of a few stages.

    .. math::
        q_r = \lceil \sqrt{T q_{r-1}} \rceil, \quad t_r = \lceil q_r + u_T \rceil, \quad
        u_T = E[\tau] + \min\bigl(\sqrt{2 \xi^2 \ln\tfrac{3T}{\delta}}, \, 2 b \ln\tfrac{3T}{\delta}\bigr), \qquad
        X_{r+1} = \{x \in X_r : U(x) \ge \max_z L(z)\}

    with ``q_0 = 1``; ``x_t`` maximises the deviation given all points of the stage, ``U`` and ``L`` use the stage's feedback that has
    arrived. With ``aware=False`` (or without delay) ``u_T = 0``: that is BPE. For unconstrained rewards; constraints are ignored.

    A sweep over what the lengths of stages depend on (the horizon, ``mean_delay``, ``xi``, ``b``, ``delta``) pays for the end of a stage in
    every round: ``O(M r^2)`` instead of ``O(M r)``.

    Attributes:
      width: ``beta`` of the bounds, a number > 0 or :class:`Elimination`, the theory's.
      mean_delay: ``E[tau] >= 0``; default: the delay model's.
      xi, b: the delays' sub-exponential parameters >= 0; default: the delay model's.
      delta: failure probability in (0, 1), half of which goes to the delays.
      aware: whether stages are longer for the delays.
      lengths: ``"paper"``; or ``"code"``, what its authors published: ``q_r`` not rounded, ``u`` at the rounds played so far with
        ``delta / 4`` (inferred from the lengths that it gives).
      ties: ``"first"`` of the points of equal deviation, or a ``"random"`` one.
    """

    name: ClassVar[str] = "bpe"
    width: Any = 2.0
    mean_delay: Any = None
    xi: Any = None
    b: Any = None
    delta: Any = 0.1
    aware: bool = static(default=True)
    lengths: str = static(default="paper")
    ties: str = static(default="first")

    feedback = Hallucinate()  # deviations of all points chosen, means of what has arrived

    def init(self, arena: Arena) -> BpeState:
        q, length = self._next(arena.horizon, jnp.ones((), arena.dtype), jnp.int32(0))
        return BpeState(
            posterior=arena.surrogate.init(),
            alive=jnp.ones((arena.size,), bool),
            q=q,
            end=length,
            stage=jnp.int32(1),
            stages=self._stages(arena, arena.dtype),
        )

    def select(self, arena: Arena, state: BpeState, t: Array, key: Array) -> tuple[Decision, BpeState]:
        belief = arena.surrogate.predict(state.posterior)
        score = jnp.where(state.alive, belief.sd[0], -jnp.inf)
        if self.ties == "random":
            widest = score == jnp.max(score)
            score = jnp.where(widest, jax.random.uniform(key, score.shape, score.dtype), -1)
        beta, _, _ = self._width(arena, state)
        return Decision(index=pick(score), widths=jnp.broadcast_to(beta, (1 + arena.constraints,))), state

    def update(self, arena: Arena, state: BpeState, observation: Observation | Feedback, t: Array) -> BpeState:
        state = replace(state, posterior=arena.learn(state.posterior, observation))
        return jax.lax.cond(t == state.end, lambda: self._eliminate(arena, state), lambda: state)

    def _eliminate(self, arena: Arena, state: BpeState) -> BpeState:
        """The end of a stage: fewer points, no data, a longer stage."""
        low, high = self._bounds(arena, state, arena.surrogate.arrived(state.posterior))
        best = jnp.max(jnp.where(state.alive, low, -jnp.inf))
        q, length = self._next(arena.horizon, state.q, state.end)
        return BpeState(
            posterior=arena.surrogate.init(),
            alive=state.alive & (high >= best),
            q=q,
            end=state.end + length,
            stage=state.stage + 1,
            stages=state.stages,
        )

    def _bounds(self, arena: Arena, state: BpeState, belief: Prediction) -> tuple[Array, Array]:
        beta, bound_slack, deviation_slack = self._width(arena, state)
        width = bound_slack + beta * (belief.sd[0] + deviation_slack)
        return belief.mean[0] - width, belief.mean[0] + width

    def _width(self, arena: Arena, state: BpeState) -> tuple[Array, Array, Array]:
        if isinstance(self.width, Elimination):
            return self.width(arena, state.stages, state.q)
        zero = jnp.zeros_like(state.q)
        return jnp.asarray(self.width, state.q.dtype), zero, zero

    def stage_lengths(self, horizon: int) -> list[tuple[int, float]]:
        """Rounds, the last cut to the horizon, and ``q_r`` of every stage; ``u_T = 0`` where ``mean_delay`` is not given."""
        q, played, found = jnp.ones((), float_dtype()), 0, []
        while played < horizon:
            q, length = self._next(jnp.int32(horizon), q, jnp.int32(played))
            found.append((min(int(length), horizon - played), float(q)))
            played += int(length)
        return found

    def _next(self, horizon: Array, q: Array, played: Array) -> tuple[Array, Array]:
        """``q_r`` and the length ``t_r`` of the stage after ``played`` rounds."""
        horizon = jnp.asarray(horizon, q.dtype)
        square = horizon * q
        q = jnp.sqrt(square)
        if self.lengths == "paper":
            q = jnp.ceil(q)
            q = jnp.where(jnp.square(q - 1) >= square, q - 1, q)  # where the root of a square came out above it
            wait = self._wait(horizon, jnp.asarray(self.delta / 2, q.dtype))
        else:
            rounds = jnp.maximum(jnp.asarray(played, q.dtype), CODE_FIRST_ROUND)
            wait = self._wait(rounds, jnp.asarray(self.delta / 4, q.dtype))
        return q, jnp.ceil(q + wait).astype(jnp.int32)

    def _wait(self, rounds: Array, delta: Array) -> Array:
        """``u_T``: rounds after which feedback will have arrived, eq. (5)."""
        if not self.aware or self.mean_delay is None:
            return jnp.zeros_like(rounds)
        logarithm = jnp.log(3 * rounds / (2 * delta))
        return self.mean_delay + jnp.minimum(jnp.sqrt(2 * jnp.square(self.xi) * logarithm), 2 * self.b * logarithm)

    def _stages(self, arena: Arena, dtype: Any) -> Array:
        """``R``, the number of stages that the horizon holds."""

        def longer(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            q, played, count = carry
            q, length = self._next(arena.horizon, q, played)
            return q, played + length, count + 1

        start = (jnp.ones((), dtype), jnp.int32(0), jnp.zeros((), dtype))
        return jax.lax.while_loop(lambda carry: carry[1] < arena.horizon, longer, start)[2]

    def diagnose(self, state: BpeState) -> Diagnostics:
        return Diagnostics(candidates=state.alive)

    def with_delays(self, delay: Any, policy: Policy) -> Bpe:
        """Return the algorithm that knows the delay model's mean and sub-exponential parameters, where it was given none.

        Raises:
          InvalidArgument: when the model has none, or under a policy other than ``Hallucinate``.
        """
        if not isinstance(policy, Hallucinate):
            raise checks.InvalidArgument(
                f"feedback: Bpe chooses by the deviation of all points of a stage and needs feedback.Hallucinate(), got {policy!r}"
            )
        if not self.aware:
            return self
        mean = delay.mean if self.mean_delay is None else self.mean_delay
        if mean is None or not np.all(np.isfinite(np.asarray(mean))):
            raise checks.InvalidArgument(
                f"Bpe.mean_delay: the mean of {type(delay).__name__} is unknown or infinite; give mean_delay, or aware=False for BPE"
            )
        xi, b = self.xi, self.b
        if xi is None:
            if delay.sub_exponential is None:
                raise checks.InvalidArgument(
                    f"Bpe.xi, Bpe.b: {type(delay).__name__} has no sub-exponential parameters; give both, or aware=False for BPE"
                )
            xi, b = delay.sub_exponential
        return replace(self, mean_delay=mean, xi=xi, b=b)

    def audit_parameters(self, horizon: int) -> dict[str, Any]:
        """The parameters under the paper's letters, for audit traces."""
        named = {"E_tau": self.mean_delay, "xi": self.xi, "b": self.b, "delta": self.delta}
        numbers = {name: None if value is None else np.asarray(value).tolist() for name, value in named.items()}
        stages = [length for length, _ in self.stage_lengths(horizon)]
        return {**numbers, "aware": self.aware, "lengths": self.lengths, "ties": self.ties, "t_r": stages}

    def validate(self, constraints: int) -> None:
        checks.one_of("Bpe.lengths", self.lengths, ("paper", "code"))
        checks.one_of("Bpe.ties", self.ties, ("first", "random"))
        checks.within("Bpe.delta", self.delta, 0.0, 1.0, open_high=True)
        if isinstance(self.width, Elimination):
            self.width.validate("Bpe.width")
        else:
            checks.positive("Bpe.width", self.width, remedy="give a number > 0, or algorithms.Elimination for the theory's")
            checks.scalar("Bpe.width", self.width)
        for name in ("mean_delay", "xi", "b"):
            if getattr(self, name) is not None:
                checks.nonnegative(f"Bpe.{name}", getattr(self, name))
                checks.scalar(f"Bpe.{name}", getattr(self, name))
        if (self.xi is None) != (self.b is None) or (self.mean_delay is not None and self.xi is None):
            raise checks.InvalidArgument(
                f"Bpe.mean_delay, Bpe.xi, Bpe.b: give xi and b together, and both with mean_delay; got {self.mean_delay!r}, {self.xi!r},"
                f" {self.b!r}"
            )
