"""Maximum-posterior hyper-parameters of one data set: a pure function that compiled programs call on traced data, in batches and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxbandit.core.checks import InvalidArgument, is_sequence_of_numbers, is_traced, short
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Words, any_shape, between, positive, whole
from jaxbandit.core.paths import check_known
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree
from jaxbandit.core.types import Array, Scalar, Table
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.evidence.density import Collapsed, inverse, inverse_diagonal
from jaxbandit.surrogates.evidence.prior import NOISE, Prior

K = TypeVar("K")
One = TypeVar("One", bound=Kernel)
Bounds: TypeAlias = Mapping[str, tuple[Scalar | Table, Scalar | Table]]
"""The least and the largest value of hyper-parameters, by path."""

LONGEST = 2.0  # largest change of a number in one step: a factor of 7 where numbers are logarithms
ARMIJO = 1e-4  # share of the predicted descent that a step has to reach
RESOLUTION = 32  # rounding errors of a value that hide a descent
DAMPING, LEAST_DAMPING = 1e-2, 1e-3  # of the first step, and of any, in units of the information's diagonal
EASED, STIFFENED = 0.1, 10.0  # factors on the damping after a step that descends, and after one that does not
SEEN = 1e-2  # least share of the expected curvature that a seen one is believed from
LEAST_INFORMATION = 1e-6  # of one number, for steps along which the function hardly changes
COMPARED = 4  # points of which a search starts from the best
AT_BOUND = 1e-3  # distance from a bound, in logarithms, within which a hyper-parameter counts as lying at it
AWAY = float(np.log(10.0))  # largest distance of a starting point from the first, in logarithms
TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-9}  # nats


@pytree
class Fit(Generic[K]):
    """Hyper-parameters fitted to values, with what is known of their errors; with leading axes ``[B]`` when many data sets were fitted.

    Attributes:
      kernel: the fitted kernel; a tuple of kernels, one for each output, where each has its own.
      noise_variance: the noise variance ``[]``, or ``[k]`` where each output has its own.
      log_evidence: log density ``[]`` of the values under these, summed over outputs; without the prior.
      standard_errors: standard errors of the logarithms of the hyper-parameters, by their paths: square roots of the diagonal of the
        inverse Hessian of the negative log posterior. An error of 0.1 is one of 10%. They are 0 for what was fixed, and NaN at a bound
        and where the Hessian is not positive definite. With kernels of their own, the output's number comes before the path.
      at_bound: by the same paths, whether a hyper-parameter lies within 0.1% of an end of where the search might go.
      converged: whether the search ended because the gradient did, ``[]``; if not, it ran out of steps.
    """

    kernel: K
    noise_variance: Table
    log_evidence: Table
    standard_errors: Mapping[str, Table]
    at_bound: Mapping[str, Table]
    converged: Table


@checked
def maximise(
    kernel: One,
    noise_variance: Annotated[Scalar, positive],
    data: Collapsed,
    *,
    prior: Prior | None,
    fixed: tuple[str, ...] = (),
    span: Annotated[Scalar, between(1, float("inf"), open_high=True, host=True)] = 1e3,
    bounds: Annotated[Bounds, Words("a mapping from paths of hyper-parameters to their least and largest values")] | None = None,
    second: Annotated[Mapping[str, Scalar], Words("a mapping from paths of hyper-parameters to values")] | None = None,
    starts: Annotated[int, whole(1, 10_000)] = 4,
    steps: Annotated[int, whole(1, 10**6)] = 60,
    seed: Annotated[int, whole(0, 2**63 - 1)] = 0,
    errors: bool = True,
) -> Fit[One]:
    """Return the hyper-parameters with the largest posterior density of their logarithms given ``data``.

    It is pure and may be traced, called in ``jax.vmap`` and in loops; nothing in it is LAPACK's. The best of ``starts`` searches is
    returned, each from the best of four points, all but one up to a factor of 10 away. With ``starts=1`` there is one search from where it
    is told to start, as for a fit that goes on from an earlier one, and another from ``second`` where that is given.

    Args:
      kernel: where the search starts; every leaf is a hyper-parameter > 0, unless it is fixed.
      noise_variance: where the search starts.
      data: the values of all outputs, which share the kernel and the noise variance.
      prior: of the hyper-parameters; ``None`` for the largest evidence.
      fixed: dotted paths of what keeps its value, ``"noise_variance"`` or a field of the kernel such as ``"kernel.length_scale"``.
      span: largest factor by which a hyper-parameter may grow or shrink.
      bounds: by path, the least and the largest value of a hyper-parameter, in place of ``span``.
      second: by path, hyper-parameters from which one more search starts; what it does not name is as in the first.
      starts, steps: number of searches, and most steps of each.
      seed: of the starting points.
      errors: whether standard errors are wanted, which cost about as much as five steps.

    Raises:
      InvalidArgument: on arguments out of range, and on a path in ``fixed`` or ``bounds`` that names no hyper-parameter.
    """
    kernel, noise_variance, data, prior = canonicalise((kernel, noise_variance, data, prior))
    dtype, names = float_dtype(), [*paths(kernel), NOISE]
    given = check_bounds(bounds or {})
    for argument, some in (("fixed", fixed), ("bounds", given), ("second", second or {})):
        for name in some:
            check_known(name, names, f"{argument}.{name}", "the hyper-parameters are")
    leaves, structure = jax.tree.flatten((kernel, noise_variance))
    moves = [name not in fixed for name in names]  # what the search moves are logarithms, [P]
    span = jnp.asarray(span, dtype)

    def flat(values: Iterable[ArrayLike]) -> tuple[Array, Callable[[Array], list[Array]]]:
        return ravel_pytree([jnp.log(jnp.asarray(value, dtype)) for value, free in zip(values, moves, strict=True) if free])

    def like_leaves(values: Mapping[str, ArrayLike]) -> Array:
        return flat(jnp.broadcast_to(values[name], jnp.shape(leaf)) for name, leaf in zip(names, leaves, strict=True))[0]

    ends = {name: given.get(name, (leaf / span, leaf * span)) for name, leaf in zip(names, leaves, strict=True)}
    low, high = (like_leaves({name: end[side] for name, end in ends.items()}) for side in (0, 1))
    start, unravel = flat(leaves)

    def placed(place: Array) -> list[Array | None]:
        parts = iter(unravel(place))
        return [next(parts) if free else None for free in moves]

    def rebuild(place: Array) -> tuple[One, Array]:
        values = [leaf if part is None else jnp.exp(part) for leaf, part in zip(leaves, placed(place), strict=True)]
        rebuilt: tuple[One, Array] = jax.tree.unflatten(structure, values)
        return rebuilt

    def by_path(place: Array) -> dict[str, Array]:  # 0 for what is fixed
        return {name: jnp.zeros_like(leaf) if part is None else part for name, leaf, part in zip(names, leaves, placed(place), strict=True)}

    units = None if prior is None else prior.units(data)

    def prior_density(place: Array) -> Array:
        return jnp.zeros((), dtype) if prior is None or units is None else prior.log_density(*rebuild(place), *units)

    def loss(place: Array) -> Array:
        return -jnp.sum(data.log_evidence(*rebuild(place))) - prior_density(place)

    def expansion(place: Array) -> tuple[Array, Array, Array]:
        evidence, gradient, information = data.expansion(rebuild, place)
        slope, curvature = jax.grad(prior_density)(place), jax.hessian(prior_density)(place)
        return -evidence - prior_density(place), -gradient - slope, information - curvature

    start = jnp.clip(start, low, high)
    if len(start):
        groups = _groups_of_starts(start, low, high, starts, seed)
        if second:
            other = jnp.clip(like_leaves(dict(zip(names, leaves, strict=True)) | dict(second)), low, high)
            groups = jnp.concatenate([groups, jnp.broadcast_to(other, (1, *groups.shape[1:]))])
        reached = jax.lax.map(lambda own: minimise(expansion, own, low, high, steps=steps, tolerance=TOLERANCE[dtype]), groups)
        best: Minimum = jax.tree.map(lambda leaf: leaf[jnp.argmin(reached.value)], reached)
    else:
        best = Minimum(start, loss(start), jnp.ones((), bool))
    at_bound = (jnp.minimum(best.place - low, high - best.place) < AT_BOUND) & (high - low > 2 * AT_BOUND)
    fitted, noise = rebuild(best.place)
    standard_errors: Mapping[str, Array] = {}
    if errors:
        standard_errors = by_path(_standard_errors(_hessian(loss, best.place), (best.place > low) & (best.place < high)))
    return Fit(
        kernel=fitted,
        noise_variance=noise,
        log_evidence=-best.value - prior_density(best.place),
        standard_errors=standard_errors,
        at_bound={name: part > 0 for name, part in by_path(at_bound.astype(dtype)).items()},
        converged=best.converged,
    )


def check_bounds(bounds: Bounds) -> Bounds:
    """Return ``bounds``; raise ``InvalidArgument`` unless each is two positive numbers, the lesser first, or two arrays of such."""
    for path, ends in bounds.items():
        if not isinstance(ends, tuple | list | np.ndarray | jax.Array) or len(ends) != 2:
            raise InvalidArgument(f"bounds.{path}: expected the least and the largest value, got {short(ends)}")
        for end in (ends[0], ends[1]):
            positive.of(any_shape)(f"bounds.{path}", end)
        if not (is_traced(ends) or np.all(np.asarray(ends[0]) <= np.asarray(ends[1]))):
            raise InvalidArgument(f"bounds.{path}: the least value must not be above the largest, got {short(ends)}")
    return bounds


def with_arrays(kernel: K) -> K:
    """Return a kernel on the host with float64 arrays for its numbers and lists of numbers, as :func:`paths` takes it."""
    converted: K = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel, is_leaf=is_sequence_of_numbers)
    return converted


def paths(kernel: object) -> list[str]:
    """Return the dotted paths of a kernel's hyper-parameters, in the order of its leaves."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(kernel)
    return [".".join(key.name for key in path) for path, _ in leaves]


def _groups_of_starts(first: Array, low: Array, high: Array, starts: int, seed: int) -> Array:
    """Return ``[starts, 4, P]`` points for each search to choose from, ``first`` and others around it; ``first`` alone for one search."""
    if starts == 1:
        return first[None, None]
    away = np.random.default_rng(seed).uniform(-AWAY, AWAY, (starts * COMPARED, len(first)))
    away[0] = 0
    return jnp.clip(first[None] + jnp.asarray(away, first.dtype), low[None], high[None]).reshape(starts, COMPARED, len(first))


def _hessian(function: Callable[[Array], Array], place: Array) -> Array:
    """Return the Hessian ``[P, P]`` of a function, a row at a time."""
    rows: Array = jax.lax.map(lambda along: jax.jvp(jax.grad(function), (place,), (along,))[1], jnp.eye(len(place), dtype=place.dtype))
    return rows


def _standard_errors(hessian: Array, inside: Array) -> Array:
    """Return the roots ``[P]`` of the diagonal of the inverse of ``hessian [P, P]``, of what is ``inside`` its bounds; NaN elsewhere."""
    size = len(inside)
    both = inside[:, None] & inside[None]
    matrix = jnp.where(both, hessian, jnp.eye(size, dtype=hessian.dtype))
    scale = jnp.sqrt(jnp.abs(jnp.diagonal(matrix)))
    positive = jnp.diagonal(matrix) > 0
    variances = inverse_diagonal(matrix / (scale[:, None] * scale[None])) / jnp.square(scale)
    return jnp.where(inside & jnp.all(positive), jnp.sqrt(variances), jnp.nan)


class Minimum(NamedTuple):
    """A point that a descent has reached."""

    place: Array  # [P]
    value: Array  # []
    converged: Array  # [] whether the next step promises less than the tolerance


class _State(NamedTuple):
    place: Array  # [P]
    value: Array  # []
    gradient: Array  # [P]
    information: Array  # [P, P] positive semi-definite, in place of the Hessian
    damping: Array  # []
    step: Array  # [P] the next one
    evaluations: Array  # [] int32, so far


def minimise(
    function: Callable[[Array], tuple[Array, Array, Array]], starts: Array, low: Array, high: Array, *, steps: int, tolerance: float
) -> Minimum:
    """Return where projected scoring gets from the best of ``starts [S, P]`` within ``[low, high]``, each ``[P]``.

    ``function`` returns its value ``[]``, gradient ``[P]`` and a positive semi-definite matrix ``[P, P]`` in place of its Hessian, such as
    Fisher's information. Steps are damped as Levenberg's and Marquardt's (Nocedal and Wright 2006, *Numerical optimization*, sec. 10.3).
    Numbers that a bound holds back do not move, and do so again once the gradient points inside; a step that does not descend is taken
    back, and the next one is damped more. It ends after ``steps`` steps, each one call of ``function``, or where the next one promises
    less than ``tolerance``, in units of the function, and what its rounding hides.
    """
    size, dtype = starts.shape[1], starts.dtype
    resolution = RESOLUTION * float(np.finfo(dtype).eps)

    def evaluate(place: Array) -> tuple[Array, Array, Array]:
        value, gradient, information = function(place)
        usable = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)) & jnp.all(jnp.isfinite(information))
        return jnp.where(usable, value, jnp.inf), jnp.where(usable, gradient, 0), jnp.where(usable, information, 0)

    def step_of(place: Array, gradient: Array, information: Array, damping: Array) -> Array:
        held = ((place <= low) & (gradient > 0)) | ((place >= high) & (gradient < 0))
        units = jnp.where(held, 0, 1 / jnp.sqrt(jnp.maximum(jnp.diagonal(information), LEAST_INFORMATION)))
        inverted, _ = inverse(jnp.eye(size, dtype=dtype) + information * (units[:, None] * units[None] / damping))
        step = -units * jnp.matmul(inverted, units * gradient, precision="highest") / damping
        return step / jnp.maximum(jnp.max(jnp.abs(step)) / LONGEST, 1)

    def promises(now: _State) -> Array:
        return -0.5 * jnp.sum(now.step * now.gradient) > tolerance + resolution * jnp.abs(now.value)

    def advance(now: _State) -> _State:
        screening = now.evaluations < len(starts)  # in the same loop, so that the function is compiled once
        start = jax.lax.dynamic_index_in_dim(starts, jnp.minimum(now.evaluations, len(starts) - 1), keepdims=False)
        place = jnp.where(screening, start, jnp.clip(now.place + now.step, low, high))
        wanted = jnp.where(screening, 0, ARMIJO * jnp.sum(now.gradient * (place - now.place)))
        reached = (place, *evaluate(place))
        better = reached[1] <= now.value + wanted
        reached = (*reached[:3], _corrected(reached[3], place - now.place, reached[2] - now.gradient, ~screening))
        place, value, gradient, information = (jnp.where(better, new, old) for new, old in zip(reached, now, strict=False))
        damping = jnp.where(better, jnp.maximum(EASED * now.damping, LEAST_DAMPING), STIFFENED * now.damping)
        damping = jnp.where(screening, now.damping, damping)
        step = step_of(place, gradient, information, damping)
        return _State(place, value, gradient, information, damping, step, now.evaluations + 1)

    one, nothing = jnp.ones((), dtype), jnp.zeros((size,), dtype)
    nowhere = _State(starts[0], jnp.inf * one, nothing, jnp.eye(size, dtype=dtype), DAMPING * one, nothing, jnp.zeros((), jnp.int32))
    most = len(starts) + steps
    last = jax.lax.while_loop(lambda now: (now.evaluations < len(starts)) | ((now.evaluations < most) & promises(now)), advance, nowhere)
    return Minimum(last.place, last.value, ~promises(last) & jnp.isfinite(last.value))


def _corrected(information: Array, moved: Array, turned: Array, usable: Array) -> Array:
    """Return ``information [P, P]`` by BFGS's formula (eq. 6.19) with the curvature seen along the last step, where it is positive.

    Information alone is off the Hessian by what does not vanish at the minimum, so that steps would end in ever the same small share.
    """
    along = jnp.matmul(information, moved, precision="highest")
    expected, seen = jnp.sum(along * moved), jnp.sum(moved * turned)
    usable &= (expected > 0) & (seen > SEEN * expected)
    expected, seen = jnp.where(usable, expected, 1), jnp.where(usable, seen, 1)
    return information + jnp.where(usable, turned[:, None] * turned[None] / seen - along[:, None] * along[None] / expected, 0)
