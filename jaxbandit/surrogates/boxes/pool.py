"""Forms of posteriors on a box, and the exact form.

They cover candidates that all trials share, and points that a trial adds itself. With ``L L^T = K + lam I`` on the observed points,
``v(x) = L^-1 k(X, x)`` gives the posterior at any point of the box: the mean is ``w . v(x)`` with ``w = L^-1 y``, and the variance
``k(x, x) - v(x) . v(x)`` (Rasmussen and Williams 2006, Algorithm 2.1). Each observation adds a row to ``L^-1`` and to the pool's ``v``, by
matrix-vector products.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar, T, Table
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.kernels import Kernel, PosteriorMean, Sum
from jaxbandit.kernels.functions import matmul, spectral
from jaxbandit.surrogates.evidence.density import inverse_root
from jaxbandit.surrogates.features import Form
from jaxbandit.surrogates.precision import in_step

P = TypeVar("P", bound="OwnPoints")


class Sizes:
    """Sizes of the parts of a computation.

    Attributes:
      room: observations by which room grows. XLA sums by windows of 32 and multiplies by panels of 64, so that it changes no bit.
      observations: observations whose covariances with many points are computed at once.
      looped_points: points from which on loops sum draws.
    """

    room: int = 64
    observations: int = 16
    looped_points: int = 512


@pytree
class OwnPoints:
    """The ``M = C + N`` points that a trial knows.

    They are ``C`` candidates, shared by all trials, and up to ``N`` points that the trial adds itself, ``placed`` of them so far. They are
    stored by axis, because loops over pairs of points then read them in vectors.
    """

    axes: Array  # [d, M] unit cube
    placed: Array  # [] int32

    @property
    def points(self) -> Array:
        """Points ``[M, d]``, with candidates in place of points to come."""
        return self.axes.T


class BoxForm(Form[P]):
    """Abstract form of posteriors on a box, with ``room`` for ``N`` points."""

    refreshable: ClassVar[bool] = False
    outputs_together: ClassVar[bool] = True
    trials_per_block: ClassVar[int] = 1
    kernel: Kernel
    candidates: Table  # [C, d] unit cube
    room: int

    @property
    def prior_variance(self) -> Table:
        return self.variances_at(jnp.asarray(self.candidates))

    def variances_at(self, points: Array) -> Array:
        """Return prior variances ``[n]`` at ``points [n, d]`` of the unit cube."""
        return self.kernel.diag(points)

    def numbers(self) -> Array:
        """Return the candidate ``[M]`` that every point of a new state equals."""
        count = np.shape(self.candidates)[0]
        return jnp.concatenate([jnp.arange(count), jnp.arange(self.room) % count])

    @abc.abstractmethod
    def weights_at(self, state: P, points: Array) -> Array:
        """Return features ``v [n, r]`` at ``points [n, d]``."""

    @abc.abstractmethod
    def terms(self, state: P, v: Array) -> Array:
        """Return terms ``[n, r]`` of ``v`` that sum to the variances' change."""

    @abc.abstractmethod
    def set_features(self, state: P, index: Array, v: Array) -> P:
        """Store the features ``v`` of point ``index``, ``[r]`` or ``[B, r]``."""

    @abc.abstractmethod
    def rank_one_step(self, state: P, index: Array, noise: Array, present: Array | None) -> tuple[Any, Array, Array, Array, Array]:
        """Return the step of an observation, ``phi``, ``u``, ``s`` and ``column [M]``."""

    @abc.abstractmethod
    def apply_step(self, state: P, new: Any, present: Array | None) -> P:
        """Return the state after a :meth:`rank_one_step`, or several groups' steps."""

    def absorb(self, state: P, index: Array, noise: Array, present: Array | None = None) -> tuple[P, Array, Array, Array]:
        new, phi, u, s, _ = self.rank_one_step(state, index, noise, present)
        return self.apply_step(state, new, present), phi, u, s

    def observe(self, state: P, index: Array, noise: Array, present: Array | None = None) -> tuple[P, Array, Array, Array]:
        new, _, u, s, column = self.rank_one_step(state, index, noise, present)
        return self.apply_step(state, new, present), u, column, s

    @abc.abstractmethod
    def draw_at(self, state: P, key: Key, points: Array, weights: Array, scale: Scalar) -> Array:
        """Sample ``[n]`` at ``points [n, d]``, one function per ``key``.

        Its mean has ``weights [r]``, and its deviations are multiplied by ``scale``.
        """


@pytree
class PoolState(OwnPoints):
    """Points of one trial and its observations, at most ``N``."""

    # The first three tables are 0 beyond the observations.
    rows: Array  # [N, M] L^-1 K(X, points)
    inverse: Array  # [N, N] L^-1
    transposed: Array  # [N, N] L^-T
    observed_axes: Array  # [d, N] X^T
    noises: Array  # [N] noise variances
    count: Array  # [] int32 observations

    @property
    def observed(self) -> Array:
        """Observed points ``X [N, d]``."""
        return self.observed_axes.swapaxes(-1, -2)


@pytree
class Pool(BoxForm[PoolState]):
    """Exact form, with room for ``N`` observations."""

    name: ClassVar[str] = "pool"
    kernel: Kernel
    candidates: Table = dataclasses.field(repr=False)  # [C, d] unit cube
    room: int = static(default=1)
    residual: ClassVar[float] = 0.0

    @property
    def rank(self) -> int:
        return self.room

    def init(self) -> PoolState:
        candidates = jnp.asarray(self.candidates)
        (count, dimension), dtype = candidates.shape, candidates.dtype
        return PoolState(
            axes=candidates[self.numbers()].T,
            rows=jnp.zeros((self.room, count + self.room), dtype),
            inverse=jnp.zeros((self.room, self.room), dtype),
            transposed=jnp.zeros((self.room, self.room), dtype),
            observed_axes=jnp.full((dimension, self.room), 0.5, dtype),
            noises=jnp.ones((self.room,), dtype),
            count=jnp.int32(0),
            placed=jnp.int32(0),
        )

    def weights_at(self, state: PoolState, points: Array) -> Array:
        return padded_product(self.kernel(points, state.observed), state.transposed, state.inverse, in_step(state.count))

    def terms(self, state: PoolState, v: Array) -> Array:
        return -v * v

    def set_features(self, state: PoolState, index: Array, v: Array) -> PoolState:
        return replace(state, rows=insert_column(state.rows, index, v))

    def rank_one_step(
        self, state: PoolState, index: Array, noise: Array, present: Array | None
    ) -> tuple[dict[str, Array], Array, Array, Array, Array]:
        phi, point = state.rows[:, index], state.axes[:, index]
        column = self.kernel(point[None], state.points)[0] - matmul(phi, state.rows)
        s = noise + jnp.maximum(column[index], 0)
        step, at = jax.lax.rsqrt(s), jnp.arange(self.room, dtype=jnp.int32) == state.count
        inverse = jnp.where(at, step, -step * matmul(phi, state.inverse))
        new = {"rows": column * step, "inverse": inverse, "transposed": inverse, "observed_axes": point, "noises": noise}
        here = True if present is None else present
        return new, jnp.where(here, phi, 0), jnp.where(at & here, jnp.sqrt(s), 0), s, jnp.where(here, column, 0)

    def apply_step(self, state: PoolState, new: dict[str, Array], present: Array | None) -> PoolState:
        turned = ("transposed", "observed_axes")
        tables = {name: getattr(state, name) for name in new}
        after = _put(tables | {name: tables[name].swapaxes(-1, -2) for name in turned}, new, state.count, present)
        after |= {name: after[name].swapaxes(-1, -2) for name in turned}
        return replace(state, **after, count=state.count + (1 if present is None else present.astype(jnp.int32)))

    def expand(self, state: PoolState, weights: Array) -> Array:
        return matmul(weights, state.rows)

    def spread(self, state: PoolState) -> Array:
        return self.variances_at(state.points) - matmul(jnp.ones(self.room, state.rows.dtype), jnp.square(state.rows))

    def covariance(self, state: PoolState, indices: Array) -> Array:
        return self.kernel(state.points[indices], state.points) - matmul(state.rows[:, indices].T, state.rows)

    def shift_at(self, state: PoolState, weights: Array, points: Array) -> Array:
        """Return ``weights . v [n]`` at ``points``, faster than by :meth:`weights_at`."""
        # Fewer products are also less exact.
        weights = matmul(weights, state.inverse)
        if len(points) < Sizes.looped_points:
            return matmul(self.kernel(points, state.observed), weights)
        unrolled, more = 4, -self.room % Sizes.observations
        observed, weights = jnp.pad(state.observed, ((0, more), (0, 0))), jnp.pad(weights, (0, more))
        count, start = in_step(state.count), jnp.zeros(len(points), weights.dtype)

        def one(total: Array, some: tuple[Array, Array]) -> tuple[Array, None]:
            return total + some[1] * self.kernel(some[0][None], points)[0], None

        def add(total: Array, some: tuple[Array, tuple[Array, Array]]) -> tuple[Array, None]:
            first, own = some
            return jax.lax.cond(first < count, lambda: jax.lax.scan(one, total, own, unroll=unrolled)[0], lambda: total), None

        firsts = jnp.arange(0, self.room, Sizes.observations, dtype=jnp.int32)
        blocks = (firsts, (observed.reshape(len(firsts), Sizes.observations, -1), weights.reshape(-1, Sizes.observations)))
        shift = jax.lax.scan(add, start, blocks)[0]
        return shift

    def draw(self, state: PoolState, key: Key) -> Array:
        return self.draw_at(state, key, state.points, jnp.zeros((self.room,), state.points.dtype), 1.0)

    def draw_at(self, state: PoolState, key: Key, points: Array, weights: Array, scale: Scalar) -> Array:
        # This is a prior draw of random features less the part of it that the data explain (Wilson et al. 2020, *Efficiently sampling
        # functions from Gaussian process posteriors*, eq. 13).
        prior, noise = jax.random.split(key)
        draw = prior_draw(self.kernel, prior, points.shape[1], points.dtype)
        seen = draw(state.observed) + jnp.sqrt(state.noises) * jax.random.normal(noise, (self.room,), points.dtype)
        return scale * draw(points) + self.shift_at(state, weights - scale * matmul(state.inverse, seen), points)

    def conditioned(self, state: PoolState, noise: Array, values: Array) -> tuple[PoolState, Array, Array]:
        """Condition anew on all observations, under this form's kernel and ``noise``.

        Returns the state, the weights ``[j, N]`` of ``values [j, N]``, which are less their mean, and the information gain ``[]``.
        """
        seen = jnp.arange(self.room, dtype=jnp.int32) < state.count
        both = seen[:, None] & seen[None]
        covariances = jnp.where(both, self.kernel(state.observed, state.observed), 0)
        root, logdet = inverse_root(jnp.eye(self.room, dtype=values.dtype) + covariances / noise, count=state.count)
        inverse = jnp.where(both, root, 0) * jax.lax.rsqrt(noise)
        rows = self._rows(inverse, state)
        after = replace(state, rows=rows, inverse=inverse, transposed=inverse.T, noises=jnp.full_like(state.noises, noise))
        return after, matmul(jnp.where(seen[None], values, 0), inverse.T), 0.5 * logdet

    def _rows(self, inverse: Array, state: PoolState) -> Array:
        """Return ``inverse K(X, points)`` of a lower triangle ``inverse``, by blocks."""
        size = Sizes.observations
        blocks = -(-self.room // size)
        more = blocks * size - self.room
        inverse, observed = jnp.pad(inverse, ((0, more), (0, more))), jnp.pad(state.observed, ((0, more), (0, 0)))
        used = -(-in_step(state.count) // size)

        def block(table: Array, number: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(table, number * size, size)

        def column(k: Array, rows: Array) -> Array:
            own = self.kernel(block(observed, k), state.points)
            weights = jax.lax.dynamic_slice_in_dim(inverse, k * size, size, axis=1)

            def add(j: Array, rows: Array) -> Array:
                return jax.lax.dynamic_update_slice_in_dim(rows, block(rows, j) + matmul(block(weights, j), own), j * size, axis=0)

            return jax.lax.fori_loop(k, used, add, rows)

        start = jnp.zeros((blocks * size, len(state.points)), inverse.dtype)
        rows: Array = jax.lax.fori_loop(jnp.zeros_like(used), used, column, start)
        return rows[: self.room]


def insert_column(table: Array, index: Array, column: Array) -> Array:
    """Return ``table [..., M]`` with another ``column [...]`` at ``index []``.

    XLA compiles a slice in a third of the time of a scatter.
    """
    return jax.lax.dynamic_update_index_in_dim(table, column, index, -1)


def _put(tables: T, new: T, at: Array, present: Array | None) -> T:
    """Write rows ``new`` into ``tables [N, ...]`` at ``at []``, if present.

    Tables of several groups have a leading axis, and ``at`` an entry for each. A loop over groups writes them in place, because XLA
    selects between copies of the tables in a batched update.
    """

    def put(table: Array, row: Array, at: Any, present: Array | None) -> Array:
        if not isinstance(at, tuple):
            row = row if present is None else jnp.where(present, row, jax.lax.dynamic_index_in_dim(table, at, keepdims=False))
            return jax.lax.dynamic_update_index_in_dim(table, row, at, 0)
        return table.at[at].set(row if present is None else jnp.where(present, row, table[at]))

    def write(b: Array, tables: T) -> T:
        here = None if present is None else present[b]
        return jax.tree.map(lambda table, rows: put(table, rows[b], (b, at[b]), here), tables, new)

    return (
        jax.lax.fori_loop(0, len(at), write, tables)
        if at.ndim
        else jax.tree.map(lambda table, row: put(table, row, at, present), tables, new)
    )


@jax.custom_vjp
def padded_product(rows: Array, matrix: Array, transposed: Array, count: Array) -> Array:
    """Return ``rows @ matrix`` of ``rows [n, N]`` and a square matrix.

    All but the first ``count []`` rows and columns of the matrix are 0. The derivative multiplies by the given transpose, because
    processors multiply by rows of a matrix twice as fast as by its columns, and in an order that zeros at the end do not change.
    """
    return _leading(rows, matrix, count)


padded_product.defvjp(
    lambda rows, matrix, transposed, count: (_leading(rows, matrix, count), (rows, transposed, count)),
    lambda kept, turned: (_leading(turned, kept[1], kept[2]), matmul(kept[0].T, turned), jnp.zeros_like(kept[1]), None),
)


def _leading(rows: Array, matrix: Array, count: Array) -> Array:
    """Return ``rows @ matrix``, by the panels of the first ``count`` rows."""
    size = len(matrix)

    def multiplied(used: int) -> Array:
        return jnp.pad(matmul(rows[:, :used], matrix[:used, :used]), ((0, 0), (0, size - used)))

    sizes = [*range(Sizes.room, size, Sizes.room), size]
    return jax.lax.switch((count - 1) // Sizes.room, [functools.partial(multiplied, used) for used in sizes])


def added(values: Array) -> Array:
    """Return the sums ``[j, n]`` of ``values [j, n, N]``."""
    # Zeros at the end do not change the order of summation of a product.
    return matmul(values, jnp.ones(values.shape[-1], values.dtype))


def with_next(tree: T, number: Array) -> T:
    """Return a state whose posteriors number the next added point ``number``."""

    def moved(part: object) -> object:
        return replace(part, placed=number) if isinstance(part, OwnPoints) else part

    return jax.tree.map(moved, tree, is_leaf=lambda part: isinstance(part, OwnPoints))


def prior_draw(kernel: Kernel, key: Key, dimension: int, dtype: np.dtype) -> jax.tree_util.Partial:
    """Sample a function of points ``[n, d]`` from the prior.

    It is a sum of random cosines with frequencies of the kernel's spectrum, whose mean and covariances are exact for any number of them,
    or the sum of draws of the parts of a sum.
    """
    if isinstance(kernel, PosteriorMean):
        return jax.tree_util.Partial(_multiple, kernel, jax.random.normal(key, (), dtype))
    if isinstance(kernel, Sum):
        parts = zip((kernel.left, kernel.right), jax.random.split(key), strict=True)
        return jax.tree_util.Partial(_added, *(prior_draw(part, own, dimension, dtype) for part, own in parts))
    cosines = 256
    frequencies, phases, amplitudes = jax.random.split(key, 3)
    sampled = spectral(kernel, frequencies, (cosines, dimension), dtype)
    if sampled is None:
        raise InvalidArgument(f"kernel: {type(kernel).__name__} has no draws on a box; use SquaredExponential or a Matern kernel")
    omega, variance = sampled
    phase = jax.random.uniform(phases, (cosines,), dtype)
    size = jnp.sqrt(2 * variance / cosines) * jax.random.normal(amplitudes, (cosines,), dtype)
    return jax.tree_util.Partial(_waves, omega / (2 * np.pi), phase, size)


def _multiple(kernel: PosteriorMean, factor: Array, points: Array) -> Array:
    """Return a multiple of a known mean ``[n]`` at ``points [n, d]``."""
    return factor * kernel.mean(points)


def _added(left: jax.tree_util.Partial, right: jax.tree_util.Partial, points: Array) -> Array:
    """Return the sum of two functions ``[n]`` at ``points [n, d]``."""
    return left(points) + right(points)


def _waves(frequencies: Array, phases: Array, sizes: Array, points: Array) -> Array:
    """Return sums of cosines ``[n]`` at ``points [n, d]``."""
    if len(points) < Sizes.looped_points:
        return matmul(_cosine(matmul(points, frequencies.T) + phases[None]), sizes)
    # At many points a few cosines at a time stay in registers.
    axes, at_once = [points[:, k] for k in range(points.shape[1])], 8

    def add(total: Array, some: tuple[Array, Array, Array]) -> tuple[Array, None]:
        for frequency, phase, size in zip(*some, strict=True):
            total += size * _cosine(sum((f * x for f, x in zip(frequency, axes, strict=True)), phase))
        return total, None

    parts = (frequencies.reshape(-1, at_once, len(axes)), phases.reshape(-1, at_once), sizes.reshape(-1, at_once))
    return jax.lax.scan(add, jnp.zeros(len(points), points.dtype), parts)[0]


def _cosine(turns: Array) -> Array:
    """Return ``cos(2 pi turns)`` to 1.2e-8, ten times faster on CPUs."""
    # This polynomial in squared turns interpolates at Chebyshev's nodes up to a half, where Taylor's polynomial needs three terms more.
    coefficients = [6.527705962902734, -25.966884612550658, 60.16742979194585, -85.45011342750767]
    coefficients += [64.93911592834692, -19.739204466576158, 0.9999999889445765]
    square, value = jnp.square(turns - jnp.round(turns)), jnp.full_like(turns, coefficients[0])
    for c in coefficients[1:]:
        value = value * square + c
    return value
