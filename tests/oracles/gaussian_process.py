"""Dense Gaussian-process posteriors in float64 NumPy.

Every posterior is a fresh Cholesky factorisation of ``K_XX + lam I`` on all data so far.
"""

import numpy as np
from scipy import linalg

Matrix = np.ndarray


# Kernels (Rasmussen and Williams 2006, eq. 4.9, 4.14-4.17), unit prior variance.


def distance(x: Matrix, y: Matrix, length_scale: float | Matrix) -> Matrix:
    """Return ``|(x - y) / l| [n, p]``, by axis for speed."""
    scales = np.broadcast_to(length_scale, x.shape[1])
    return np.sqrt(sum(((x[:, None, k] - y[None, :, k]) / scale) ** 2 for k, scale in enumerate(scales)))


def squared_exponential(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    return np.exp(-(distance(x, y, length_scale) ** 2) / 2)


def matern12(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    return np.exp(-distance(x, y, length_scale))


def matern32(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    z = np.sqrt(3) * distance(x, y, length_scale)
    return (1 + z) * np.exp(-z)


def matern52(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    r = distance(x, y, length_scale)
    return (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)


# Posterior of one function on a grid with Gram matrix ``gram [M, M]``.


def posterior(gram: Matrix, indices: Matrix, values: Matrix, noise: float | Matrix, prior_mean: float = 0.0) -> tuple[Matrix, Matrix]:
    """Return mean ``[M]`` and covariance ``[M, M]`` given ``values [n]``."""
    if len(indices) == 0:
        return np.full(len(gram), float(prior_mean)), gram.copy()
    factor = np.linalg.cholesky(gram[np.ix_(indices, indices)] + np.diag(np.broadcast_to(noise, len(indices))))
    # Rows are L^-1 K(X, grid).
    rows = np.linalg.solve(factor, gram[indices])
    return prior_mean + rows.T @ np.linalg.solve(factor, values - prior_mean), gram - rows.T @ rows


def mean_and_sd(
    gram: Matrix, indices: Matrix, values: Matrix, noise: float | Matrix, prior_mean: float = 0.0, wanted: slice = slice(None)
) -> tuple[Matrix, Matrix]:
    """Return mean and standard deviation ``[M]``, or of points ``wanted``."""
    variances = np.diag(gram)[wanted]
    if len(indices) == 0:
        return np.full(len(variances), float(prior_mean)), np.sqrt(variances)
    factor = np.linalg.cholesky(gram[np.ix_(indices, indices)] + np.diag(np.broadcast_to(noise, len(indices))))
    solved = linalg.solve_triangular(factor, np.column_stack([gram[indices, wanted], values - prior_mean]), lower=True, check_finite=False)
    rows, white = solved[:, :-1], solved[:, -1]
    mean = prior_mean + rows.T @ white
    return mean, np.sqrt(np.maximum(variances - (rows**2).sum(0), 0))


def beliefs(grams: Matrix, indices: Matrix, values: Matrix, noise: Matrix, prior_mean: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return means, deviations ``[k, M]`` and information gains ``[k]``.

    Results are those of :func:`mean_and_sd` and :func:`information_gain` of each function, in fewer calls of NumPy.
    """
    size, prior_mean = len(indices), prior_mean[:, None]
    seen = grams[:, indices]  # [k, n, M]
    factor = np.linalg.cholesky(seen[:, :, indices] + noise[:, None, None] * np.eye(size))
    rows = np.linalg.solve(factor, np.concatenate([seen, (values.T - prior_mean)[:, :, None]], axis=2))
    rows, white = rows[:, :, :-1], rows[:, :, -1]
    mean = prior_mean + np.einsum("knm,kn->km", rows, white)
    variance = np.diagonal(grams, axis1=1, axis2=2) - (rows**2).sum(1)
    gain = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1) - 0.5 * size * np.log(noise)
    return mean, np.sqrt(np.maximum(variance, 0)), gain


def information_gain(gram: Matrix, indices: Matrix, noise: float | Matrix) -> float:
    """Return the realised information gain ``1/2 logdet(I + K_XX / lam)``."""
    rows = np.broadcast_to(noise, len(indices))[:, None]
    # The determinant is det(I + D^-1 K) for noise D.
    return 0.5 * np.linalg.slogdet(np.eye(len(indices)) + gram[np.ix_(indices, indices)] / rows)[1]


def aggregated(indices: Matrix, values: Matrix, noise: float) -> tuple[Matrix, Matrix, Matrix]:
    """Return equivalent data with repeats averaged, under noise ``lam / n``."""
    points, where, counts = np.unique(indices, return_inverse=True, return_counts=True)
    return points, np.bincount(where, weights=values) / counts, noise / counts


def random_functions(gram: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """``count`` draws ``[count, M]`` of a zero-mean Gaussian process."""
    return rng.standard_normal((count, len(gram))) @ np.linalg.cholesky(gram + 1e-9 * np.eye(len(gram))).T
