"""Batch pure exploration, BPE and BPE-Delay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Seen, Traits
from jaxbandit.core.blocks import one_program
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Array, Declared, Key, Scalar, Table
from jaxbandit.core.doors import setting
from jaxbandit.core.fields import Letter, between, nonnegative, positive
from jaxbandit.core.pytree import float_dtype, pytree, replace, static
from jaxbandit.delays import Delay
from jaxbandit.feedback import Hallucinate, Policy
from jaxbandit.numerics.ties import nearly_best, pick


@pytree
class Elimination(Declared):
    r"""Confidence bounds of Theorems 6.1 and 6.2.

    They are ``mu +- beta sigma`` on finite sets and ``mu +- (2/q + beta (sigma + 2/sqrt(q)))`` on continuous sets, with

    .. math::
        \beta = C + \frac{\sigma}{\sqrt\lambda} \sqrt{2 \ln \frac{4 R |X|}{\delta}} \quad\text{(finite)}, \\
        \beta = C + \frac{\sigma}{\sqrt\lambda} \sqrt{2 \ln \frac{8 R (\tilde C q)^d}{\delta}} \quad\text{(continuous)}, \\
        \tilde C = C + \max(\sigma, k_{\max}) \sqrt{q / \lambda} \sqrt{2 \ln \frac{16 R q}{\delta}}

    ``R`` is the number of stages. The constant in the size of Assumption 4.2's discretisation of a continuous set is 1.

    Attributes:
      norm_bound: ``C > 0``, bound on the function's RKHS norm.
      noise_scale: ``sigma > 0``, sub-Gaussian scale of the noise.
      delta: failure probability in (0, 1).
      continuous: whether the grid stands for a continuous set.
    """

    described: ClassVar[str] = "the theory's bounds, algorithms.Elimination(...)"
    in_files: ClassVar[bool] = True
    papers: ClassVar[Mapping[str, str]] = {"vakili2023": "Theorems 6.1 and 6.2"}
    norm_bound: Annotated[Scalar, positive] = 1.0
    noise_scale: Annotated[Scalar, positive] = 1.0
    delta: Annotated[Scalar, between(0, 1, open_high=True)] = 0.1
    continuous: bool = static(default=False)

    def __call__(self, arena: Arena, stages: Array, q: Array) -> tuple[Array, Array, Array]:
        """Return ``beta`` and the terms added to the bound and the deviation."""
        if jnp.ndim(arena.surrogate.model.noise_variance) == 2:
            raise InvalidArgument(
                "Bpe.width: the bounds of Elimination are for one noise variance at all points, got a table over them; give a number"
            )
        noise_sd = jnp.sqrt(arena.surrogate.model.noise_variance[0])
        logarithm, slack = jnp.log(4 * stages / self.delta), float(self.continuous)
        # A continuous set has a discretisation of (C~ q)^d points, because C~ bounds the norms of means by Lemma 4.3.
        if self.continuous:
            largest = jnp.maximum(self.noise_scale, jnp.max(arena.surrogate.model.forms[0].prior_variance))
            norm = self.norm_bound + largest * jnp.sqrt(q) / noise_sd * jnp.sqrt(2 * jnp.log(16 * stages * q / self.delta))
            logarithm = logarithm + np.log(2.0) + arena.surrogate.domain.dimension * jnp.log(norm * q)
        else:
            logarithm = logarithm + np.log(arena.surrogate.domain.size)
        beta = self.norm_bound + self.noise_scale / noise_sd * jnp.sqrt(2 * logarithm)
        return beta, slack * 2 / q, slack * 2 / jnp.sqrt(q)


@pytree
class BpeState(BeliefState):
    """State of BPE, with a posterior of one stage, the paper's round."""

    candidates: Array  # [M] possible maximisers
    q: Array  # [] q_r
    end: Array  # [] int32, stage's last round
    stage: Array  # [] int32, r from 1
    stages: Array  # [] R


@pytree
class Bpe(Algorithm[BpeState]):
    r"""Explore points of largest deviation, and eliminate others after each stage.

    .. math::
        q_r = \lceil \sqrt{T q_{r-1}} \rceil, \quad t_r = \lceil q_r + u_T \rceil, \quad
        u_T = E[\tau] + \min\bigl(\sqrt{2 \xi^2 \ln\tfrac{3T}{\delta}}, \, 2 b \ln\tfrac{3T}{\delta}\bigr), \\
        X_{r+1} = \{x \in X_r : U(x) \ge \max_z L(z)\}

    with ``q_0 = 1``. ``x_t`` maximises the deviation given all points of the stage. ``U`` and ``L`` use the stage's arrived feedback. With
    ``aware=False``, or without delay, ``u_T = 0`` and the algorithm is BPE. It ignores constraints.

    The lengths of stages depend on the horizon, ``mean_delay``, ``xi``, ``b`` and ``delta``. A sweep over any of these computes the end of
    a stage in every round, at ``O(M r^2)`` instead of ``O(M r)``.

    Attributes:
      width: ``beta`` of the bounds, a number > 0, or the theory's bounds :class:`Elimination`.
      mean_delay: ``E[tau] >= 0``; default: the delay model's.
      xi, b: the delays' sub-exponential parameters >= 0; default: the delay model's.
      delta: failure probability in (0, 1), half of which goes to the delays.
      aware: whether stages are longer for the delays.
      lengths: ``"paper"``, or ``"code"`` as its authors published it: ``t_r = floor(q_r + u_t)`` with ``t`` the rounds so far plus ``q_r``,
        and all of ``delta`` for the delays.
      ties: ``"first"`` or ``"random"`` point among points of equal deviation.
    """

    name: ClassVar[str] = "bpe"
    title: ClassVar[str] = "BPE-Delay"
    papers: ClassVar[Mapping[str, str]] = {"vakili2023": "Algorithm 1", "li2022": ""}
    shown = ("candidates",)
    width: Annotated[Scalar, positive] | Elimination = 2.0
    mean_delay: Annotated[Scalar, nonnegative, Letter("E_tau")] | None = None
    xi: Annotated[Scalar, nonnegative, Letter("xi")] | None = None
    b: Annotated[Scalar, nonnegative, Letter("b")] | None = None
    delta: Annotated[Scalar, between(0, 1, open_high=True), Letter("delta")] = 0.1
    aware: Annotated[bool, Letter("aware")] = static(default=True)
    lengths: Annotated[Literal["paper", "code"], Letter("lengths")] = static(default="paper")
    ties: Annotated[Literal["first", "random"], Letter("ties")] = static(default="first")

    # Deviations condition on all chosen points, means on the arrived values.
    traits = Traits(feedback=Hallucinate())

    def init(self, arena: Arena) -> BpeState:
        q, length = self._next(arena.horizon, jnp.ones((), arena.dtype), jnp.int32(0))
        return BpeState(
            posterior=arena.surrogate.init(),
            candidates=jnp.ones((arena.size,), bool),
            q=q,
            end=length,
            stage=jnp.int32(1),
            stages=self._stages(arena),
        )

    def select(self, arena: Arena, state: BpeState, t: Array, key: Key) -> tuple[Decision, BpeState]:
        belief = arena.belief(state)
        score = jnp.where(state.candidates, belief.sd[0], -jnp.inf)
        if self.ties == "random":
            score = jnp.where(nearly_best(score), jax.random.uniform(key, score.shape, score.dtype), -1)
        beta, _, _ = self._width(arena, state)
        return Decision(index=pick(score), widths=jnp.broadcast_to(beta, (1 + arena.constraints,))), state

    def update(self, arena: Arena, state: BpeState, observation: Seen, t: Array) -> BpeState:
        state = replace(state, posterior=arena.learn(state.posterior, observation))
        return jax.lax.cond(t == state.end, lambda: self._eliminate(arena, state), lambda: state)

    def _eliminate(self, arena: Arena, state: BpeState) -> BpeState:
        """Return the state of the next stage: fewer points, no data."""
        belief = arena.belief(state).arrived
        beta, bound_slack, deviation_slack = self._width(arena, state)
        width = bound_slack + beta * (belief.sd[0] + deviation_slack)
        best = jnp.max(jnp.where(state.candidates, belief.mean[0] - width, -jnp.inf))
        candidates = state.candidates & (belief.mean[0] + width >= best)
        q, length = self._next(arena.horizon, state.q, state.end)
        return replace(state, posterior=arena.surrogate.init(), candidates=candidates, q=q, end=state.end + length, stage=state.stage + 1)

    def _width(self, arena: Arena, state: BpeState) -> tuple[Array, Array, Array]:
        if isinstance(self.width, Elimination):
            return self.width(arena, state.stages, state.q)
        zero = jnp.zeros_like(state.q)
        return jnp.asarray(self.width, state.q.dtype), zero, zero

    def stage_lengths(self, horizon: int) -> list[tuple[int, float]]:
        """Return the rounds within the horizon and ``q_r`` of every stage."""
        q, played, stages = np.ones((), float_dtype()), 0, []
        while played < horizon:
            q, length = map(np.asarray, self._next(horizon, q, played))
            stages.append((min(int(length), horizon - played), float(q)))
            played += int(length)
        return stages

    @one_program
    def _next(self, horizon: Scalar, q: Table, played: Scalar) -> tuple[Array, Array]:
        """Return ``q_r`` and the length ``t_r`` of the stage after ``played`` rounds."""
        horizon = jnp.asarray(horizon, q.dtype)
        square = horizon * q
        q = jnp.ceil(jnp.sqrt(square))
        # The root of a square number may be rounded up.
        q = jnp.where(jnp.square(q - 1) >= square, q - 1, q)
        if self.lengths == "paper":
            return q, jnp.ceil(q + self._wait(horizon, jnp.asarray(self.delta / 2, q.dtype))).astype(jnp.int32)
        wait = self._wait(jnp.asarray(played, q.dtype) + q, jnp.asarray(self.delta, q.dtype))
        return q, jnp.floor(q + wait).astype(jnp.int32)

    def _wait(self, rounds: Array, delta: Array) -> Array:
        """Return ``u_T``, a bound of the delays, eq. (5)."""
        if not self.aware or self.mean_delay is None or self.xi is None or self.b is None:
            return jnp.zeros_like(rounds)
        logarithm = jnp.log(3 * rounds / (2 * delta))
        return self.mean_delay + jnp.minimum(jnp.sqrt(2 * jnp.square(self.xi) * logarithm), 2 * self.b * logarithm)

    def _stages(self, arena: Arena) -> Array:
        """Return ``R``, the number of stages within the horizon."""

        def longer(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            q, played, count = carry
            q, length = self._next(arena.horizon, q, played)
            return q, played + length, count + 1

        start = (jnp.ones((), arena.dtype), jnp.int32(0), jnp.zeros((), arena.dtype))
        return jax.lax.while_loop(lambda carry: carry[1] < arena.horizon, longer, start)[2]

    def with_delays(self, delay: Delay, policy: Policy) -> Bpe:
        """Return the algorithm with the delay model's values for missing parameters.

        Raises:
          InvalidArgument: when the delay model has no such parameters, or under a policy other than ``Hallucinate``.
        """
        if type(policy) is not Hallucinate:
            raise InvalidArgument(
                f"feedback: Bpe chooses by the deviation of all points of a stage and needs"
                f" {setting('feedback', Hallucinate())}, got {type(policy).__name__}"
            )
        if not self.aware:
            return self
        words, remedy = type(delay).__name__, f"or {setting('aware', False)} for BPE"
        mean = delay.mean if self.mean_delay is None else self.mean_delay
        if mean is None or not np.all(np.isfinite(np.asarray(mean))):
            raise InvalidArgument(f"Bpe.mean_delay: the mean of {words} is unknown or infinite; give mean_delay, {remedy}")
        parameters = delay.sub_exponential if self.xi is None else (self.xi, self.b)
        if parameters is None:
            raise InvalidArgument(f"Bpe.xi, Bpe.b: {words} has no sub-exponential parameters; give both, {remedy}")
        return replace(self, mean_delay=mean, xi=parameters[0], b=parameters[1])

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the hyper-parameters with the lengths ``t_r`` of the stages."""
        return {**super().symbols_in_force(horizon), "t_r": [length for length, _ in self.stage_lengths(horizon)]}

    def _check(self, name: str, outputs: int | None) -> None:
        if (self.xi is None) != (self.b is None) or (self.mean_delay is not None and self.xi is None):
            raise InvalidArgument(
                f"{name}.mean_delay, {name}.xi, {name}.b: give xi and b together, and both with mean_delay; got"
                f" {short(self.mean_delay)}, {short(self.xi)}, {short(self.b)}"
            )
