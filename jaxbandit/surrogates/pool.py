"""Forms of a posterior on a box: on candidates that all trials share and points of the trial's own; the exact one, and what all share.

With ``L L^T = K + lam I`` on the points observed so far, ``v(x) = L^-1 k(X, x)`` gives the posterior at any point of the box: the mean is
``w . v(x)`` with ``w = L^-1 y``, and the variance ``k(x, x) - v(x) . v(x)`` (Rasmussen and Williams 2006, Algorithm 2.1). ``L^-1`` grows
by one row for each observation, in matrix-vector products; so do the rows ``v`` of the pool.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any, ClassVar, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar, Table
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.functions import spectral
from jaxbandit.surrogates.evidence.density import inverse_root
from jaxbandit.surrogates.features import Form, matmul
from jaxbandit.surrogates.precision import in_step

T = TypeVar("T")
P = TypeVar("P", bound="OwnPoints")
Rows: TypeAlias = dict[str, Array]  # that an observation adds to tables, by the names of these

PANEL = 64  # observations: XLA sums by windows of 32 and multiplies by panels of 64, so that room in such steps changes no bit
BLOCK = 16  # observations whose covariances with many points are computed at once, as far as there are any
FEATURES = 256  # random features of a prior draw, whose mean and covariances are the prior's whatever their number
MANY, AT_ONCE, IN_TURN = 512, 8, 4  # points at which draws are summed in loops, and by how many features and observations


@pytree
class OwnPoints:
    """Points of one trial, ``M = C + N``, of which ``N`` are its own."""

    axes: Array  # [d, M] points of the unit cube, axis by axis: loops over pairs of points read them so in vectors; see ``points``
    placed: Array  # [] int32 points of the trial's own

    @property
    def points(self) -> Array:
        """Points of the unit cube, ``[M, d]``; of those not placed yet each repeats a candidate."""
        return self.axes.T


class BoxForm(Form[P]):
    """Form of posteriors on a box, with room for ``N`` points of the trial's own; abstract."""

    refreshable: ClassVar[bool] = False
    trials_per_block: ClassVar[int] = 1
    kernel: Kernel
    candidates: Table  # [C, d] in the unit cube
    room: int  # N

    @property
    def prior_variance(self) -> Table:
        return self.variances_at(jnp.asarray(self.candidates))

    def variances_at(self, points: Array) -> Array:
        """Return the prior variances ``[n]`` at ``points [n, d]`` of the unit cube."""
        return self.kernel.diag(points)

    def numbers(self) -> Array:
        """Return the candidate ``[M]`` that every point is or repeats before any is placed."""
        count = np.shape(self.candidates)[0]
        return jnp.concatenate([jnp.arange(count), jnp.arange(self.room) % count])

    @abc.abstractmethod
    def weights_at(self, state: P, points: Array) -> Array:
        """Return ``v [n, r]`` at ``points [n, d]``, from which come the mean ``w . v`` of weights ``w [r]`` and :meth:`terms`."""

    @abc.abstractmethod
    def terms(self, state: P, v: Array) -> Array:
        """Return what data add to the variances at points of ``v [n, r]``: ``[n, r]``, to be summed by :func:`added`."""

    @abc.abstractmethod
    def placed(self, state: P, index: Array, v: Array) -> P:
        """Return the state that holds ``v [r]`` of the point ``index []``; of several groups, ``v [B, r]``."""

    @abc.abstractmethod
    def taken(self, state: P, index: Array, noise: Array, present: Array | None) -> tuple[Any, Array, Array, Array, Array]:
        """Return what an observation at ``index []`` brings, for :meth:`written`, with ``phi [r]``, ``u [r]``, ``s`` and ``column [M]``."""

    @abc.abstractmethod
    def written(self, state: P, new: Any, present: Array | None) -> P:
        """Return the state with what :meth:`taken` gave; of several groups, in place."""

    def absorb(self, state: P, index: Array, noise: Array, present: Array | None = None) -> tuple[P, Array, Array, Array]:
        new, phi, u, s, _ = self.taken(state, index, noise, present)
        return self.written(state, new, present), phi, u, s

    @abc.abstractmethod
    def draw_at(self, state: P, key: Key, points: Array, weights: Array, scale: Scalar) -> Array:
        """Return the shift of ``weights [r]`` and ``scale`` deviations at ``points [n, d]``: the same function for the same ``key``."""


@pytree
class PoolState(OwnPoints):
    """Points of one trial, and its ``N`` or fewer observations."""

    rows: Array  # [N, M] L^-1 K(X, points), 0 beyond the observations
    inverse: Array  # [N, N] L^-1, 0 beyond the observations
    transposed: Array  # [N, N] L^-T
    observed_axes: Array  # [d, N] X^T
    noises: Array  # [N] noise variance of each observation
    count: Array  # [] int32 observations

    @property
    def observed(self) -> Array:
        """Points observed, X ``[N, d]``."""
        return self.observed_axes.swapaxes(-1, -2)


@pytree
class Pool(BoxForm[PoolState]):
    """The exact form, with room for ``N`` observations, too."""

    name: ClassVar[str] = "pool"
    kernel: Kernel
    candidates: Table = dataclasses.field(repr=False)  # [C, d] in the unit cube
    room: int = static(default=1)  # N
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
        return product(self.kernel(points, state.observed), state.transposed, state.inverse, in_step(state.count))

    def terms(self, state: PoolState, v: Array) -> Array:
        return -v * v

    def placed(self, state: PoolState, index: Array, v: Array) -> PoolState:
        return replace(state, rows=state.rows.at[..., index].set(v))

    def taken(self, state: PoolState, index: Array, noise: Array, present: Array | None) -> tuple[Rows, Array, Array, Array, Array]:
        phi, point = state.rows[:, index], state.axes[:, index]
        column = self.kernel(point[None], state.points)[0] - matmul(phi, state.rows)
        s = noise + jnp.maximum(column[index], 0)
        step, at = jax.lax.rsqrt(s), jnp.arange(self.room, dtype=jnp.int32) == state.count
        inverse = jnp.where(at, step, -step * matmul(phi, state.inverse))
        new = {"rows": column * step, "inverse": inverse, "transposed": inverse, "observed_axes": point, "noises": noise}
        here = True if present is None else present
        return new, jnp.where(here, phi, 0), jnp.where(at & here, jnp.sqrt(s), 0), s, jnp.where(here, column, 0)

    def written(self, state: PoolState, new: Rows, present: Array | None) -> PoolState:
        turned = ("transposed", "observed_axes")
        tables = {name: getattr(state, name) for name in new}
        after = _put(tables | {name: tables[name].swapaxes(-1, -2) for name in turned}, new, state.count, present)
        after |= {name: after[name].swapaxes(-1, -2) for name in turned}
        return replace(state, **after, count=state.count + (1 if present is None else present.astype(jnp.int32)))

    def row(self, state: PoolState, index: Array) -> Array:
        return state.rows[:, index]

    def expand(self, state: PoolState, weights: Array) -> Array:
        return matmul(weights, state.rows)

    def spread(self, state: PoolState) -> Array:
        return self.variances_at(state.points) - matmul(jnp.ones(self.room, state.rows.dtype), jnp.square(state.rows))

    def covariance(self, state: PoolState, indices: Array) -> Array:
        return self.kernel(state.points[indices], state.points) - matmul(state.rows[:, indices].T, state.rows)

    def shift_at(self, state: PoolState, weights: Array, points: Array) -> Array:
        """Return ``weights . v [n]`` at ``points [n, d]`` of weights ``[N]``, by fewer products than :meth:`weights_at`, less exactly."""
        weights = matmul(weights, state.inverse)
        if len(points) < MANY:
            shift: Array = matmul(self.kernel(points, state.observed), weights)
            return shift
        more = -self.room % BLOCK
        observed, weights = jnp.pad(state.observed, ((0, more), (0, 0))), jnp.pad(weights, (0, more))
        count, start = in_step(state.count), jnp.zeros(len(points), weights.dtype)

        def one(total: Array, some: tuple[Array, Array]) -> tuple[Array, None]:
            return total + some[1] * self.kernel(some[0][None], points)[0], None

        def add(total: Array, some: tuple[Array, tuple[Array, Array]]) -> tuple[Array, None]:
            first, own = some
            return jax.lax.cond(first < count, lambda: jax.lax.scan(one, total, own, unroll=IN_TURN)[0], lambda: total), None

        firsts = jnp.arange(0, self.room, BLOCK, dtype=jnp.int32)
        blocks = (firsts, (observed.reshape(len(firsts), BLOCK, -1), weights.reshape(-1, BLOCK)))
        shift = jax.lax.scan(add, start, blocks)[0]
        return shift

    def draw(self, state: PoolState, key: Key) -> Array:
        return self.draw_at(state, key, state.points, jnp.zeros((self.room,), state.points.dtype), 1.0)

    def draw_at(self, state: PoolState, key: Key, points: Array, weights: Array, scale: Scalar) -> Array:
        # A prior draw of random features less what the data explain of it (Wilson et al. 2020, *Efficiently sampling functions from
        # Gaussian process posteriors*, eq. 13).
        prior, noise = jax.random.split(key)
        draw = prior_draw(self.kernel, prior, points.shape[1], points.dtype)
        seen = draw(state.observed) + jnp.sqrt(state.noises) * jax.random.normal(noise, (self.room,), points.dtype)
        drawn: Array = scale * draw(points) + self.shift_at(state, weights - scale * matmul(state.inverse, seen), points)
        return drawn

    def conditioned(self, state: PoolState, noise: Array, values: Array) -> tuple[PoolState, Array, Array]:
        """Return the state of the same points and observations under this form's kernel and ``noise``, the weights ``[j, N]`` of
        ``values [j, N]``, less their mean, and the information gain ``[]``."""
        seen = jnp.arange(self.room, dtype=jnp.int32) < state.count
        both = seen[:, None] & seen[None]
        covariances = jnp.where(both, self.kernel(state.observed, state.observed), 0)
        root, logdet = inverse_root(jnp.eye(self.room, dtype=values.dtype) + covariances / noise, count=state.count)
        inverse = jnp.where(both, root, 0) * jax.lax.rsqrt(noise)
        rows = self._rows(inverse, state)
        after = replace(state, rows=rows, inverse=inverse, transposed=inverse.T, noises=jnp.full_like(state.noises, noise))
        return after, matmul(jnp.where(seen[None], values, 0), inverse.T), 0.5 * logdet

    def _rows(self, inverse: Array, state: PoolState) -> Array:
        """Return ``inverse K(X, points)``, block by block up to the last observation, below the diagonal of ``inverse`` and on it."""
        blocks = -(-self.room // BLOCK)
        more = blocks * BLOCK - self.room
        inverse, observed = jnp.pad(inverse, ((0, more), (0, more))), jnp.pad(state.observed, ((0, more), (0, 0)))
        used = -(-in_step(state.count) // BLOCK)

        def block(table: Array, number: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(table, number * BLOCK, BLOCK)

        def column(k: Array, rows: Array) -> Array:
            own = self.kernel(block(observed, k), state.points)
            weights = jax.lax.dynamic_slice_in_dim(inverse, k * BLOCK, BLOCK, axis=1)

            def add(j: Array, rows: Array) -> Array:
                return jax.lax.dynamic_update_slice_in_dim(rows, block(rows, j) + matmul(block(weights, j), own), j * BLOCK, axis=0)

            after: Array = jax.lax.fori_loop(k, used, add, rows)
            return after

        start = jnp.zeros((blocks * BLOCK, len(state.points)), inverse.dtype)
        rows: Array = jax.lax.fori_loop(jnp.zeros_like(used), used, column, start)
        return rows[: self.room]


def _put(tables: T, new: T, at: Array, present: Array | None) -> T:
    """Return ``tables [N, ...]`` with rows ``new`` at ``at []`` where they are present; of several groups, each in its place.

    A loop over groups writes in place, which a batched update does not: XLA selects between copies of its tables.
    """

    def put(table: Array, row: Array, at: Any, present: Array | None) -> Array:
        return table.at[at].set(row if present is None else jnp.where(present, row, table[at]))

    def write(b: Array, tables: T) -> T:
        here = None if present is None else present[b]
        after: T = jax.tree.map(lambda table, rows: put(table, rows[b], (b, at[b]), here), tables, new)
        return after

    after: T = (
        jax.lax.fori_loop(0, len(at), write, tables)
        if at.ndim
        else jax.tree.map(lambda table, row: put(table, row, at, present), tables, new)
    )
    return after


@jax.custom_vjp
def product(rows: Array, matrix: Array, transposed: Array, count: Array) -> Array:
    """Return ``rows @ matrix`` of ``rows [n, N]`` and a square matrix, given with its transpose, by which the derivative multiplies.

    Only its first ``count []`` rows and columns hold more than zeros. Processors multiply by rows of a matrix twice as fast as by its
    columns, and in an order that zeros at the end do not change.
    """
    return _leading(rows, matrix, count)


product.defvjp(
    lambda rows, matrix, transposed, count: (_leading(rows, matrix, count), (rows, transposed, count)),
    lambda kept, turned: (_leading(turned, kept[1], kept[2]), matmul(kept[0].T, turned), jnp.zeros_like(kept[1]), None),
)


def _leading(rows: Array, matrix: Array, count: Array) -> Array:
    """Return ``rows @ matrix``, multiplying by no more than the panels of the matrix that hold any of its first ``count`` rows."""
    size = len(matrix)

    def multiplied(used: int) -> Array:
        return jnp.pad(matmul(rows[:, :used], matrix[:used, :used]), ((0, 0), (0, size - used)))

    sizes = [*range(PANEL, size, PANEL), size]
    multiple: Array = jax.lax.switch((count - 1) // PANEL, [functools.partial(multiplied, used) for used in sizes])
    return multiple


def added(values: Array) -> Array:
    """Return the sums ``[j, n]`` of ``values [j, n, N]``; as a product, whose order of summation zeros at the end do not change."""
    return matmul(values, jnp.ones(values.shape[-1], values.dtype))


def with_next(tree: T, number: Array) -> T:
    """Return a state in which the next point of the trial's own, wherever posteriors hold such, is that of ``number``, from 0."""

    def moved(part: object) -> object:
        return replace(part, placed=number) if isinstance(part, OwnPoints) else part

    after: T = jax.tree.map(moved, tree, is_leaf=lambda part: isinstance(part, OwnPoints))
    return after


def prior_draw(kernel: Kernel, key: Key, dimension: int, dtype: np.dtype) -> jax.tree_util.Partial:
    """Return a draw of the prior as a function of points ``[n, d]``, a sum of cosines with frequencies of the kernel's spectrum."""
    frequencies, phases, amplitudes = jax.random.split(key, 3)
    sampled = spectral(kernel, frequencies, (FEATURES, dimension), dtype)
    if sampled is None:
        raise InvalidArgument(f"kernel: {type(kernel).__name__} has no draws on a box; use SquaredExponential or a Matern kernel")
    omega, variance = sampled
    phase = jax.random.uniform(phases, (FEATURES,), dtype)
    size = jnp.sqrt(2 * variance / FEATURES) * jax.random.normal(amplitudes, (FEATURES,), dtype)
    return jax.tree_util.Partial(_waves, omega / (2 * np.pi), phase, size)


def _waves(frequencies: Array, phases: Array, sizes: Array, points: Array) -> Array:
    """Return sums of cosines ``[n]`` at ``points [n, d]``; of many points a few at a time, in registers."""
    if len(points) < MANY:
        return matmul(_cosine(matmul(points, frequencies.T) + phases[None]), sizes)
    axes = [points[:, k] for k in range(points.shape[1])]

    def add(total: Array, some: tuple[Array, Array, Array]) -> tuple[Array, None]:
        for frequency, phase, size in zip(*some, strict=True):
            total += size * _cosine(sum((f * x for f, x in zip(frequency, axes, strict=True)), phase))
        return total, None

    parts = (frequencies.reshape(-1, AT_ONCE, len(axes)), phases.reshape(-1, AT_ONCE), sizes.reshape(-1, AT_ONCE))
    drawn: Array = jax.lax.scan(add, jnp.zeros(len(points), points.dtype), parts)[0]
    return drawn


# Of a polynomial in squared turns that interpolates at Chebyshev's nodes: 1.2e-8 up to a half, where Taylor's takes three terms more.
COSINE = [6.527705962902734, -25.966884612550658, 60.16742979194585, -85.45011342750767]
COSINE += [64.93911592834692, -19.739204466576158, 0.9999999889445765]


def _cosine(turns: Array) -> Array:
    """Return ``cos(2 pi turns)`` to 1.2e-8 and rounding, which CPUs compute ten times as fast as the exact one."""
    square, value = jnp.square(turns - jnp.round(turns)), jnp.full_like(turns, COSINE[0])
    for c in COSINE[1:]:
        value = value * square + c
    return value
