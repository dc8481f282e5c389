"""Fits of hyper-parameters to data on the host: of one data set, or of thousands in one compiled program."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import AtLeast, Words, between, booleans, choice, exactly, finite_numbers, numbers, positive, whole
from jaxbandit.core.pytree import canonicalise
from jaxbandit.core.types import Numbers, Scalar
from jaxbandit.kernels import Kernel, check_covariance
from jaxbandit.surrogates.evidence.density import POINTS, Collapsed, collapse
from jaxbandit.surrogates.evidence.maximise import Bounds, Fit, check_bounds, maximise, paths, with_arrays
from jaxbandit.surrogates.evidence.prior import Prior

K = TypeVar("K", bound=Kernel)
T = TypeVar("T")
SIDE_BY_SIDE = 16  # data sets of few points that are fitted together on a CPU, to share what each operation costs beside its arithmetic
FEW = 24  # points; with more, what the fast ones wait for the slow ones costs more than that
ROUNDED_TO = 16  # number of points of a data set is rounded up to a multiple, so that data sets of about one size share a program

Span: TypeAlias = Annotated[float, between(1, float("inf"), open_high=True, host=True)]
Starts: TypeAlias = Annotated[int, whole(1, 10_000)]
Seed: TypeAlias = Annotated[int, whole(0, 2**63 - 1)]


@checked
def fit(
    kernel: Kernel | Annotated[Sequence[Kernel], AtLeast(1)],
    points: Annotated[Numbers, POINTS],
    values: Annotated[Numbers, finite_numbers],
    noise_variance: Annotated[float, positive],
    *,
    prior: Prior | None = Prior(),
    fixed: Sequence[str] = (),
    span: Span = 1e3,
    bounds: Annotated[Bounds, Words("a mapping from paths to the least and the largest value")] | None = None,
    starts: Starts = 4,
    seed: Seed = 0,
) -> Fit[Any]:
    """Fit the hyper-parameters of a GP with prior mean 0 to values: their maximum posterior, in float64 whatever JAX's own precision is.

    Subtract any other mean first. Every leaf of the kernel and the noise variance are hyper-parameters, searched on a logarithmic scale.
    Values at equal points are collapsed first, which changes nothing.

    Args:
      kernel: where the search starts; all hyper-parameters must be positive unless they are fixed. A variance is fitted where the kernel
        has one, such as ``Scale(kernel=..., variance=1.0)``. One kernel is shared by all outputs; of a list each output gets one.
      points: ``[n, d]`` inputs.
      values: ``[n]`` noisy values at the inputs, or ``[n, k]`` of ``k`` outputs.
      noise_variance: noise variance of the values, > 0, where the search starts.
      prior: of the hyper-parameters; default log-normal, with length-scales that grow with the dimension. ``None`` is maximum likelihood.
      fixed: dotted paths of hyper-parameters that keep their value: ``"noise_variance"``, or a field of the kernel such as
        ``"kernel.length_scale"``.
      span: largest factor, > 1, by which a hyper-parameter may grow or shrink.
      bounds: by path, the least and the largest value of a hyper-parameter, in place of ``span``; a search that starts outside is moved to
        the nearest value inside.
      starts: number of searches, of which the best is returned; all but the first start up to a factor 10 away. With few data a search
        in ten ends in a maximum that is only local.
      seed: seed of those starts.

    Returns:
      The fitted kernel and noise variance, the log evidence, and standard errors. With a list of kernels, ``kernel`` is a tuple and
      ``noise_variance`` has one entry for each output, as :func:`~jaxbandit.surrogate` takes them.

    Raises:
      InvalidArgument: on a hyper-parameter or argument out of range, or a path in ``fixed`` or ``bounds`` that names none.
    """
    points, values = np.asarray(points, np.float64), np.asarray(values, np.float64)
    if values.ndim not in (1, 2) or len(values) != len(points) or not values.size:
        raise checks.InvalidArgument(f"values: expected one for each of {len(points)} points, [n] or [n, k], got {list(values.shape)}")
    table, bounds = values.reshape(len(points), -1), check_bounds({} if bounds is None else bounds)
    if not isinstance(kernel, Kernel) and len(kernel) != table.shape[1]:
        raise checks.InvalidArgument(f"kernel: expected one, or one for each of the {table.shape[1]} outputs, got {len(kernel)}")

    def one(own: Kernel, columns: np.ndarray) -> Fit[Kernel]:
        start = _checked_start(own, points, fixed)
        data = collapse(points, columns)
        data = data.padded(-(-len(data.counts) // ROUNDED_TO) * ROUNDED_TO)
        with jax.enable_x64(True):
            given = canonicalise((start, noise_variance, prior, span, bounds, data))
            return on_host(_maximised(*given, fixed=tuple(fixed), starts=starts, seed=seed))

    fitted: Fit[Any]
    if isinstance(kernel, Kernel):
        fitted = one(kernel, table)
    else:
        each = [one(own, table[:, [j]]) for j, own in enumerate(kernel)]
        fitted = Fit(
            kernel=tuple(own.kernel for own in each),
            noise_variance=np.stack([own.noise_variance for own in each]),
            log_evidence=np.asarray(sum(own.log_evidence for own in each)),
            standard_errors={f"{j}.{path}": error for j, own in enumerate(each) for path, error in own.standard_errors.items()},
            at_bound={f"{j}.{path}": at for j, own in enumerate(each) for path, at in own.at_bound.items()},
            converged=np.asarray(all(own.converged for own in each)),
        )
    held = [path for path, at in fitted.at_bound.items() if np.any(at)]
    if held:
        words = f"fit: {', '.join(held)} ended at the end of the range that the search was given; widen it, or fix the value"
        warnings.warn(words, stacklevel=3)
    return fitted


@checked
def fit_many(
    kernel: Kernel,
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
) -> Fit[Kernel]:
    """Fit the same kernel to each of ``B`` data sets, in one compiled program: as :func:`fit` does to one, up to rounding.

    Nothing in the program is LAPACK's, whose batches can wait for ever on a CPU.

    Args:
      kernel, noise_variance, prior, fixed, span, starts, seed: as for :func:`fit`; the same for all data sets.
      points: ``[B, n, d]`` inputs.
      values: ``[B, n]`` noisy values at the inputs, or ``[B, n, k]`` of ``k`` outputs that share the kernel.
      mask: ``[B, n]``, false where a data set has no point; default none such. What values are there does not matter.
      precision: ``"float64"`` or ``"float32"``, in which evidences are good to about 1e-4 nats where the noise variance is not below
        1e-3 of the kernel's.

    Returns:
      Fits with leading axes ``[B]`` of every leaf; ``jax.tree.map(lambda leaf: leaf[i], fits)`` is that of data set ``i``.

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
    start = _checked_start(kernel, points.reshape(-1, points.shape[2]), fixed)
    sets = [collapse(x[here], y[here]) for x, y, here in zip(points, table, present, strict=True)]
    size = max([1, *(len(one.counts) for one in sets)])
    with jax.enable_x64(precision == "float64"):
        data = canonicalise(jax.tree.map(lambda *parts: np.stack(parts), *(one.padded(size) for one in sets)))
        side = len(sets) if jax.default_backend() != "cpu" else SIDE_BY_SIDE if size <= FEW else 1
        first = canonicalise((start, noise_variance, prior, span))
        return on_host(_maximised(*first, {}, data, fixed=tuple(fixed), starts=starts, seed=seed, side=min(side, len(sets))))


def on_host(fits: T) -> T:
    """Return a tree with NumPy's arrays for its leaves."""
    return cast(T, jax.tree.map(np.asarray, fits))


def _checked_start(kernel: Kernel, points: np.ndarray, fixed: Sequence[str]) -> Kernel:
    """Return ``kernel`` with arrays for its numbers; raise ``InvalidArgument`` unless a search can start there, on ``points [n, d]``."""
    kernel.check_axes(points.shape[1])
    check_covariance("kernel", kernel, points)
    start = with_arrays(kernel)
    for path, leaf in zip(paths(start), jax.tree.leaves(start), strict=True):
        if path not in fixed:
            checks.positive(f"kernel.{path}", leaf)
    return start


@partial(jax.jit, static_argnames=("fixed", "starts", "seed", "side"))
def _maximised(
    kernel: K, noise: Scalar, prior: Prior | None, span: Scalar, bounds: Bounds, data: Collapsed, *, side: int | None = None, **options: Any
) -> Fit[K]:
    """Return the fit to a data set, or to each of a stack of them, so many side by side."""

    def one(own: Collapsed) -> Fit[K]:
        return maximise(kernel, noise, own, prior=prior, span=span, bounds=bounds, **options)

    return one(data) if side is None else jax.lax.map(one, data, batch_size=side if side > 1 else None)
