"""Maximum-posterior fits in compiled programs, also of thousands of data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.checks import check_known, is_sequence_of_numbers
from jaxbandit.core.declare import Array, Numbers, Scalar, Table, checked
from jaxbandit.core.fields import between, booleans, choice, exactly, finite_numbers, numbers, positive, whole
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree
from jaxbandit.kernels import Kernel, PosteriorMean, check_covariance
from jaxbandit.surrogates.evidence.density import NOISE, Collapsed, Prior, collapse, inverse, inverse_diagonal

K = TypeVar("K", bound=Kernel)
Bounds: TypeAlias = Mapping[str, tuple[Scalar | Table, Scalar | Table]]
"""The least and the largest value of hyper-parameters, by path."""
Span: TypeAlias = Annotated[Scalar, between(1, float("inf"), open_high=True, host=True)]
Starts: TypeAlias = Annotated[int, whole(1, 10_000)]
Seed: TypeAlias = Annotated[int, whole(0, 2**63 - 1)]


class SearchRules(NamedTuple):
    """Rules of every search, in logarithms of the hyper-parameters.

    Attributes:
      compared: places compared as start of a search.
      at_bound: distance from a bound within which it counts as reached.
      away: largest distance of starts from the first.
    """

    compared: int = 4
    at_bound: float = 1e-3
    away: float = float(np.log(10.0))


SEARCHES = SearchRules()


@pytree
class Fit(Generic[K]):
    """Hyper-parameters fitted to values, with their standard errors.

    Fits of ``B`` data sets have a leading axis ``[B]``.

    Attributes:
      kernel: the fitted kernel.
      noise_variance: the fitted noise variance ``[]``.
      log_evidence: log density ``[]`` of the values without the prior, summed over outputs.
      standard_errors: standard errors of the hyper-parameters' logarithms by path, the square roots of the diagonal of the inverse Hessian
        of the negative log posterior. An error of 0.1 means 10%. It is 0 for a fixed hyper-parameter, and NaN at a bound or if the Hessian
        is not positive definite.
      at_bound: by the same paths, whether a hyper-parameter lies within 0.1% of an end of its range.
      converged: whether the search converged ``[]``; otherwise it ran out of steps.
    """

    kernel: K
    noise_variance: Table
    log_evidence: Table
    standard_errors: Mapping[str, Table]
    at_bound: Mapping[str, Table]
    converged: Table


@checked
def fit_many(
    kernel: K,
    points: Annotated[Numbers, finite_numbers, exactly(None, None, None, words="data sets, points, axes")],
    values: Annotated[Numbers, numbers],
    noise_variance: Annotated[float, positive],
    *,
    mask: Annotated[Numbers, booleans, exactly(None, None, words="data sets, points")] | None = None,
    prior: Prior | None = Prior(),
    fixed: Sequence[str] = (),
    span: Span = 1e3,
    starts: Starts = 2,
    seed: Seed = 0,
    precision: Annotated[str, choice("float32", "float64")] = "float64",
) -> Fit[K]:
    """Fit the same kernel to each of ``B`` data sets.

    Each fit equals that of :func:`fit` up to rounding. The program does not use LAPACK, because its batches can wait forever on a CPU.

    Args:
      kernel, noise_variance, prior, fixed, span, starts, seed: as for :func:`fit`; the same for all data sets.
      points: ``[B, n, d]`` inputs.
      values: ``[B, n]`` noisy values at the inputs, or ``[B, n, k]`` of ``k`` outputs that share the kernel.
      mask: ``[B, n]``, false for a missing point, whose values are ignored; default no missing points.
      precision: ``"float64"``, or ``"float32"`` with an error of the evidence of about 1e-4 nats if the noise variance is at least 1e-3 of
        the kernel's variance.

    Returns:
      A fit with a leading axis ``[B]`` of every leaf; ``jax.tree.map(lambda leaf: leaf[i], fits)`` is the fit of data set ``i``.

    Raises:
      InvalidArgument: on a hyper-parameter or argument out of range, shapes that do not fit, or values that are not finite.
    """
    points, values = np.asarray(points, np.float64), np.asarray(values, np.float64)
    if values.ndim not in (2, 3) or values.shape[:2] != points.shape[:2] or not values.size:
        raise checks.InvalidArgument(
            f"values: expected [B, n] or [B, n, k] with [B, n] = {list(points.shape[:2])} as points have it, got {list(values.shape)}"
        )
    present = np.ones(values.shape[:2], bool) if mask is None else np.asarray(mask, bool)
    checks.shape("mask", present, values.shape[:2], remedy="one entry for each value")
    table = values.reshape(*values.shape[:2], -1)
    checks.finite("values", table[present])
    start = checked_start(kernel, points.reshape(-1, points.shape[2]), fixed)
    sets = [collapse(x[here], y[here]) for x, y, here in zip(points, table, present, strict=True)]
    size = max([1, *(len(one.counts) for one in sets)])
    with jax.enable_x64(precision == "float64"):
        data = canonicalise(jax.tree.map(lambda *parts: np.stack(parts), *(one.padded(size) for one in sets)))
        # On a CPU 16 data sets of up to 24 points share the overhead of operations. Larger fits would wait too long for each other.
        side = len(sets) if jax.default_backend() != "cpu" else 16 if size <= 24 else 1
        first = canonicalise((start, noise_variance, prior, span))
        fits = _maximised(*first, {}, data, fixed=tuple(fixed), search=Search(starts=starts, seed=seed), side=min(side, len(sets)))
        return jax.tree.map(np.asarray, fits)


def checked_start(kernel: K, points: np.ndarray, fixed: Sequence[str]) -> K:
    """Return ``kernel`` with arrays as leaves, checked as start of a search."""
    kernel.check_axes(points.shape[1])
    check_covariance("kernel", kernel, points)
    start = with_arrays(kernel)
    kept = {*fixed, *kept_paths(start)}
    for path, leaf in zip(paths(start), jax.tree.leaves(start), strict=True):
        if path not in kept:
            checks.positive(f"kernel.{path}", leaf)
    return start


@partial(jax.jit, static_argnames=("fixed", "search", "side"))
def _maximised(
    kernel: K, noise: Scalar, prior: Prior | None, span: Scalar, bounds: Bounds, data: Collapsed, *, side: int | None = None, **options: Any
) -> Fit[K]:
    """Return the fit to a data set, or to a stack."""

    def one(own: Collapsed) -> Fit[K]:
        return maximise(kernel, noise, own, prior=prior, span=span, bounds=bounds, **options)

    return one(data) if side is None else jax.lax.map(one, data, batch_size=side if side > 1 else None)


class Search(NamedTuple):
    """Options of a fit's searches.

    Searches start from the given hyper-parameters, ``starts - 1`` random places, and each of ``further`` by path. A search ends after
    ``steps``, or when a step promises less than ``tolerance`` nats (default: the resolution of the arithmetic), and computes the
    information every ``informed`` steps. Standard errors cost about as much as five steps.
    """

    further: Sequence[Mapping[str, Scalar]] = ()
    starts: int = 4
    steps: int = 60
    seed: int = 0
    errors: bool = True
    tolerance: float | None = None
    informed: int = 1


def maximise(
    kernel: K,
    noise_variance: Scalar,
    data: Collapsed,
    *,
    prior: Prior | None,
    fixed: tuple[str, ...] = (),
    span: Scalar = 1e3,
    bounds: Bounds | None = None,
    search: Search = Search(),
) -> Fit[K]:
    """Fit hyper-parameters to ``data`` by a pure function that may be traced."""
    kernel, noise_variance, data, prior = canonicalise((kernel, noise_variance, data, prior))
    dtype, names, given = float_dtype(), [*paths(kernel), NOISE], bounds or {}
    for argument, some in (("fixed", fixed), ("bounds", given), ("further", {name for start in search.further for name in start})):
        for name in some:
            check_known(name, names, f"{argument}.{name}", "the hyper-parameters are")
    leaves, structure = jax.tree.flatten((kernel, noise_variance))
    kept = {*fixed, *kept_paths(kernel)}
    now, moves = dict(zip(names, leaves, strict=True)), [name not in kept for name in names]
    span = jnp.asarray(span, dtype)

    def flat(values: Iterable[ArrayLike]) -> tuple[Array, Callable[[Array], list[Array]]]:
        return ravel_pytree([jnp.log(jnp.asarray(value, dtype)) for value, free in zip(values, moves, strict=True) if free])

    def like_leaves(values: Mapping[str, ArrayLike]) -> Array:
        return flat(jnp.broadcast_to(values[name], jnp.shape(leaf)) for name, leaf in now.items())[0]

    ends = {name: given.get(name, (leaf / span, leaf * span)) for name, leaf in now.items()}
    low, high = (like_leaves({name: end[side] for name, end in ends.items()}) for side in (0, 1))
    start, unravel = flat(leaves)

    def placed(place: Array) -> list[Array | None]:
        parts = iter(unravel(place))
        return [next(parts) if free else None for free in moves]

    def rebuild(place: Array) -> tuple[K, Array]:
        values = [leaf if part is None else jnp.exp(part) for leaf, part in zip(leaves, placed(place), strict=True)]
        return jax.tree.unflatten(structure, values)

    def by_path(place: Array) -> dict[str, Array]:
        parts = zip(now.items(), placed(place), strict=True)
        return {name: jnp.zeros_like(leaf) if part is None else part for (name, leaf), part in parts}

    units = None if prior is None else prior.units(data)

    def prior_density(place: Array) -> Array:
        return jnp.zeros((), dtype) if prior is None or units is None else prior.log_density(*rebuild(place), *units)

    def loss(place: Array) -> Array:
        return -jnp.sum(data.log_evidence(*rebuild(place))) - prior_density(place)

    def expansion(place: Array, informed: Array | bool) -> tuple[Array, Array, Array]:
        evidence, gradient, information = data.expansion(rebuild, place, informed)
        slope, curvature = jax.grad(prior_density)(place), jax.hessian(prior_density)(place)
        return -evidence - prior_density(place), -gradient - slope, information - curvature

    start = jnp.clip(start, low, high)
    if len(start):
        groups = start[None, None]  # [searches, C, P]
        if (starts := search.starts) > 1:
            away = np.random.default_rng(search.seed).uniform(-SEARCHES.away, SEARCHES.away, (starts * SEARCHES.compared, len(start)))
            away[0] = 0
            groups = jnp.clip(start[None] + jnp.asarray(away, dtype), low[None], high[None]).reshape(starts, SEARCHES.compared, len(start))
        others = [jnp.clip(like_leaves(now | dict(start)), low, high) for start in search.further]
        groups = jnp.concatenate([groups, *(jnp.broadcast_to(other, (1, *groups.shape[1:])) for other in others)])
        # Searches end at these promised gains in nats.
        tolerance = (1e-5 if dtype == np.float32 else 1e-9) if search.tolerance is None else search.tolerance

        def searched(group: Array) -> Minimum:
            return _minimised(expansion, group, (low, high), steps=search.steps, tolerance=tolerance, every=search.informed)

        reached = jax.lax.map(searched, groups)
        best: Minimum = jax.tree.map(lambda leaf: leaf[jnp.argmin(reached.value)], reached)
    else:
        best = Minimum(start, loss(start), jnp.ones((), bool))
    at_bound = (jnp.minimum(best.place - low, high - best.place) < SEARCHES.at_bound) & (high - low > 2 * SEARCHES.at_bound)
    fitted, noise = rebuild(best.place)
    return Fit(
        kernel=fitted,
        noise_variance=noise,
        log_evidence=-best.value - prior_density(best.place),
        standard_errors=by_path(_standard_errors(loss, best.place, (best.place > low) & (best.place < high))) if search.errors else {},
        at_bound={name: part > 0 for name, part in by_path(at_bound.astype(dtype)).items()},
        converged=best.converged,
    )


def with_arrays(kernel: K) -> K:
    """Return a kernel with float64 arrays on the host as leaves."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel, is_leaf=is_sequence_of_numbers)


def paths(kernel: object) -> list[str]:
    """Return the dotted paths of a kernel's hyper-parameters in leaf order."""
    return [".".join(key.name for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(kernel)]


def kept_paths(kernel: object) -> list[str]:
    """Return the paths of numbers that fits keep, those of known means."""

    def is_mean(part: object) -> bool:
        return isinstance(part, PosteriorMean)

    known = jax.tree.map(lambda part: jax.tree.map(lambda leaf: is_mean(part), part), kernel, is_leaf=is_mean)
    return [path for path, is_known in zip(paths(kernel), jax.tree.leaves(known), strict=True) if is_known]


def _standard_errors(loss: Callable[[Array], Array], place: Array, inside: Array) -> Array:
    """Return standard errors from the inverse Hessian, NaN for numbers not ``inside``."""
    eye = jnp.eye(len(place), dtype=place.dtype)
    hessian: Array = jax.lax.map(lambda along: jax.jvp(jax.grad(loss), (place,), (along,))[1], eye)
    matrix = jnp.where(inside[:, None] & inside[None], hessian, eye)
    scale = jnp.sqrt(jnp.abs(jnp.diagonal(matrix)))
    variances = inverse_diagonal(matrix / (scale[:, None] * scale[None])) / jnp.square(scale)
    return jnp.where(inside & jnp.all(jnp.diagonal(matrix) > 0), jnp.sqrt(variances), jnp.nan)


class Minimum(NamedTuple):
    """Point, value and convergence at the end of a descent."""

    place: Array  # [P]
    value: Array  # []
    converged: Array  # []


class _State(NamedTuple):
    place: Array  # [P]
    value: Array  # []
    gradient: Array  # [P]
    information: Array  # [P, P] positive semi-definite
    damping: Array  # []
    step: Array  # [P] the next step
    evaluations: Array  # [] int32


def _minimised(
    function: Callable[[Array, Array | bool], tuple[Array, Array, Array]],
    starts: Array,
    bounds: tuple[Array, Array],
    *,
    steps: int,
    tolerance: float,
    every: int,
) -> Minimum:
    """Minimise by projected scoring from the best of ``starts [S, P]``.

    ``bounds`` are the least and the largest place ``[P]``. ``function`` returns its value ``[]``, gradient ``[P]`` and, at the starts and
    at every ``every``-th evaluation, a positive semi-definite matrix ``[P, P]`` in place of its Hessian. In between the BFGS formula
    corrects the matrix. Steps have Levenberg's and Marquardt's damping (Nocedal and Wright 2006, *Numerical optimization*, sec. 10.3), and
    a step that does not descend is rejected. The search ends after ``steps``, or when the next step promises less than ``tolerance`` and
    the rounding error.
    """
    (low, high), size, dtype = bounds, starts.shape[1], starts.dtype
    # Rounding errors of a value that hide a descent.
    resolution = 32 * float(np.finfo(dtype).eps)

    def evaluate(place: Array, informed: Array | bool) -> tuple[Array, Array, Array]:
        value, gradient, information = function(place, informed)
        usable = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)) & jnp.all(jnp.isfinite(information))
        return jnp.where(usable, value, jnp.inf), jnp.where(usable, gradient, 0), jnp.where(usable, information, 0)

    def step_of(place: Array, gradient: Array, information: Array, damping: Array) -> Array:
        held = ((place <= low) & (gradient > 0)) | ((place >= high) & (gradient < 0))
        # The least information on a number is 1e-6.
        units = jnp.where(held, 0, 1 / jnp.sqrt(jnp.maximum(jnp.diagonal(information), 1e-6)))
        inverted, _ = inverse(jnp.eye(size, dtype=dtype) + information * (units[:, None] * units[None] / damping))
        step = -units * jnp.matmul(inverted, units * gradient, precision="highest") / damping
        # A logarithm moves by at most 2.
        return step / jnp.maximum(jnp.max(jnp.abs(step)) / 2.0, 1)

    def promises(now: _State) -> Array:
        return -0.5 * jnp.sum(now.step * now.gradient) > tolerance + resolution * jnp.abs(now.value)

    def advance(now: _State) -> _State:
        # The same loop evaluates the starts, so that the function is compiled once.
        screening = now.evaluations < len(starts)
        start = jax.lax.dynamic_index_in_dim(starts, jnp.minimum(now.evaluations, len(starts) - 1), keepdims=False)
        place = jnp.where(screening, start, jnp.clip(now.place + now.step, low, high))
        # A step must descend by a share of its predicted descent, Armijo's rule.
        wanted = jnp.where(screening, 0, 1e-4 * jnp.sum(now.gradient * (place - now.place)))
        informed: Array | bool = True if every == 1 else screening | (now.evaluations % every == 0)
        reached = (place, *evaluate(place, informed))
        better = reached[1] <= now.value + wanted
        information = jnp.where(informed, reached[3], now.information)
        reached = (*reached[:3], _corrected(information, place - now.place, reached[2] - now.gradient, ~screening))
        place, value, gradient, information = (jnp.where(better, new, old) for new, old in zip(reached, now, strict=False))
        # Damping in units of the information's diagonal falls after an accepted and rises after a rejected step.
        damping = jnp.where(better, jnp.maximum(0.1 * now.damping, 1e-3), 10.0 * now.damping)
        damping = jnp.where(screening, now.damping, damping)
        step = step_of(place, gradient, information, damping)
        return _State(place, value, gradient, information, damping, step, now.evaluations + 1)

    one, nothing = jnp.ones((), dtype), jnp.zeros((size,), dtype)
    nowhere = _State(starts[0], jnp.inf * one, nothing, jnp.eye(size, dtype=dtype), 1e-2 * one, nothing, jnp.zeros((), jnp.int32))
    most = len(starts) + steps
    last = jax.lax.while_loop(lambda now: (now.evaluations < len(starts)) | ((now.evaluations < most) & promises(now)), advance, nowhere)
    return Minimum(last.place, last.value, ~promises(last) & jnp.isfinite(last.value))


def _corrected(information: Array, moved: Array, turned: Array, usable: Array) -> Array:
    # The BFGS formula (eq. 6.19) uses the curvature along the last step if it is positive. The information alone differs from the Hessian
    # even at the minimum, so that convergence would be linear.
    along = jnp.matmul(information, moved, precision="highest")
    expected, seen = jnp.sum(along * moved), jnp.sum(moved * turned)
    # A correction needs an observed curvature of at least 1% of the expected curvature.
    usable &= (expected > 0) & (seen > 1e-2 * expected)
    expected, seen = jnp.where(usable, expected, 1), jnp.where(usable, seen, 1)
    return information + jnp.where(usable, turned[:, None] * turned[None] / seen - along[:, None] * along[None] / expected, 0)
