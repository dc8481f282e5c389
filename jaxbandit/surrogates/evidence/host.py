"""Fits of hyper-parameters on the host by SciPy's search.

JAX compiles only programs of a kernel's matrix and of the density with its gradient. Inside compiled programs, and for many data sets,
:mod:`jaxbandit.surrogates.evidence.fitting` searches for the maximum of the same density.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from threadpoolctl import threadpool_limits

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, check_known, short
from jaxbandit.core.declare import Array, Numbers, Scalar, Table, checked
from jaxbandit.core.doors import warn
from jaxbandit.core.fields import Words, any_shape, finite_numbers, positive
from jaxbandit.core.pytree import canonicalise, replace
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.evidence.density import NOISE, Collapsed, Prior, collapse, rows_of_points
from jaxbandit.surrogates.evidence.fitting import (
    SEARCHES,
    Bounds,
    Fit,
    Seed,
    Span,
    Starts,
    checked_start,
    kept_paths,
    paths,
    with_arrays,
)

K = TypeVar("K", bound=Kernel)

# Gradients at places this far apart give the curvature.
CURVATURE_STEP = 1e-4


@checked
def fit(
    kernel: K,
    points: Annotated[Numbers, rows_of_points],
    values: Annotated[Numbers, finite_numbers],
    noise_variance: Annotated[float, positive],
    *,
    prior: Prior | None = Prior(),
    fixed: Sequence[str] = (),
    span: Span = 1e3,
    bounds: Annotated[Bounds, Words("a mapping from paths to the least and the largest value")] | None = None,
    starts: Starts = 4,
    seed: Seed = 0,
) -> Fit[K]:
    """Fit the hyper-parameters of a GP by their maximum posterior.

    The GP has prior mean 0; subtract any other mean first. Every leaf of the kernel and the noise variance are hyper-parameters. The search
    runs on a logarithmic scale in float64, whatever JAX's own precision is.

    Args:
      kernel: start of the search; all hyper-parameters must be positive unless they are fixed. A variance is fitted if the kernel has one,
        such as ``Scale(kernel=..., variance=1.0)``. All outputs share the kernel.
      points: ``[n, d]`` inputs.
      values: ``[n]`` noisy values at the inputs, or ``[n, k]`` of ``k`` outputs.
      noise_variance: noise variance of the values at the start of the search, > 0.
      prior: prior of the hyper-parameters, ``None`` for maximum likelihood; default log-normal, length-scales growing with the dimension.
      fixed: dotted paths of hyper-parameters that keep their value: ``"noise_variance"``, or a field of the kernel such as
        ``"kernel.length_scale"``.
      span: largest factor, > 1, by which a hyper-parameter may grow or shrink.
      bounds: by path, the least and the largest value of a hyper-parameter, in place of ``span``; a start outside is moved to the nearest
        value inside.
      starts: number of searches for the best maximum; all but the first start up to a factor 10 away. With few data a search in ten ends in
        a local maximum.
      seed: seed of the starts.

    Returns:
      The fitted kernel and noise variance, the log evidence, and standard errors.

    Raises:
      InvalidArgument: on a hyper-parameter or argument out of range, or an unknown path in ``fixed`` or ``bounds``.
    """
    fitted = best_fit(kernel, points, values, noise_variance, prior=prior, fixed=fixed, span=span, bounds=bounds, starts=starts, seed=seed)
    held = [path for path, at in fitted.at_bound.items() if np.any(at)]
    if held:
        words = f"fit: {', '.join(held)} ended at the end of the range that the search was given; widen it, or fix the value"
        warn(words)
    return fitted


def best_fit(
    kernel: K,
    points: Numbers,
    values: Numbers,
    noise_variance: float,
    *,
    prior: Prior | None,
    fixed: Sequence[str] = (),
    span: Scalar = 1e3,
    bounds: Bounds | None = None,
    starts: int = 4,
    seed: int = 0,
    further: Sequence[Mapping[str, Table]] = (),
    constant: float = 0.0,
    errors: bool = True,
) -> Fit[K]:
    """Fit as :func:`fit` does, but do not warn about bounds.

    A further search starts from each of the hyper-parameters in ``further``. Values have a constant mean of prior variance ``constant``.
    ``errors=False`` skips the standard errors.
    """
    points, values = np.asarray(points, np.float64), np.asarray(values, np.float64)
    if values.ndim not in (1, 2) or len(values) != len(points) or not values.size:
        raise checks.InvalidArgument(f"values: expected one for each of {len(points)} points, [n] or [n, k], got {list(values.shape)}")
    for path, pair in (bounds or {}).items():
        if not isinstance(pair, tuple | list | np.ndarray | jax.Array) or len(pair) != 2:
            raise InvalidArgument(f"bounds.{path}: expected the least and the largest value, got {short(pair)}")
        for end in (pair[0], pair[1]):
            positive.of(any_shape)(f"bounds.{path}", end)
        if not np.all(np.asarray(pair[0]) <= np.asarray(pair[1])):
            raise InvalidArgument(f"bounds.{path}: the least value must not be above the largest, got {short(pair)}")
    first_kernel = checked_start(kernel, points, fixed)
    names, leaves = [*paths(first_kernel), NOISE], [*jax.tree.leaves(first_kernel), np.asarray(noise_variance, np.float64)]
    now = dict(zip(names, leaves, strict=True))
    for argument, some in (("fixed", fixed), ("bounds", bounds or {})):
        for name in some:
            check_known(name, names, f"{argument}.{name}", "the hyper-parameters are")
    data, prior = _known(points, values, constant, prior)
    kept = {*fixed, *kept_paths(first_kernel)}
    posterior = HyperPosterior.of(first_kernel, now, tuple(name for name in names if name not in kept), data, prior)
    low, high = posterior.ends(span, bounds)
    first = np.clip(posterior.place(now), low, high)
    away = (
        np.random.default_rng(seed).uniform(-SEARCHES.away, SEARCHES.away, (starts * SEARCHES.compared, len(first)))
        if starts > 1
        else np.zeros((1, len(first)))
    )
    away[0] = 0
    groups = [*np.clip(first + away, low, high).reshape(starts, -1, len(first))]
    groups += [np.clip(posterior.place(now | dict(start)), low, high)[None] for start in further]
    # Threads of BLAS wait for each other longer than they compute at this size, on a busy machine a hundred times as long.
    with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
        place, converged = posterior.searched(groups, low, high) if len(first) else (first, True)
        evidence, _, _ = posterior.density(place)
        spread = posterior.standard_errors(place, (place > low) & (place < high)) if errors else np.zeros_like(place)
    at_bound = (np.minimum(place - low, high - place) < SEARCHES.at_bound) & (high - low > 2 * SEARCHES.at_bound)
    fitted, noise = posterior.at(place)
    return Fit(
        kernel=fitted,
        noise_variance=noise,
        log_evidence=np.asarray(evidence),
        standard_errors=posterior.by_path(spread),
        at_bound={name: part > 0 for name, part in posterior.by_path(at_bound).items()},
        converged=np.asarray(converged),
    )


def constants(
    kernel: Kernel, points: np.ndarray, values: np.ndarray, noise_variance: float, *, prior: Prior | None, constant: float
) -> np.ndarray:
    """Return the posterior means ``[k]`` of the outputs' constants.

    With ``z = D^(1/2) 1 / sqrt(s)``, ``w = D^(1/2) means / sqrt(s)`` and ``B`` of :meth:`Collapsed.log_evidence` without the constant they
    are ``z B^-1 w / (1 / constant + z B^-1 z)`` (Rasmussen and Williams 2006, eq. 2.42).
    """
    data, prior = _known(points, values, constant, prior)
    with jax.enable_x64(True):
        matrix = np.asarray(_matrix(kernel, data.points))
    size = int(np.count_nonzero(data.counts))
    roots = np.sqrt(data.counts[:size] / noise_variance)
    solved = np.linalg.solve(np.eye(size) + roots[:, None] * roots * matrix[:size, :size], roots)
    return np.asarray(data.means)[:, :size] @ (roots * solved) / (1 / constant + solved @ roots)


def _known(points: np.ndarray, values: np.ndarray, constant: float, prior: Prior | None) -> tuple[Collapsed, Prior | None]:
    """Return collapsed values and the prior as arguments of programs in float64.

    The values ``[n]`` or ``[n, k]`` are padded to 64 points or a power of two, so that few programs are compiled.
    """
    data = collapse(points, values[:, None] if values.ndim == 1 else values)
    data = replace(data.padded(max(64, 1 << (len(data.counts) - 1).bit_length())), constant=constant)
    with jax.enable_x64(True):
        return canonicalise((data, prior))


class HyperPosterior(NamedTuple):
    """Density of the hyper-parameters of a kernel given values.

    Its arguments are places ``[P]``, the logarithms of the numbers that may move.

    Attributes:
      structure: tree structure of the kernel.
      now: hyper-parameters by path, where the search starts.
      free: paths of the hyper-parameters that may move.
      given: kernel and noise variance, prior of the hyper-parameters, and padded values, on JAX's device.
    """

    structure: Any
    now: Mapping[str, np.ndarray]
    free: tuple[str, ...]
    given: tuple[tuple[Kernel, Array], Prior | None, Collapsed]

    @classmethod
    def of(
        cls, kernel: Kernel, now: Mapping[str, np.ndarray], free: tuple[str, ...], data: Collapsed, prior: Prior | None
    ) -> HyperPosterior:
        """Return the density for a kernel of the same structure."""
        # Each of the program's thousands of calls would copy NumPy's arrays.
        with jax.enable_x64(True):
            return cls(jax.tree.structure(kernel), now, free, jax.device_put(((kernel, now[NOISE]), prior, data)))

    def place(self, values: Mapping[str, Any]) -> np.ndarray:
        """Return the place of hyper-parameters given by path."""
        parts = [np.ravel(np.broadcast_to(np.asarray(values[name], np.float64), self.now[name].shape)) for name in self.free]
        return np.log(np.concatenate([np.zeros(0), *parts])) if parts else np.zeros(0)

    def ends(self, span: Scalar, bounds: Bounds | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest place that a search may reach."""
        ends = {name: (start / span, start * span) for name, start in self.now.items()} | dict(bounds or {})
        low, high = (self.place({name: end[side] for name, end in ends.items()}) for side in (0, 1))
        return low, high

    def by_path(self, place: np.ndarray) -> dict[str, np.ndarray]:
        """Return the entries of ``place`` by path, 0 for fixed hyper-parameters."""
        sizes = [self.now[name].size for name in self.free]
        parts = dict(zip(self.free, np.split(place, np.cumsum(sizes)[:-1]) if sizes else [], strict=True))
        return {name: parts[name].reshape(leaf.shape) if name in parts else np.zeros(leaf.shape) for name, leaf in self.now.items()}

    def at(self, place: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return the kernel and the noise variance at ``place [P]``."""
        moved = {name: np.exp(part) for name, part in self.by_path(place).items() if name in self.free}
        *leaves, noise = (moved.get(name, leaf) for name, leaf in self.now.items())
        return jax.tree.unflatten(self.structure, leaves), noise

    def density(self, place: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Return log densities of values and prior, and their sum's gradient.

        The densities are up to a constant, and the gradient is ``[P]``. The matrix is ``B`` of :meth:`Collapsed.log_evidence
        <jaxbandit.surrogates.evidence.density.Collapsed.log_evidence>`; where it cannot be factorised the density is minus infinity.
        """
        evidence, before, *slope = np.asarray(_density(place, *self.given, moves=tuple(name in self.free for name in self.now)))
        if np.isnan(evidence):
            return -math.inf, 0.0, np.zeros_like(place)
        return float(evidence), float(before), np.asarray(slope)

    def searched(self, groups: Sequence[np.ndarray], low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return the best place that searches reach, and whether its search ended.

        A search starts from the best place of each group ``[C, P]``.
        """
        from scipy.optimize import Bounds, minimize

        def loss(place: np.ndarray) -> tuple[float, np.ndarray]:
            evidence, before, slope = self.density(place)
            # A search cannot compare infinity.
            return (-evidence - before, -slope) if np.isfinite(evidence) else (1e300, slope)

        begun = [group[int(np.argmin([loss(place)[0] for place in group]))] if len(group) > 1 else group[0] for group in groups]

        def from_there(start: np.ndarray, relative: float) -> Any:
            options = {"maxiter": 200, "ftol": relative, "gtol": 1e-6}
            return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=Bounds(low, high), options=options)

        # Searches end at these changes of the density, as shares of it. Only the best of several searches goes on to the end.
        roughly, exactly = 1e-5, 1e-8
        found = [from_there(start, roughly if len(begun) > 1 else exactly) for start in begun]
        best = min(found, key=lambda one: one.fun)
        best = from_there(best.x, exactly) if len(begun) > 1 else best
        return np.clip(best.x, low, high), bool(best.success)

    def standard_errors(self, place: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Return standard errors ``[P]`` from the inverse Hessian.

        They are NaN for numbers that are not ``inside`` their bounds.
        """
        errors, which = np.full(len(place), np.nan), np.flatnonzero(inside)
        try:
            root = np.linalg.cholesky(self.curvature(place)[np.ix_(which, which)])
        except np.linalg.LinAlgError:
            return errors
        errors[which] = np.sqrt(np.sum(np.square(np.linalg.inv(root)), axis=0))
        return errors

    def curvature(self, place: np.ndarray) -> np.ndarray:
        """Return the negative log density's Hessian, by differences of gradients."""
        steps = CURVATURE_STEP * np.eye(len(place))
        hessian = np.asarray([self.density(place - step)[2] - self.density(place + step)[2] for step in steps]) / (2 * CURVATURE_STEP)
        hessian = hessian.reshape(len(place), len(place))
        return (hessian + hessian.T) / 2

    def draws(self, place: np.ndarray, low: np.ndarray, high: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return draws ``[count, P]`` of the Laplace approximation, and their log weights.

        The first draw is the maximum itself. Weights are those of importance sampling, and places beyond the ends have no weight. Every
        call draws the same places.
        """
        inside = np.clip(place, np.minimum(low + 2 * CURVATURE_STEP, high), np.maximum(high - 2 * CURVATURE_STEP, low))
        curvatures, axes = np.linalg.eigh(self.curvature(inside))
        # Its tails are too light, so deviations are a fifth larger, and no curvature is below 0.1.
        deviations = 1.2 / np.sqrt(np.maximum(curvatures, 0.1))
        normal = np.random.default_rng(0).standard_normal((count, len(place)))
        normal[0] = 0
        places = place + normal * deviations @ axes.T
        held = np.all((places >= low) & (places <= high), axis=1)
        density = [sum(self.density(one)[:2]) if here else -math.inf for one, here in zip(places, held, strict=True)]
        return places, np.asarray(density) + np.sum(np.square(normal), axis=1) / 2 + np.sum(np.log(deviations))


class Averaged(NamedTuple):
    """A GP given values of one output, averaged over its hyper-parameters.

    Attributes:
      data: padded values.
      models: ``K`` kernels and noise variances, drawn from the posterior of the hyper-parameters.
      weights: weights of the models, with sum 1.
    """

    data: Collapsed
    models: Sequence[tuple[Kernel, np.ndarray]]
    weights: np.ndarray  # [K]

    def at(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and deviations ``[K, m]`` at points, a row per draw."""
        # SciPy is imported here because start-up should not pay for it.
        from scipy.linalg import solve_triangular

        data, means, variances = self.data, [], []
        size = int(np.count_nonzero(data.counts))
        # A belief is computed at this number of points at once, so that one program serves any number of points.
        points_at_once = 1024
        blocks = np.split(points, range(points_at_once, len(points), points_at_once))
        with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
            for kernel, noise in self.models:
                matrix = np.asarray(_matrix(kernel, data.points))
                root = np.linalg.cholesky(matrix[:size, :size] + data.constant + np.diag(noise / data.counts[:size]))
                solved = solve_triangular(root, np.asarray(data.means)[0, :size], lower=True)
                for block in blocks:
                    padded = np.pad(block, ((0, points_at_once - len(block)), (0, 0)), mode="edge")
                    along, prior = (np.asarray(part)[..., : len(block)] for part in _between(kernel, data, padded))
                    white = solve_triangular(root, along[:size] + data.constant, lower=True)
                    means.append(solved @ white)
                    variances.append(np.maximum(prior + data.constant - np.sum(np.square(white), axis=0), 0))
        rows = len(self.models), len(points)
        return np.concatenate(means).reshape(rows), np.sqrt(np.concatenate(variances)).reshape(rows)

    def numbers(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return numbers ``[count]`` of models, drawn by their weights.

        The numbers are in order.
        """
        ends = np.append(np.cumsum(self.weights)[:-1], 1.0)
        return np.searchsorted(ends, (np.arange(count) + generator.uniform()) / count)

    def draws(self, points: np.ndarray, count: int, seed: int, *, models: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return functions drawn from the posterior, and their noise variances.

        There are values ``[count, m]`` at ``points [m, d]``, and variances ``[count]``. Each draw has the hyper-parameters of one model,
        drawn by weight; at most ``models`` models are drawn.
        """
        # SciPy is imported here because start-up should not pay for it.
        from scipy.linalg import lapack, solve_triangular

        generator = np.random.default_rng(seed)
        chosen = self.numbers(min(models or count, count), generator)[np.arange(count) * min(models or count, count) // count]
        counts = np.bincount(chosen, minlength=len(self.models))
        data, drawn, noises = self.data, list[np.ndarray](), np.repeat([float(noise) for _, noise in self.models], counts)
        size = int(np.count_nonzero(data.counts))
        every = np.concatenate([np.asarray(data.points)[:size], points])
        with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
            for number in np.flatnonzero(counts).tolist():
                kernel, noise = self.models[number]
                matrix = np.asarray(_matrix(kernel, every)) + data.constant
                root = np.linalg.cholesky(matrix[:size, :size] + np.diag(noise / data.counts[:size]))
                white = solve_triangular(root, matrix[:size, size:], lower=True)
                mean = solve_triangular(root, np.asarray(data.means)[0, :size], lower=True) @ white
                # Values at points that were measured without noise are known, so that the matrix is semi-definite.
                covariance = matrix[size:, size:] - white.T @ white
                lower, order, rank, _ = lapack.dpstrf(covariance, lower=1, tol=1e-12 * np.max(np.diagonal(matrix)))
                spread = np.empty((len(points), rank))
                spread[order - 1] = np.tril(lower)[:, :rank]
                drawn.append(mean + generator.standard_normal((counts[number], rank)) @ spread.T)
        order = generator.permutation(count)
        return np.concatenate(drawn)[order], noises[order]


def covariances(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """Return the covariances ``[n, n]`` of points in float64.

    Points are padded to 64 or a power of two, so that few programs are compiled.
    """
    size = max(64, 1 << (len(points) - 1).bit_length())
    with jax.enable_x64(True):
        matrix = _matrix(with_arrays(kernel), np.pad(points, ((0, size - len(points)), (0, 0)), mode="edge"))
        return np.asarray(matrix)[: len(points), : len(points)]


def averaged(
    kernels: Sequence[Kernel],
    points: np.ndarray,
    values: np.ndarray,
    noise_variance: float,
    *,
    prior: Prior | None,
    bounds: Bounds | None = None,
    constant: float = 0.0,
    draws: int,
) -> Averaged:
    """Average a GP over forms of kernels and draws of their hyper-parameters.

    Draws are from the Laplace approximation at the maximum posterior of each form given values ``[n]``, weighted by importance. A search
    for the maximum starts from each kernel; with 0 draws the first kernel is used unfitted. Other arguments are as for :func:`best_fit`.
    """
    data, prior = _known(points, values, constant, prior)
    if not draws:
        return Averaged(data, [(with_arrays(kernels[0]), np.asarray(noise_variance, np.float64))], np.ones(1))
    models, logarithms = [], []
    with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
        for kernel in kernels:
            start = with_arrays(kernel)
            names, known = (*paths(start), NOISE), kept_paths(start)
            now = dict(zip(names, [*jax.tree.leaves(start), np.asarray(noise_variance, np.float64)], strict=True))
            posterior = HyperPosterior.of(start, now, tuple(name for name in names if name not in known), data, prior)
            low, high = posterior.ends(1e3, bounds)
            place, _ = posterior.searched([np.clip(posterior.place(now), low, high)[None]], low, high)
            places, weights = posterior.draws(place, low, high, draws)
            models += [posterior.at(one) for one in places]
            logarithms.append(weights)
    weights = np.exp(np.concatenate(logarithms) - np.max(logarithms))
    # Draws of a smaller share of the largest weight are left out.
    kept = np.flatnonzero(weights > 1e-4)
    return Averaged(data, [models[one] for one in kept], weights[kept] / np.sum(weights[kept]))


def evidence_of_noise(
    kernel: Kernel,
    points: np.ndarray,
    values: np.ndarray,
    noise_variance: float,
    *,
    prior: Prior | None,
    constant: float,
    rough: np.ndarray,
    least: float,
) -> float:
    """Return the evidence, in nats, of noise against roughness of the function.

    Roughness is a further Matern-5/2 process with the noise's variance and length-scales ``rough [d]``, beside noise of the ``least``
    variance. It separates distant points, but not neighbours. Other arguments are as for :func:`best_fit`.
    """
    data, prior = _known(points, values, constant, prior)
    with jax.enable_x64(True):
        matrix = np.asarray(_matrix(with_arrays(kernel), data.points))
    size, total = int(np.count_nonzero(data.counts)), np.sum(data.counts)
    counts, at = np.asarray(data.counts)[:size], np.asarray(data.points)[:size] / rough
    apart = np.sqrt(5 * np.sum(np.square(at[:, None] - at), axis=-1))
    roughness = noise_variance * (1 + apart + np.square(apart) / 3) * np.exp(-apart)

    def evidence(noise: float, more: np.ndarray | float) -> float:
        root = np.linalg.cholesky(matrix[:size, :size] + data.constant + more + np.diag(noise / counts))
        white = np.linalg.solve(root, np.asarray(data.means)[0, :size])
        within = np.asarray(data.within)[0] / noise + (total - size) * np.log(noise)
        return float(-0.5 * (white @ white + within) - np.sum(np.log(np.diagonal(root))))

    return evidence(noise_variance, 0.0) - evidence(least, roughness)


@partial(jax.jit, static_argnames="moves")
def _density(place: Array, start: tuple[Kernel, Array], prior: Prior | None, data: Collapsed, *, moves: tuple[bool, ...]) -> Array:
    """Return the parts ``[2 + P]`` of :meth:`HyperPosterior.density`.

    Leaves of ``start``, a kernel and the noise variance, come from the place if they move. The parts are NaN if the factorisation fails.
    """
    leaves, structure = jax.tree.flatten(start)
    points, means = jnp.asarray(data.points), jnp.asarray(data.means)
    counts, (outputs, size) = jnp.asarray(data.counts, means.dtype), means.shape
    _, unravel = ravel_pytree([leaf for leaf, free in zip(leaves, moves, strict=True) if free])

    def parts(place: Array) -> tuple[Array, Array, Array]:
        moved = iter(unravel(jnp.exp(place)))
        kernel, noise = jax.tree.unflatten(structure, [next(moved) if free else leaf for leaf, free in zip(leaves, moves, strict=True)])
        before = jnp.zeros((), means.dtype) if prior is None else prior.log_density(kernel, noise, *prior.units(data))
        return kernel(points, points), jnp.log(noise), before

    (matrix, log_noise, before), slope = jax.vjp(parts, place)
    roots, noise, total, eye = jnp.sqrt(counts), jnp.exp(log_noise), jnp.sum(counts), jnp.eye(size, dtype=means.dtype)
    scale = roots[:, None] * roots[None] / noise
    excess = scale * (matrix + data.constant)
    root = jax.lax.linalg.cholesky(eye + excess, symmetrize_input=False)
    inverse = jax.lax.linalg.triangular_solve(root, eye, left_side=True, lower=True)
    white = (roots[None] * means / jnp.sqrt(noise)) @ inverse.T
    solved, fit, spread = white @ inverse, jnp.sum(white * white), jnp.sum(jnp.asarray(data.within)) / noise
    logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
    evidence = -0.5 * (fit + spread + outputs * (logdet + total * (log_noise + math.log(2 * math.pi))))
    slopes = 0.5 * (solved.T @ solved - outputs * (inverse.T @ inverse))
    along_noise = 0.5 * (fit + spread - outputs * total) - jnp.sum(slopes * excess)
    return jnp.concatenate([jnp.stack([evidence, before]), *slope((slopes * scale, along_noise, jnp.ones_like(before)))])


@jax.jit
def _matrix(kernel: Kernel, points: Array) -> Array:
    """Return the covariances ``[m, m]`` of points."""
    return kernel(points, points)


@jax.jit
def _between(kernel: Kernel, data: Collapsed, others: Array) -> tuple[Array, Array]:
    """Return the points' covariances ``[n, m]`` with others, and the others' variances."""
    return kernel(jnp.asarray(data.points), others), kernel.diag(others)
