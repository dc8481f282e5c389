"""Losses of trials, and a loss of studies with a smoothed gradient.

The loss is averaged over small steps of the parameters. Steps are rows of two-level factorial designs, orthogonal and with sum 0, so that
the effect of a parameter is independent of other effects and of a shift (Plackett and Burman 1946). Every copy of the design has random
columns and signs, which spread the effects of interactions evenly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, blaming, is_traced
from jaxbandit.core.declare import Array, Declared, Key, KeyOrSeed, Scalar, check_fields, checked
from jaxbandit.core.fields import Described, Rounds, between, finite, function, integers_from, nonnegative, numbers, vector, whole
from jaxbandit.core.keys import typed
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree, static
from jaxbandit.core.sweep import gather_variants
from jaxbandit.delays import Delay
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.arguments import Telling, plan_delays
from jaxbandit.engine.cell import Cell, check_run
from jaxbandit.engine.programs import measure_each
from jaxbandit.feedback import Policy
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.metrics import Curves
from jaxbandit.results.summary import MEASURED
from jaxbandit.surrogates import Surrogate, arithmetic
from jaxbandit.surrogates.precision import require

__all__ = ["GradientEstimate", "SmoothedLoss", "SubjectTo"]
__all__ += ["best_feasible", "hard_violation", "positive_regret", "regret", "regret_and_violation"]


Params: TypeAlias = Any
"""Parameters, a pytree of floating-point arrays."""
Build: TypeAlias = Callable[[Params], tuple[Algorithm, Surrogate]]
"""Pure function that makes an algorithm and a model from parameters."""
Loss: TypeAlias = Callable[[Curves], Array]
"""Function from the measures ``[T]`` of one trial to a number ``[]``."""


@checked
def regret(measures: Curves) -> Array:
    """Return the mean regret of a round.

    It is negative if a trial chose infeasible points with a larger reward.
    """
    return measures.regret[..., -1] / measures.regret.shape[-1]


@checked
def positive_regret(measures: Curves) -> Array:
    """Return the mean over rounds of ``(f* - f(x_t))^+``."""
    return measures.positive_regret[..., -1] / measures.positive_regret.shape[-1]


@checked
def hard_violation(measures: Curves) -> Array:
    """Return the mean over rounds of ``sum_j g_j(x_t)^+``."""
    return measures.hard_violation[..., -1] / measures.hard_violation.shape[-1]


@checked
def regret_and_violation(measures: Curves) -> Array:
    """Return the mean over rounds of ``(f* - f(x_t))^+ + sum_j g_j(x_t)^+``."""
    return positive_regret(measures) + hard_violation(measures)


@checked
def best_feasible(measures: Curves) -> Array:
    """Return the least ``(f* - f(x_t))^+ + sum_j g_j(x_t)^+`` of all rounds.

    It is the loss of a user who keeps the best point.
    """
    return measures.best_constrained_regret[..., -1]


@pytree
class SubjectTo(Declared):
    """Lagrangian of the least objective within a budget of violation.

    It is ``objective + multiplier (violation - budget)``. With a ``dual_step`` :func:`descend` finds the multiplier that fits the budget.

    Attributes:
      multiplier: dual variable, at least 0; programs of trials do not depend on it.
      budget: largest allowed mean violation of a round.
      objective: loss to minimise.
      violation: loss to keep within the budget.
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
    def parts(self) -> LossParts:
        """Function from the measures of a trial to its objective and violation."""
        return LossParts(self.objective, self.violation)

    @checked
    def combined(self, parts: Annotated[Array, numbers]) -> Array:
        """Return the Lagrangian ``[...]`` of objectives and violations ``parts [..., 2]``."""
        return parts[..., 0] + self.multiplier * (parts[..., 1] - self.budget)


class LossParts(NamedTuple):
    """Objective and violation of a trial, equal if their functions are."""

    objective: Loss
    violation: Loss

    def __call__(self, measures: Curves) -> Array:
        """Return both ``[2]``."""
        return jnp.stack([self.objective(measures), self.violation(measures)])


@pytree
class GradientEstimate:
    """Value and gradient of a smoothed loss, with their errors.

    Attributes:
      value: ``[]`` mean loss of the trials.
      gradient: like the parameters.
      standard_error: of the gradient, like the parameters.
      half_width: of 95% intervals of the gradient, like the parameters, by Student's t because few pairs estimate the error.
      unchanged: ``[]`` share of pairs whose trials chose the same points; such pairs do not inform the gradient.
      failed: ``[]`` int32, pairs left out because a trial failed; beyond 5% value and gradient are NaN.
      violation: ``[]`` mean violation of the trials, if the measure is a :class:`SubjectTo`.
    """

    value: Array
    gradient: Params
    standard_error: Params
    half_width: Params
    unchanged: Array
    failed: Array
    violation: Array | None = None


# Identity compares and hashes this static argument of programs.
@dataclasses.dataclass(frozen=True, eq=False)
class SmoothedLoss(Described):
    r"""Mean loss of trials, with the gradient of its smoothed form.

    Trials are pairs on common random numbers, at opposite sides of the parameters along the rows :math:`\xi_i` of two-level factorial
    designs:

    .. math::
        J_h(\theta) = E_\xi\, J(\theta + h \xi), \qquad
        \hat g = \frac{1}{n} \sum_i \xi_i \frac{L_i(\theta + h \xi_i) - L_i(\theta - h \xi_i)}{2 h}

    ``loss(params, key)`` is the mean over all ``2 pairs`` trials, and ``jax.grad(loss)`` is :math:`\hat g`, from the same execution of one
    program. For a loss that is linear in the parameters the gradient is exact; otherwise it is the gradient of the loss averaged over the
    corners of a cube of half-width ``step``. Only reverse mode and first derivatives are available. Trials of a model that needs float64
    are in float64; inside ``jit`` they need ``jax.enable_x64``, and raise an error without it.

    Args:
      problem: a problem or a random family, as for :func:`~jaxbandit.simulate`.
      build: pure function from the parameters, a pytree of floating-point arrays, to an algorithm and a model; :func:`logarithms` makes
        one. JAX traces it, so parameters set numbers, not structure or shapes.
      horizon: rounds of a trial.
      pairs: pairs of trials, a multiple of the least power of two above the number of parameters.
      step: half-width :math:`h` of the smoothing, at least 0.05, in units of the parameters. The standard error falls as ``1 / step``.
      measure: loss of one trial, a pure function of its :class:`~jaxbandit.metrics.Curves`; default :func:`regret_and_violation`.
      initial, informed, delay, feedback, capacity, block: as for :func:`~jaxbandit.simulate`.

    Raises:
      InvalidArgument: on numbers out of range, and when called on parameters that are not floating-point numbers, are too many for
        ``pairs``, or do not make an algorithm and a model by ``build``.
    """

    described: ClassVar[str] = "a loss, jaxbandit.gradients.SmoothedLoss(...)"
    problem: AbstractProblem
    build: Annotated[Build, function("(params)")]
    # If a larger share of the pairs of trials failed, a gradient of the others means nothing.
    max_failed_share: ClassVar[float] = 0.05
    _: dataclasses.KW_ONLY
    horizon: Rounds
    pairs: Annotated[int, whole(1)] = 32
    # Below 0.05 the gradient measures rounding, because rounding decides between points with almost equal scores.
    step: Annotated[float, between(0.05, float("inf"), open_low=False, open_high=True)] = 0.3
    measure: Annotated[Loss, function("(curves)")] | SubjectTo = regret_and_violation
    initial: InitialDesign = InitialDesign()
    informed: Telling | None = None
    delay: Delay | None = None
    feedback: Policy | None = None
    capacity: Annotated[int, whole(1)] | None = None
    block: Annotated[int, whole(1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.measure, SubjectTo):
            return
        curve: Any = jax.ShapeDtypeStruct((self.horizon,), float_dtype())
        with blaming("measure: must make one number of the Curves of a trial"):
            loss = jax.eval_shape(self.measure, Curves(**dict.fromkeys(MEASURED, curve)))
        if not isinstance(loss, jax.ShapeDtypeStruct) or loss.shape != () or not jnp.issubdtype(loss.dtype, jnp.floating):
            raise InvalidArgument(f"measure: must make one number [] of the Curves of a trial, got {checks.short(loss)}")

    @checked
    def __call__(self, params: Params, key: KeyOrSeed) -> Array:
        """Return the mean loss ``[]`` of a round.

        Its gradient is the smoothed gradient. Raises ``InvalidArgument`` as the class describes.
        """
        self._check(params)
        return _value(self, params, key)

    @checked
    def estimate(self, params: Params, key: KeyOrSeed) -> GradientEstimate:
        """Return value and gradient with their errors.

        Raises ``InvalidArgument`` as the class describes, and, unless it is traced, when more than 5% of the pairs failed.
        """
        self._check(params)
        estimate = _estimate(self, params, typed(key))
        if not is_traced(estimate.failed) and int(estimate.failed) > int(self.max_failed_share * self.pairs):
            raise InvalidArgument(
                f"params: a trial failed in {int(estimate.failed)} of {self.pairs} pairs around them, at most"
                f" {self.max_failed_share:.0%} may;"
                " the loss, the problem or the score gives NaN or infinity there, a hyper-parameter leaves its range, or no point is"
                " feasible"
            )
        return estimate

    @checked
    def measured(
        self,
        points: Params,
        trials: Annotated[Array | np.ndarray, integers_from(0, 2**31 - 1), vector("one number per trial")],
        key: Key,
    ) -> tuple[Array, Array, Array, Array]:
        """Run trials, each at parameters of its own.

        ``points`` is like the parameters with a leading axis ``[P]``, and ``trials [P]`` are the trials' numbers.

        Returns:
          Their losses ``[P]``, objectives and violations ``[P, 2]`` of a ``SubjectTo`` (else the losses again), fingerprints of the points
          chosen ``[P]``, and whether each went well ``[P]``.
        """
        if any(np.shape(leaf)[:1] != np.shape(trials) for leaf in checks.leaves(points)) or not checks.leaves(points):
            raise InvalidArgument(
                f"points: expected parameters with a leading axis of {np.shape(trials)[0]} trials, got {checks.short(points)}"
            )
        algorithm, model = self._built(jax.tree.map(lambda leaf: leaf[0], points))
        delay = self.problem.delay if self.delay is None else self.delay
        [delays] = plan_delays(self.problem, [algorithm], [delay], self.feedback, self.capacity, self.horizon)
        outside, traced = float_dtype(), is_traced((points, key))
        if traced:
            # The program around has JAX's own arithmetic.
            require(model.precision)
        with arithmetic([] if traced else [model.precision]):
            measure = cast(Loss, self.measure.parts if isinstance(self.measure, SubjectTo) else self.measure)
            problem, initial, late = canonicalise((self.problem, self.initial, delays))
            how: Any = {
                "horizon": self.horizon,
                "block": self.block or min(form.trials_per_block for form in model.forms),
                "informed": self.informed,
            }
            cell = Cell(problem=problem, variants=gather_variants([late]), initial=initial, **how)
            places = jax.tree.map(lambda leaf: jnp.asarray(leaf, float_dtype()), points)
            parts, chosen, healthy = measure_each(cell, (places, trials), key, build=self.build, measure=measure)
        parts = parts.astype(outside)
        return self.measure.combined(parts) if isinstance(self.measure, SubjectTo) else parts, parts, chosen, healthy

    def _check(self, params: Params) -> None:
        """Raise ``InvalidArgument`` on parameters that make no study."""
        leaves = checks.leaves(params) if checks.is_shallow(params) else []
        arrays = np.generic | np.ndarray | jax.Array
        are_floating = (
            jnp.issubdtype(leaf.dtype, jnp.floating) if isinstance(leaf, arrays) else isinstance(leaf, float) for leaf in leaves
        )
        if not leaves or not all(are_floating):
            raise InvalidArgument(f"params: expected a pytree of floating-point numbers, got {checks.short(params)}")
        for leaf in leaves:
            checks.finite("params", leaf)
        count = sum(int(np.size(leaf)) for leaf in leaves)
        size = design_size(count)
        if self.pairs % size:
            following = -(-self.pairs // size) * size
            raise InvalidArgument(f"pairs: {count} parameters need a multiple of {size}, got {self.pairs}; the next is {following}")
        algorithm, model = self._built(params)
        if not any(is_traced(leaf) for leaf in jax.tree.leaves((params, algorithm, model.noise_variance, model.prior_mean))):
            check_run(self.problem, [algorithm], [model], self.horizon, self.initial, self.informed)

    def _built(self, params: Params) -> tuple[Algorithm, Surrogate]:
        """Return the algorithm and the model that ``build`` makes of the parameters."""
        with blaming("build: must make an algorithm and a surrogate of the parameters"):
            built = self.build(params)
        if not (isinstance(built, tuple) and len(built) == 2 and isinstance(built[0], Algorithm) and isinstance(built[1], Surrogate)):
            raise InvalidArgument(f"build: must return an algorithm and a surrogate, got {checks.short(built)}")
        return built


def _estimate(loss: SmoothedLoss, params: Params, key: Key) -> GradientEstimate:
    """Return the estimate at ``params`` from one run of the trials."""
    steps, points, trials, trials_key = _pairs(params, key, loss.step, pairs=loss.pairs)
    losses, parts, chosen, healthy = loss.measured(points, trials, trials_key)
    violations = parts[..., 1] if isinstance(loss.measure, SubjectTo) else None
    return _gathered(params, steps, loss.step, losses, violations, chosen, healthy)


@partial(jax.jit, static_argnames="pairs")
def _pairs(params: Params, key: Key, step: Scalar, *, pairs: int) -> tuple[Array, Params, Array, Key]:
    """Return directions ``[n, d]``, parameters ``[2n]`` along and against, numbers, and key."""
    flat, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float_dtype()), params))
    design_key, trials_key = jax.random.split(key)
    steps = directions(design_key, pairs, flat.shape[0]).astype(flat.dtype)
    points = jax.vmap(rebuild)(jnp.concatenate([flat[None] + step * steps, flat[None] - step * steps]))
    return steps, points, jnp.tile(jnp.arange(pairs, dtype=jnp.int32), 2), trials_key


@jax.jit
def _gathered(
    params: Params, steps: Array, step: Scalar, losses: Array, violations: Array | None, chosen: Array, healthy: Array
) -> GradientEstimate:
    """Return the estimate from ``losses [2n]``, along ``steps [n, d]`` and against."""
    _, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float_dtype()), params))
    pairs, parameters = steps.shape
    losses, chosen, healthy = (jnp.reshape(x, (2, pairs)) for x in (losses, chosen, healthy))
    complete = jnp.all(healthy & jnp.isfinite(losses), axis=0)
    count = jnp.maximum(jnp.sum(complete), 1).astype(steps.dtype)
    slopes = jnp.where(complete, (losses[0] - losses[1]) / (2 * step), 0)
    gradient = jnp.sum(steps * slopes[:, None], axis=0) / count
    error = _standard_error(steps, slopes, gradient)
    failed = jnp.sum(~complete, dtype=jnp.int32)
    # Too few trials give NaN, never a number.
    usable = jnp.where(failed > int(SmoothedLoss.max_failed_share * pairs), jnp.nan, 1.0).astype(steps.dtype)
    value = jnp.sum(jnp.where(complete, losses, 0)) / (2 * count)
    violated = None if violations is None else jnp.sum(jnp.where(complete, violations.reshape(2, pairs), 0)) / (2 * count) * usable
    return GradientEstimate(
        value=value * usable,
        gradient=rebuild(gradient * usable),
        standard_error=rebuild(error * usable),
        half_width=rebuild(error * usable * _student(pairs, parameters)),
        unchanged=jnp.mean((chosen[0] == chosen[1]).astype(steps.dtype)),
        failed=failed,
        violation=violated,
    )


def _own_weight(copies: int) -> float:
    """Return the weight of a variance beside 8 shared degrees of freedom."""
    return (copies - 1) / (copies - 1 + 8)


def _standard_error(steps: Array, slopes: Array, gradient: Array) -> Array:
    """Return the standard error ``[d]`` of a gradient, given ``slopes [n]``."""
    # Within a copy of the design an interaction of parameters hides in the effect of another parameter. So the spread of the copies'
    # own gradients estimates the error. Few copies estimate one parameter badly: shrink its variance towards the mean of all.
    parameters = steps.shape[1]
    size = design_size(parameters)
    copies = steps.shape[0] // size
    if copies == 1:
        # The residuals of the slopes estimate the error, without interactions.
        left = slopes - jnp.sum(steps * gradient[None], axis=1)
        return jnp.broadcast_to(jnp.sqrt(jnp.sum(left * left) / max(size - parameters, 1) / size), gradient.shape)
    gradients = jnp.mean((steps * slopes[:, None]).reshape(copies, size, parameters), axis=1)
    variance = jnp.sum(jnp.square(gradients - jnp.mean(gradients, axis=0, keepdims=True)), axis=0) / (copies - 1)
    weight = _own_weight(copies)
    return jnp.sqrt((weight * variance + (1 - weight) * jnp.mean(variance)) / copies)


def _student(pairs: int, parameters: int) -> float:
    """Return the half-width of a gradient's 95% interval, in standard errors."""
    # Import SciPy here, because start-up should not pay for it.
    from scipy.special import stdtrit

    size = design_size(parameters)
    copies = pairs // size
    if copies == 1:
        return float(stdtrit(max(size - parameters, 1), 0.975))
    # These are the degrees of freedom of a weighted mean of independent variances (Satterthwaite 1946, An approximate distribution of
    # estimates of variance components).
    weight = _own_weight(copies)
    other = (1 - weight) / parameters
    return float(stdtrit((copies - 1) / ((weight + other) ** 2 + (parameters - 1) * other**2), 0.975))


def design_size(parameters: int) -> int:
    """Return the rows of a design, a power of two above ``parameters``."""
    return 1 << int(parameters).bit_length()


def directions(key: Key, pairs: int, parameters: int) -> Array:
    """Return directions ``[pairs, parameters]`` of -1 and 1, copies of a design.

    Each copy has columns and signs of its own. ``pairs`` is a multiple of :func:`design_size`. Within a copy columns are orthogonal and
    sum to zero.
    """
    # Import SciPy here, because start-up should not pay for it.
    from scipy.linalg import hadamard

    size = design_size(parameters)
    matrix = jnp.asarray(hadamard(size), jnp.int8)

    def copy(key: Key) -> Array:
        columns_key, signs_key = jax.random.split(key)
        columns = jax.random.permutation(columns_key, jnp.arange(1, size, dtype=jnp.int32))[:parameters]
        return matrix[:, columns] * jax.random.rademacher(signs_key, (1, parameters), jnp.int8)

    return jax.vmap(copy)(jax.random.split(key, pairs // size)).reshape(pairs, parameters)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _value(loss: SmoothedLoss, params: Params, key: Key) -> Array:
    return _estimate(loss, params, key).value


def _forward(loss: SmoothedLoss, params: Params, key: Key) -> tuple[Array, Params]:
    estimate = _estimate(loss, params, key)
    return estimate.value, estimate.gradient


_value.defvjp(_forward, lambda loss, gradient, bar: (jax.tree.map(lambda leaf: bar * leaf, gradient), None))
