"""Maximum-posterior hyper-parameters of one data set: a pure function that compiled programs call on traced data, in batches and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxbandit.core.checks import InvalidArgument, is_sequence_of_numbers, is_traced, short
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Words, any_shape, between, positive, whole
from jaxbandit.core.paths import check_known
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree
from jaxbandit.core.types import Array, Scalar, Table
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.evidence.density import Collapsed
from jaxbandit.surrogates.evidence.descent import Minimum, minimise
from jaxbandit.surrogates.evidence.inverse import inverse_diagonal
from jaxbandit.surrogates.evidence.prior import NOISE, Prior

K = TypeVar("K")
One = TypeVar("One", bound=Kernel)

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


class _Search(NamedTuple):
    """The logarithms that a search moves, and how hyper-parameters are made of them."""

    start: Array  # [P], as are the next three
    second: Array
    low: Array
    high: Array
    rebuild: Callable[[Array], tuple[Any, Array]]  # from [P] to the kernel and the noise variance
    spread: Callable[[Array], dict[str, Array]]  # from [P] to arrays by path, like the hyper-parameters; 0 for what is fixed


@checked
def maximise(
    kernel: One,
    noise_variance: Annotated[Scalar, positive],
    data: Collapsed,
    *,
    prior: Prior | None,
    fixed: tuple[str, ...] = (),
    span: Annotated[Scalar, between(1, float("inf"), open_high=True, host=True)] = 1e3,
    bounds: Annotated[
        Mapping[str, tuple[Scalar, Scalar]], Words("a mapping from paths of hyper-parameters to their least and largest values")
    ]
    | None = None,
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
    dtype = float_dtype()
    search = _searched(kernel, noise_variance, fixed, jnp.asarray(span, dtype), bounds or {}, second or {})
    units = None if prior is None else prior.units(data)

    def prior_density(place: Array) -> Array:
        return jnp.zeros((), dtype) if prior is None or units is None else prior.log_density(*search.rebuild(place), *units)

    def loss(place: Array) -> Array:
        return -jnp.sum(data.log_evidence(*search.rebuild(place))) - prior_density(place)

    def expansion(place: Array) -> tuple[Array, Array, Array]:
        evidence, gradient, information = data.expansion(search.rebuild, place)
        slope, curvature = jax.grad(prior_density)(place), jax.hessian(prior_density)(place)
        return -evidence - prior_density(place), -gradient - slope, information - curvature

    start, low, high = search.start, search.low, search.high
    if len(start):
        groups = _groups_of_starts(start, low, high, starts, seed)
        if second:
            groups = jnp.concatenate([groups, jnp.broadcast_to(search.second, (1, *groups.shape[1:]))])
        ends = jax.lax.map(lambda own: minimise(expansion, own, low, high, steps=steps, tolerance=TOLERANCE[dtype]), groups)
        best: Minimum = jax.tree.map(lambda leaf: leaf[jnp.argmin(ends.value)], ends)
    else:
        best = Minimum(start, loss(start), jnp.ones((), bool))
    at_bound = (jnp.minimum(best.place - low, high - best.place) < AT_BOUND) & (high - low > 2 * AT_BOUND)
    fitted, noise = search.rebuild(best.place)
    found: Mapping[str, Array] = {}
    if errors:
        found = search.spread(_standard_errors(_hessian(loss, best.place), (best.place > low) & (best.place < high)))
    return Fit(
        kernel=fitted,
        noise_variance=noise,
        log_evidence=-best.value - prior_density(best.place),
        standard_errors=found,
        at_bound={name: part > 0 for name, part in search.spread(at_bound.astype(dtype)).items()},
        converged=best.converged,
    )


def with_arrays(kernel: K) -> K:
    """Return a kernel on the host with float64 arrays for its numbers and lists of numbers, as :func:`paths` takes it."""
    made: K = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel, is_leaf=is_sequence_of_numbers)
    return made


def paths(kernel: Any) -> list[str]:
    """Return the dotted paths of a kernel's hyper-parameters, in the order of its leaves."""
    found, _ = jax.tree_util.tree_flatten_with_path(kernel)
    return [".".join(key.name for key in path) for path, _ in found]


def _searched(
    kernel: Any,
    noise_variance: Scalar,
    fixed: tuple[str, ...],
    span: Array,
    bounds: Mapping[str, tuple[Scalar, Scalar]],
    second: Mapping[str, Scalar],
) -> _Search:
    """Return the search for all hyper-parameters but those whose path is ``fixed``."""
    names = [*paths(kernel), NOISE]
    for argument, given in (("fixed", fixed), ("bounds", bounds), ("second", second)):
        for name in given:
            check_known(name, names, f"{argument}.{name}", "the hyper-parameters are")
    for name, ends_of_one in bounds.items():
        two = isinstance(ends_of_one, tuple | list | np.ndarray | jax.Array) and len(ends_of_one) == 2
        if not two:
            raise InvalidArgument(f"bounds.{name}: must be the least and the largest value, got {short(ends_of_one)}")
        for end in (ends_of_one[0], ends_of_one[1]):
            positive.of(any_shape)(f"bounds.{name}", end)
        if not (is_traced(ends_of_one) or np.all(np.asarray(ends_of_one[0]) <= np.asarray(ends_of_one[1]))):
            raise InvalidArgument(f"bounds.{name}: the least value must not be above the largest, got {short(ends_of_one)}")
    leaves, structure = jax.tree.flatten((kernel, noise_variance))
    free = [name not in fixed for name in names]
    ends = [bounds.get(name, (leaf / span, leaf * span)) for name, leaf in zip(names, leaves, strict=True)]

    def flat(values: Iterable[Any]) -> tuple[Array, Callable[[Array], Any]]:
        kept = [value for value, moves in zip(values, free, strict=True) if moves]
        return ravel_pytree([jnp.log(jnp.asarray(value, span.dtype)) for value in kept])

    start, unravel = flat(leaves)
    low, high = (flat(jnp.broadcast_to(end[side], jnp.shape(leaf)) for end, leaf in zip(ends, leaves, strict=True))[0] for side in (0, 1))

    def placed(place: Array) -> list[Array | None]:
        parts = iter(unravel(place))
        return [next(parts) if moves else None for moves in free]

    def rebuild(place: Array) -> tuple[Any, Array]:
        values = [leaf if part is None else jnp.exp(part) for leaf, part in zip(leaves, placed(place), strict=True)]
        return jax.tree.unflatten(structure, values)

    def spread(place: Array) -> dict[str, Array]:
        return {name: jnp.zeros_like(leaf) if part is None else part for name, leaf, part in zip(names, leaves, placed(place), strict=True)}

    other, _ = flat(jnp.broadcast_to(second.get(name, leaf), jnp.shape(leaf)) for name, leaf in zip(names, leaves, strict=True))
    return _Search(jnp.clip(start, low, high), jnp.clip(other, low, high), low, high, rebuild, spread)


def _groups_of_starts(first: Array, low: Array, high: Array, starts: int, seed: int) -> Array:
    """Return ``[starts, 4, P]`` points for each search to choose from, ``first`` and others around it; ``first`` alone for one search."""
    if starts == 1:
        return first[None, None]
    away = np.random.default_rng(seed).uniform(-AWAY, AWAY, (starts * COMPARED, len(first)))
    away[0] = 0
    return jnp.clip(first[None] + jnp.asarray(away, first.dtype), low[None], high[None]).reshape(starts, COMPARED, len(first))


def _hessian(function: Callable[[Array], Array], place: Array) -> Array:
    """Return the Hessian ``[P, P]`` of a function, a row at a time."""
    return jax.lax.map(lambda along: jax.jvp(jax.grad(function), (place,), (along,))[1], jnp.eye(len(place), dtype=place.dtype))


def _standard_errors(hessian: Array, inside: Array) -> Array:
    """Return the roots ``[P]`` of the diagonal of the inverse of ``hessian [P, P]``, of what is ``inside`` its bounds; NaN elsewhere."""
    size = len(inside)
    both = inside[:, None] & inside[None]
    matrix = jnp.where(both, hessian, jnp.eye(size, dtype=hessian.dtype))
    scale = jnp.sqrt(jnp.abs(jnp.diagonal(matrix)))
    positive = jnp.diagonal(matrix) > 0
    variances = inverse_diagonal(matrix / (scale[:, None] * scale[None])) / jnp.square(scale)
    return jnp.where(inside & jnp.all(positive), jnp.sqrt(variances), jnp.nan)
