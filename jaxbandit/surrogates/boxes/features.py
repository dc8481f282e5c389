"""Posteriors on a box by features of any point.

``phi(x) = L^-1 k(Z, x)`` (Nystroem) has an entry for each pivot in ``Z``, which are chosen greedily among the candidates, with
``L L^T = K(Z, Z)``. No observation reduces the prior variance that features leave out, ``k(x, x) - phi(x) . phi(x)``. The cost of a round
does not depend on the number of observations, and the state stores no observation.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array, Key, Scalar, Table
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.functions import matmul
from jaxbandit.surrogates.boxes.pool import BoxForm, OwnPoints
from jaxbandit.surrogates.features import DenseFeatures, affordable_rank, pivots


@pytree
class FeatureState(OwnPoints):
    """Points of one trial, their features, and the posterior root."""

    features: Array  # [M, r]
    # This is the root W of the covariance of the weights, see ``features``.
    root: Array  # [r, r]


@pytree
class BoxFeatures(BoxForm[FeatureState]):
    """Form of posteriors on a box by features.

    ``whitening`` is ``L^-T``, with zeros where another group of outputs has more features.
    """

    name: ClassVar[str] = "features"
    kernel: Kernel
    candidates: Table = dataclasses.field(repr=False)  # [C, d] unit cube
    phi: Table = dataclasses.field(repr=False)  # [C, r]
    pivots: Table = dataclasses.field(repr=False)  # [q, d]
    whitening: Table = dataclasses.field(repr=False)  # [q, r]
    residual: Scalar
    room: int = static(default=1)

    @property
    def rank(self) -> int:
        return int(np.shape(self.phi)[1])

    def init(self) -> FeatureState:
        numbers, phi = self.numbers(), jnp.asarray(self.phi)
        points = jnp.asarray(self.candidates)[numbers]
        return FeatureState(axes=points.T, placed=jnp.int32(0), features=phi[numbers], root=jnp.eye(self.rank, dtype=phi.dtype))

    def _dense(self, state: FeatureState) -> DenseFeatures:
        variances = self.variances_at(state.points)
        left_out = variances - jnp.sum(jnp.square(state.features), axis=1)
        return DenseFeatures(phi=state.features, prior_variance=variances, residual=self.residual, left_out=left_out)

    def weights_at(self, state: FeatureState, points: Array) -> Array:
        return matmul(self.kernel(points, jnp.asarray(self.pivots)), self.whitening)

    def terms(self, state: FeatureState, v: Array) -> Array:
        return jnp.square(matmul(v, state.root)) - v * v

    def set_features(self, state: FeatureState, index: Array, v: Array) -> FeatureState:
        return replace(state, features=state.features.at[..., index, :].set(v))

    def rank_one_step(
        self, state: FeatureState, index: Array, noise: Array, present: Array | None
    ) -> tuple[Array, Array, Array, Array, Array]:
        root, phi, u, s = self._dense(state).absorb(state.root, index, noise, present)
        return root, phi, u, s, self._dense(state).expand(root, u)

    def apply_step(self, state: FeatureState, new: Array, present: Array | None) -> FeatureState:
        return replace(state, root=new)

    def expand(self, state: FeatureState, weights: Array) -> Array:
        return self._dense(state).expand(state.root, weights)

    def covariance(self, state: FeatureState, indices: Array) -> Array:
        return self._dense(state).covariance(state.root, indices)

    def spread(self, state: FeatureState) -> Array:
        return self._dense(state).spread(state.root)

    def draw(self, state: FeatureState, key: Key) -> Array:
        return self._dense(state).draw(state.root, key)

    def draw_at(self, state: FeatureState, key: Key, points: Array, weights: Array, scale: Scalar) -> Array:
        z = jax.random.normal(key, (self.rank,), points.dtype)
        return matmul(self.weights_at(state, points), weights + scale * matmul(state.root, z))


def box_features(kernels: list[Kernel], candidates: np.ndarray, tolerance: float, most: int | None) -> list[BoxFeatures]:
    """Build each kernel's features, of equal rank, from at most ``most`` pivots."""
    # There are at least four candidates per pivot, so that the other candidates show the residual between pivots.
    count, candidates_per_pivot, made = len(candidates), 4, []
    for kernel in kernels:
        phi, chosen, residual = pivots(
            kernel, candidates, tolerance, min(most or count, count // candidates_per_pivot, affordable_rank(count))
        )
        made.append((kernel, phi, candidates[chosen], np.linalg.inv(np.tril(phi[chosen])).T, residual))
    rank = max(phi.shape[1] for _, phi, *_ in made)

    def padded(table: np.ndarray) -> np.ndarray:
        return np.pad(table, ((0, 0), (0, rank - table.shape[1])))

    return [
        BoxFeatures(kernel=kernel, candidates=candidates, phi=padded(phi), pivots=at, whitening=padded(inverse), residual=np.float64(left))
        for kernel, phi, at, inverse, left in made
    ]
