"""Confidence intervals, rules of safe sets and their expansion, for safe algorithms."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxbandit.core import checks
from jaxbandit.core.blocks import repeated
from jaxbandit.core.declare import Array, Declared, Key, PerConstraint, Scalar
from jaxbandit.core.fields import From, Letter, between, label, nonnegative, positive, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.domains import Domain
from jaxbandit.numerics.ties import nearly_best, restricted_to, squared_distance
from jaxbandit.rules.estimators import Bounds
from jaxbandit.surrogates import Belief, Prediction, Surrogate
from jaxbandit.surrogates.precision import in_step

__all__ = ["Confidence", "Conformal", "Expansion", "Intervals", "Lipschitz", "Monotone", "SafeSet", "Verdict", "intervals", "maximisers"]
__dir__ = __all__.copy


@pytree
class Intervals:
    """Intervals ``mean +- widths sd`` of the ``k`` outputs."""

    mean: Array  # [k, M]
    sd: Array  # [k, M]
    widths: Array  # [k]
    prior_sd: Array  # [k] largest over the points
    arrived: Prediction  # [k, M] from arrived values alone

    @property
    def lower(self) -> Array:
        """Lower bounds ``[k, M]``."""
        return self.mean - self.widths[:, None] * self.sd

    @property
    def upper(self) -> Array:
        """Upper bounds ``[k, M]``."""
        return self.mean + self.widths[:, None] * self.sd

    @property
    def worst(self) -> Array:
        """``max_j UCB_gj [M]`` from arrived values, minus infinity without constraints."""
        return jnp.max((self.arrived.mean + self.widths[:, None] * self.arrived.sd)[1:], axis=0, initial=-jnp.inf)

    @property
    def is_violated(self) -> Array:
        """Mask ``[M]`` of points where ``LCB_gj > 0`` from arrived values."""
        return jnp.any((self.arrived.mean - self.widths[:, None] * self.arrived.sd)[1:] > 0, axis=0)

    @property
    def size(self) -> Array:
        """Length ``[M]`` of the widest interval, in prior standard deviations."""
        return jnp.max(2 * (self.widths / self.prior_sd)[:, None] * self.sd, axis=0)


def intervals(model: Surrogate, belief: Belief, estimator: Bounds, t: Array, key: Key) -> Intervals:
    """Return the intervals of round ``t``, given the unfitted ``model``."""
    prior = jnp.stack([jnp.max(jnp.asarray(model.forms[g].prior_variance)) for g in model.groups])
    widths = estimator.estimate(belief, t, key).widths
    return Intervals(mean=belief.mean, sd=belief.sd, widths=widths, prior_sd=jnp.sqrt(prior), arrived=belief.arrived)


def maximisers(known: Intervals, safe: Array) -> Array:
    """Return the mask ``[M]`` of possible maximisers, ``UCB_f(x) >= max_S LCB_f``."""
    return safe & (known.upper[0] >= jnp.max(restricted_to(safe, known.lower[0])))


@pytree
class Expansion(Declared):
    """Rule for expanders: safe points whose observation could enlarge the safe set.

    Without a Lipschitz constant, ``x`` is an expander if a fictitious observation of ``LCB_gj(x)`` at ``x`` would give ``UCB_gj <= 0`` at
    some point outside. With ``c = k_t(x, x')`` and ``s = sigma^2(x) + lambda`` this observation is the rank-one update ``mu' = mu(x') +
    c (LCB(x) - mu(x)) / s``, ``var' = var(x') - c^2 / s``, computed for a block of points ``x`` and all ``x'`` at once. With a Lipschitz
    constant, ``x`` is an expander if ``LCB_gj(x) + L_j |x - x'| <= 0`` for some point ``x'`` outside.

    Attributes:
      lipschitz: ``L > 0``, one number or ``[m]``, or ``None``.
      together: whether one point outside has to satisfy all constraints, and would so be certified. Otherwise a different point outside
        may satisfy each constraint, as in the ``safeopt`` package. It matters for several constraints without a Lipschitz constant only.
      often: number >= 1 of fictitious observations. It matters without a Lipschitz constant only.
    """

    described: ClassVar[str] = "a rule of expansion, safety.Expansion(...)"
    lipschitz: Annotated[PerConstraint, positive] | None = None
    together: bool = static(default=True)
    often: Annotated[int, whole(1)] = static(default=1)

    def widest(self, model: Surrogate, belief: Belief, known: Intervals, safe: Array, candidates: Array) -> Array:
        """Return the index of the candidate expander of largest ``known.size``, else ``M``.

        The search examines blocks of ``candidates [M]``, widest first, and stops at the first block with an expander. On an accelerator it
        goes on for a known number of blocks, because the host would wait for each turn of a loop of unknown length.
        """
        size = safe.shape[0]
        # A product [32, r] x [r, M] examines 32 candidates at once, few enough for the search to stop early.
        block = min(32, size)
        left = jnp.where(candidates, known.size, -jnp.inf)

        def more(carry: tuple[Array, Array]) -> Array:
            left, expander = carry
            return (jnp.max(left) > -jnp.inf) & (expander == size)

        def examine(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            left, before = carry
            level = jnp.where(nearly_best(left), jnp.max(left), left)
            # A full sort would take fifty times as long.
            widest, points = jax.lax.top_k(level, block)
            good = self.expands(model, belief, known, safe, points) & (widest > -jnp.inf)
            tied = good & nearly_best(jnp.where(good, widest, -jnp.inf))
            found = jnp.min(jnp.where(tied, points.astype(jnp.int32), size))
            return left.at[points].set(-jnp.inf), jnp.where(before < size, before, found)

        def on_accelerators(carry: tuple[Array, Array]) -> Array:
            carry = examine(carry)
            blocks = -(-jnp.sum(carry[0] > -jnp.inf, dtype=jnp.int32) // block)
            return repeated(examine, carry, in_step(jnp.where(more(carry), blocks, 0)), -(-size // block))[1]

        def on_cpus(carry: tuple[Array, Array]) -> Array:
            return jax.lax.while_loop(more, examine, carry)[1]

        return jax.lax.platform_dependent((left, jnp.int32(size)), cpu=on_cpus, default=on_accelerators)

    def expands(self, model: Surrogate, belief: Belief, known: Intervals, safe: Array, points: Array) -> Array:
        """Return the mask ``[n]`` of expanders among the safe ``points [n]``."""
        if known.mean.shape[0] == 1:
            return jnp.zeros(points.shape, bool)
        if self.lipschitz is not None:
            slack = -known.lower[1:, points] / jnp.broadcast_to(jnp.asarray(self.lipschitz), (known.mean.shape[0] - 1,))[:, None]
            table = belief.here(jnp.asarray(model.domain.points), 0)
            squares = sum(jnp.square(table[points, a][:, None] - table[:, a][None, :]) for a in range(table.shape[1]))
            # The distance to the nearest point outside is infinite if all points are safe.
            outside = jnp.sqrt(jnp.min(jnp.where(safe[None, :], jnp.inf, squares), axis=-1))
            return outside <= jnp.min(slack, axis=0)
        columns: dict[int, Array] = {}
        reached = []
        for j, group in enumerate(model.groups):
            if j == 0:
                continue
            if group not in columns:
                columns[group] = belief.covariance(j, points)  # [n, M]
            s = jnp.square(known.sd[j, points]) + model.noise_at(group, belief.numbers(points)) / self.often
            # Test UCB' = mu' + beta sd' <= 0 in squares, without roots of [n, M] numbers.
            room = (known.widths[j] * known.sd[j, points] / s)[:, None] * columns[group] - known.mean[j][None, :]
            left = jnp.square(known.sd[j])[None, :] - jnp.square(columns[group]) * (1 / s)[:, None]
            reached.append((room >= 0) & (jnp.square(known.widths[j]) * left <= jnp.square(room)) & ~safe[None, :])
        if self.together:
            return jnp.any(jnp.all(jnp.stack(reached), axis=0), axis=-1)
        return jnp.all(jnp.any(jnp.stack(reached), axis=-1), axis=0)


@pytree
class Verdict:
    """Judgement of a rule on every point in a round."""

    known: Intervals
    certified: Array  # [M]
    violated: Array  # [M] unsafe with certainty
    # The rule certifies no point for some rounds, on purpose.
    resting: Array | bool = False  # []


class SafeSet(Declared, abc.ABC):
    """Abstract base of rules that certify points, ``SafeOpt(safety=...)``.

    A rule may have a memory, a pytree in the state of the algorithm. Rules see costs, the values of the constraints: ``costs [n, m]`` at
    ``points [n]``, of which those with ``present [n, m]`` were observed.

    Attributes:
      joint_arrival: whether late values of a point must arrive together.
      on_contexts: whether the rule judges the actions of one context alone.
    """

    described: ClassVar[str] = "a rule of safe sets of jaxbandit.safety, such as Confidence()"
    called: ClassVar[str] = "safety"
    in_files: ClassVar[bool] = True
    joint_arrival: ClassVar[bool] = False
    on_contexts: ClassVar[bool] = False

    def start(self, domain: Domain, constraints: int, horizon: Array, dtype: DTypeLike) -> Any:
        """Return the memory before any observation, by default empty.

        Raises:
          InvalidArgument: when the rule does not fit the domain.
        """
        return ()

    @abc.abstractmethod
    def judge(self, memory: Any, known: Intervals, domain: Domain) -> Verdict:
        """Return the certified and the violated points of a round."""

    def learn(self, memory: Any, domain: Domain, points: Array, costs: Array, present: Array) -> Any:
        """Return the memory after observations, of an initial design too."""
        return memory

    def count(self, memory: Any, costs: Array, present: Array) -> Any:
        """Return the memory after the costs that arrived in a round."""
        return memory

    def expansion(self, expansion: Expansion) -> Expansion:
        """Return the rule for expanders of these safe sets."""
        return expansion


@pytree
class Confidence(SafeSet):
    """Certify the points with ``UCB_gj(x) <= 0`` for every ``j``.

    The set is safe with the probability at which the confidence bounds hold, under the model. It is computed anew in every round.
    """

    on_contexts: ClassVar[bool] = True

    def judge(self, memory: Any, known: Intervals, domain: Domain) -> Verdict:
        return Verdict(known=known, certified=known.worst <= 0, violated=known.is_violated)


@pytree
class CostBounds:
    """Bounds of every cost at every point by the data alone."""

    lower: Array  # [m, M]
    upper: Array  # [m, M]


@pytree
class Lipschitz(SafeSet):
    r"""Certify points near safe measurements, whatever the model: LoSBO's set.

    .. math:: S_t = S_0 \cup \{x : \forall j \; \exists s < t : \; y_{j,s} + E_j + L_j |x - x_s| \le 0\}

    The set only grows. It is safe in every run if each ``g_j`` has the Lipschitz constant ``L_j`` and each noise stays within ``E_j``. The
    model steers the choice among safe points only. With several constraints it is MCLoSBO's set. Gaussian noise has no bound: 4 standard
    deviations hold for all but 1 of 16,000 values. On a grid no point is certified unless ``L`` times the spacing is below the margin.

    Attributes:
      constant: ``L > 0``, one number or ``[m]``, in units of the cost per unit of distance between the domain's points.
      noise_bound: ``E >= 0``, one number or ``[m]``.
    """

    papers: ClassVar[Mapping[str, str]] = {"fiedler2024": "LoSBO", "menn2024": "several constraints"}
    constant: Annotated[PerConstraint, positive, Letter("L")]
    noise_bound: Annotated[PerConstraint, nonnegative, Letter("E")]

    def start(self, domain: Domain, constraints: int, horizon: Array, dtype: DTypeLike) -> CostBounds:
        endless = jnp.full((constraints, domain.size), jnp.inf, dtype)
        return CostBounds(lower=-endless, upper=endless)

    def judge(self, memory: CostBounds, known: Intervals, domain: Domain) -> Verdict:
        return Verdict(known=known, certified=jnp.all(memory.upper <= 0, axis=0), violated=jnp.any(memory.lower > 0, axis=0))

    def learn(self, memory: CostBounds, domain: Domain, points: Array, costs: Array, present: Array) -> CostBounds:
        table, shape = jnp.asarray(domain.points, costs.dtype), costs.shape[1:]
        constant, bound = (jnp.broadcast_to(jnp.asarray(x, costs.dtype), shape)[:, None] for x in (self.constant, self.noise_bound))

        def one(memory: CostBounds, seen: tuple[Array, Array, Array]) -> tuple[CostBounds, None]:
            point, cost, there = seen
            away = bound + constant * jnp.sqrt(squared_distance(table, table[point]))[None]
            # A value that never arrives is NaN.
            there = (there & ~jnp.isnan(cost))[:, None]
            lower = jnp.where(there, jnp.maximum(memory.lower, cost[:, None] - away), memory.lower)
            return CostBounds(lower=lower, upper=jnp.where(there, jnp.minimum(memory.upper, cost[:, None] + away), memory.upper)), None

        return jax.lax.scan(one, memory, (points, costs, present))[0]

    def expansion(self, expansion: Expansion) -> Expansion:
        return expansion if expansion.lipschitz is not None else replace(expansion, lipschitz=self.constant)


@pytree
class Balance:
    """Width of a :class:`Conformal` rule, and its share of errors."""

    width: Array  # []
    target: Array  # [] share of errors at which the width stays


@pytree
class Conformal(SafeSet):
    r"""Keep the share of unsafe rounds within ``alpha``, whatever the constraints.

    .. math:: S_t = S_0 \cup \{x : \mu_{g_j}(x) + w_t \sigma_{g_j}(x) \le 0 \;\forall j\} \text{ if } w_t \le w_{\max},
        \quad S_t = S_0 \text{ otherwise}, \\
        w_{t+1} = \max(w_t + \eta (e_t - a), 0), \quad e_t = 1 \text{ if some } y_{j,t} > -\omega, \text{ else } 0

    No round is an error while ``w > w_max``, so that ``w`` never exceeds ``w_max + eta (1 - a)``. The sum of the recursion over ``T``
    rounds then bounds the share of errors by ``a + (w_max - w_1) / (eta T) + (1 - a) / T``, which
    ``a = alpha - (w_max - w_1) / (eta T) - 1 / T`` keeps within ``alpha``. This holds in every run, for any functions and any model. The
    rule is our own, by online conformal prediction; no paper has it.

    Seeds must be safe, and under noise satisfy ``g_j <= -2 omega``. Errors count by measured values: they contain the truly unsafe rounds
    while the noise is within ``omega``. Unless ``a > 0``, which takes more than ``((w_max - w_1) / eta + 1) / alpha`` rounds, the safe set
    is the seeds. A late value counts when it arrives, and each round under way adds at most ``1 / T`` to the bound.

    Attributes:
      alpha: largest share of unsafe rounds, in (0, 1).
      eta: step ``> 0`` of the width.
      w_max: width ``>= w_1`` above which only seeds are safe.
      w_1: first width, ``>= 0``, of all constraints; it takes the place of the estimator's ``cost_width``.
      noise_bound: ``omega >= 0``.
    """

    joint_arrival: ClassVar[bool] = True
    on_contexts: ClassVar[bool] = True
    alpha: Annotated[Scalar, between(0, 1, open_high=True), Letter("alpha")] = 0.1
    eta: Annotated[Scalar, positive, Letter("eta")] = 1.0
    w_max: Annotated[Scalar, nonnegative, From("w_1"), Letter("w_max")] = 10.0
    w_1: Annotated[Scalar, nonnegative, Letter("w_1")] = 3.0
    noise_bound: Annotated[Scalar, nonnegative, Letter("omega")] = 0.0

    def start(self, domain: Domain, constraints: int, horizon: Array, dtype: DTypeLike) -> Balance:
        rounds = jnp.asarray(horizon, dtype)
        target = self.alpha - (jnp.asarray(self.w_max, dtype) - self.w_1) / (self.eta * rounds) - 1 / rounds
        return Balance(width=jnp.asarray(self.w_1, dtype), target=target)

    def judge(self, memory: Balance, known: Intervals, domain: Domain) -> Verdict:
        known = replace(known, widths=known.widths.at[1:].set(memory.width))
        resting, possible = memory.width > self.w_max, memory.target > 0
        certified = (known.worst <= 0) & ~resting & possible
        return Verdict(known=known, certified=certified, violated=jnp.zeros_like(certified), resting=resting & possible)

    def count(self, memory: Balance, costs: Array, present: Array) -> Balance:
        errors = jnp.any(present & (costs > -jnp.asarray(self.noise_bound, costs.dtype)), axis=1)
        rounds = jnp.sum(jnp.any(present, axis=1), dtype=costs.dtype)
        width = memory.width + self.eta * (jnp.sum(errors, dtype=costs.dtype) - rounds * memory.target)
        return replace(memory, width=jnp.maximum(width, 0))


@pytree
class Monotone(SafeSet):
    """Certify every point below a certified point along one axis.

    It holds where every constraint grows along the axis, such as toxicity with the dose: a point is certified if the rule certifies a point
    at the same or a larger value of the axis with all other coordinates equal, and violated if a point at the same or a smaller value is.

    Attributes:
      axis: number of the axis, from 0, or its name where the domain names its axes. The domain is a product grid.
      rule: the rule that certifies the points above.
    """

    axis: Annotated[int, whole(0)] | Annotated[str, label] = static()
    rule: SafeSet = Confidence()

    @property
    def joint_arrival(self) -> bool:  # type: ignore[override]  # It is the wrapped rule's.
        return self.rule.joint_arrival

    def start(self, domain: Domain, constraints: int, horizon: Array, dtype: DTypeLike) -> Any:
        number_of_axis("Monotone.axis", self.axis, domain)
        return self.rule.start(domain, constraints, horizon, dtype)

    def judge(self, memory: Any, known: Intervals, domain: Domain) -> Verdict:
        number, verdict = number_of_axis("Monotone.axis", self.axis, domain), self.rule.judge(memory, known, domain)

        def along(mask: Array, reverse: bool) -> Array:
            table = mask.reshape(domain.grid_shape).astype(jnp.int32)
            return jax.lax.cummax(table, axis=number, reverse=reverse).reshape(-1) > 0

        certified, violated = along(verdict.certified, True), along(verdict.violated, False)
        return replace(verdict, certified=certified, violated=violated)

    def learn(self, memory: Any, domain: Domain, points: Array, costs: Array, present: Array) -> Any:
        return self.rule.learn(memory, domain, points, costs, present)

    def count(self, memory: Any, costs: Array, present: Array) -> Any:
        return self.rule.count(memory, costs, present)

    def expansion(self, expansion: Expansion) -> Expansion:
        return self.rule.expansion(expansion)


def number_of_axis(name: str, axis: int | str, domain: Domain) -> int:
    """Return the number of an axis of a product grid.

    Raises ``InvalidArgument``, by ``name``, for an axis that the domain lacks, an axis of categories, or a bare set of points.
    """
    names = [domain.name_of(number) for number in range(domain.dimension)]
    if not domain.axes:
        raise checks.InvalidArgument(f"{name}: needs a product grid, such as domains.grid, got a bare set of {domain.size} points")
    if not (axis in names if isinstance(axis, str) else axis < len(names)):
        raise checks.InvalidArgument(f"{name}: must be one of the axes {', '.join(names)}, or its number from 0, got {checks.short(axis)}")
    number = names.index(axis) if isinstance(axis, str) else int(np.int64(axis))
    if domain.is_categorical(number):
        raise checks.InvalidArgument(f"{name}: must be an axis of numbers, for categories have no order, got {names[number]}")
    return number
