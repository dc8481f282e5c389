"""Fitting of kernel hyper-parameters by maximum marginal likelihood (Rasmussen and Williams 2006, sec. 5.4.1), in float64 on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import between, exactly, finite_numbers, instance_of, positive, vector, whole
from jaxbandit.core.types import Array, Numbers
from jaxbandit.kernels import Kernel

__all__ = ["fit", "log_evidence"]

K = TypeVar("K", bound=Kernel)
UNUSABLE = 1e25  # the loss assigned to a matrix that cannot be factorised


POINTS = finite_numbers.of(exactly(None, None, words="one row per point"))


@takes(kernel=instance_of(Kernel), points=POINTS, values=finite_numbers.of(vector("one value per point")), noise_variance=positive)
def log_evidence(kernel: Kernel, points: ArrayLike, values: ArrayLike, noise_variance: ArrayLike) -> Array:
    """Return the log density ``[]`` of ``values [n]`` at ``points [n, d]`` under ``N(0, K + noise_variance I)``; differentiable.

    Rasmussen and Williams (2006), eq. 2.30.
    """
    checks.shape("values", values, (np.shape(points)[0],), remedy="one value per point")
    values = jnp.asarray(values)
    noisy = kernel(points, points) + jnp.asarray(noise_variance, values.dtype) * jnp.eye(len(values), dtype=values.dtype)
    root = jnp.linalg.cholesky(noisy)
    whitened = jax.scipy.linalg.solve_triangular(root, values, lower=True)
    return -0.5 * jnp.sum(whitened * whitened) - jnp.sum(jnp.log(jnp.diagonal(root))) - 0.5 * len(values) * jnp.log(2 * jnp.pi)


@takes(
    kernel=instance_of(Kernel),
    points=POINTS,
    values=finite_numbers,
    noise_variance=positive,
    span=between(1, float("inf"), open_high=True, host=True),
    starts=whole(1, 10_000),
    seed=whole(0, 2**63 - 1),
)
def fit(
    kernel: K, points: Numbers, values: Numbers, noise_variance: float, *, span: float = 1e3, starts: int = 5, seed: int = 0
) -> tuple[K, float]:
    """Find the hyper-parameters under which the values are most likely, for a GP with prior mean 0 (subtract any other mean first).

    Every leaf of the kernel is a hyper-parameter, searched on a logarithmic scale by L-BFGS-B with exact gradients.

    Args:
      kernel: the kernel to fit, with the hyper-parameters at which the search starts; all must be positive.
      points: ``[n, d]`` inputs.
      values: ``[n]`` noisy values at the inputs.
      noise_variance: noise variance of the values, > 0; it is not fitted.
      span: largest factor, > 1, by which a hyper-parameter may grow or shrink.
      starts: number of searches, of which the best is returned; all but the first start up to a factor 10 away.
      seed: seed of those starting points.

    Returns:
      The fitted kernel and its log evidence.

    Raises:
      InvalidArgument: on a hyper-parameter or argument out of range, or when no search finds a finite evidence.
    """
    points, values = np.asarray(points, np.float64), np.asarray(values, np.float64)
    checks.shape("values", values, (len(points),), remedy="one value per point")
    kernel.check_axes(points.shape[1])
    checks.positive("kernel hyper-parameters", np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(kernel)]))
    with jax.enable_x64(True):
        logs, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf, jnp.float64)), kernel))
        centre = np.asarray(logs)

        def loss(theta: Array) -> Array:
            return -log_evidence(jax.tree.map(jnp.exp, rebuild(theta)), points, values, noise_variance)

        best, least = _descend(jax.jit(jax.value_and_grad(loss)), _starting_points(centre, starts, seed), centre, np.log(span))
        if least >= UNUSABLE:
            raise checks.InvalidArgument("fit: K + noise_variance I could not be factorised anywhere; raise noise_variance")
        return jax.tree.map(lambda leaf: np.exp(np.asarray(leaf)), rebuild(jnp.asarray(best))), -least


def _starting_points(centre: np.ndarray, starts: int, seed: int) -> list[np.ndarray]:
    """Return ``centre`` and ``starts - 1`` points around it, a factor of at most 10 away; all in logarithms."""
    away = np.random.default_rng(seed).uniform(-np.log(10.0), np.log(10.0), (starts - 1, len(centre)))
    return [centre, *(centre + away)]


def _descend(
    loss_and_gradient: Callable[[Array], tuple[Array, Array]], starts: list[np.ndarray], centre: np.ndarray, reach: float
) -> tuple[np.ndarray, float]:
    """Minimise within ``centre +- reach`` from each of the ``starts``; return the best point and its loss."""
    from scipy.optimize import minimize  # comes with JAX; imported here because start-up should not pay for it

    def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = (np.asarray(part) for part in loss_and_gradient(jnp.asarray(theta)))
        usable = np.isfinite(loss) and np.isfinite(gradient).all()
        return (float(loss), gradient) if usable else (UNUSABLE, np.zeros_like(theta))

    low, high = centre - reach, centre + reach
    bounds = list(zip(low, high, strict=True))
    results = [minimize(evaluate, np.clip(start, low, high), jac=True, bounds=bounds, method="L-BFGS-B") for start in starts]
    best = min(results, key=lambda result: float(result.fun))
    return np.asarray(best.x), float(best.fun)
