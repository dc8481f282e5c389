"""Evidence that values of an experiment, or its model, are mistaken.

A mistake is a hypothesis about values. Its evidence is the logarithm of a Bayes factor: the density of the values under the mistake,
averaged over its sizes and places, divided by the density without it. Without a mistake a Bayes factor reaches ``N / p`` with a probability
of at most ``p / N`` (Markov's inequality), whatever points an algorithm chose. Hence ``N`` hypotheses raise a false alarm with a
probability of at most ``p``, as far as the model is right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.evidence.fitting import kept_paths, paths, with_arrays
from jaxbandit.surrogates.evidence.host import covariances

# A value may have been told as this multiple of the measured one.
FACTORS = (10.0, 100.0, 1000.0, 0.1, 0.01, 0.001, -1.0)
# A stated model may be wrong by one of these factors.
NAMED = (("length_scale", 1 / 3), ("length_scale", 3.0), ("noise_variance", 0.1), ("noise_variance", 10.0), ("noise_variance", 100.0))
# Where the unit of values is known, the square of their scale has an inverse gamma density of this shape.
SHAPE = 3.0
# The noise variance is at least this share of the variance, because of rounding.
LEAST = 1e-6

Transform: TypeAlias = tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]
"""A function of values, NaN where it is not defined, and the logarithm of its derivative."""
unchanged: Transform = (lambda values: values, np.zeros_like)
Candidate: TypeAlias = tuple[Kernel, float, float]
"""A kernel, a noise variance, and a weight."""


def logarithmic(sign: float) -> Transform:
    """Return the logarithm of values of one sign."""

    def of(values: np.ndarray) -> np.ndarray:
        return np.log(np.where(sign * values > 0, sign * values, np.nan))

    return of, lambda values: -of(values)


def around(kernels: Sequence[Kernel], points: np.ndarray, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates, and others with other length-scales and noise."""
    grid = list[tuple[Kernel, float]]()
    # Fitted models may be wrong by these factors on length-scales, and by any of these shares of noise.
    lengths, shares = (1 / 3, 1.0, 3.0), (1e-4, 1e-2, 0.1, 0.5)
    for kernel in kernels:
        variance = float(np.mean(np.diagonal(covariances(kernel, points))))
        grid += [(longer(kernel, length), share * variance) for length in lengths for share in shares]
    return [*((kernel, noise, weight / 2) for kernel, noise, weight in candidates), *((*pair, 0.5 / len(grid)) for pair in grid)]


def longer(kernel: Kernel, factor: float) -> Kernel:
    """Return a kernel with longer length-scales."""
    own = with_arrays(kernel)
    lengths = {path for path in paths(own) if path.endswith("length_scale")}.difference(kept_paths(own))
    leaves = [leaf * factor if path in lengths else leaf for path, leaf in zip(paths(own), jax.tree.leaves(own), strict=True)]
    changed: Kernel = jax.tree.unflatten(jax.tree.structure(own), leaves)
    return changed


class Block(NamedTuple):
    """Mistaken values from a first to a last number, with evidence."""

    evidence: float
    first: int
    last: int
    factor: float = 1.0

    @classmethod
    def best(cls, tables: np.ndarray, healthy: float) -> Block:
        """Return the likeliest block of tables ``[F, n, n]``."""
        # Single values have half of the prior weight.
        size = tables.shape[-1]
        logs = tables + np.where(np.eye(size, dtype=bool), np.log(0.5 / size), np.log(1 / (size * (size - 1))))
        number, first, last = map(int, np.unravel_index(int(np.argmax(logs)), logs.shape))
        return cls(float(summed(logs.ravel())) - healthy, first, last, FACTORS[number])


@dataclasses.dataclass(frozen=True)
class Column:
    """Values of one output, and the models that may have made them.

    Attributes:
      values: ``[n]`` in the order of their tickets.
      inverses: ``[K, n, n]`` inverse covariance under every model, of contrasts where location and scale are unknown.
      constants: ``[K]`` logarithm of every model's weight and determinant.
      variances: ``[K]`` variance of the functions of every model.
      location: prior mean of the values, ``None`` where location and scale are unknown.
      freedom: number of contrasts.
      unit: the likely scale of the values, ``None`` where all scales are as likely.
      transforms: functions of values; any of them may be a draw of a GP.
    """

    values: np.ndarray
    inverses: np.ndarray
    constants: np.ndarray
    variances: np.ndarray
    location: float | None
    freedom: int
    transforms: Sequence[Transform]
    unit: float | None = None

    @classmethod
    def of(
        cls,
        points: np.ndarray,
        values: np.ndarray,
        candidates: Sequence[Candidate],
        location: float | None,
        transforms: Sequence[Transform] = (unchanged,),
        trend: np.ndarray | None = None,
        unit: float | None = None,
    ) -> Column:
        """Return the column of values ``[n]`` at ``points [n, d]``.

        An unknown location may depend on the point by an unknown linear ``trend [n, t]``.
        """
        known = np.ones((len(points), 1)) if trend is None else np.insert(trend, 0, 1, axis=1)
        basis, sizes, _ = np.linalg.svd(known, full_matrices=False)
        basis = basis[:, sizes > LEAST * sizes[0]]
        inverses, constants, variances = list[np.ndarray](), list[float](), list[float]()
        for kernel, noise, weight in candidates:
            matrix = covariances(kernel, points)
            variances.append(float(np.mean(np.diagonal(matrix))))
            matrix = matrix + max(noise, LEAST * variances[-1]) * np.eye(len(points))
            inverse = np.linalg.inv(matrix)
            constant = np.log(weight) - np.linalg.slogdet(matrix)[1] / 2
            if location is None:
                # This is the density of contrasts (Rasmussen and Williams 2006, eq. 2.45).
                along = inverse @ basis
                inverse = inverse - along @ np.linalg.solve(basis.T @ along, along.T)
                constant -= np.linalg.slogdet(basis.T @ along)[1] / 2
            inverses.append((inverse + inverse.T) / 2)
            constants.append(constant)
        freedom = len(points) - basis.shape[1]
        return cls(values, np.stack(inverses), np.asarray(constants), np.asarray(variances), location, freedom, transforms, unit)

    def terms(self, squares: np.ndarray) -> np.ndarray:
        """Return log densities ``[K, ...]`` from squared distances under every model."""
        if self.location is not None:
            logs = -squares / 2
        elif self.unit is None:
            logs = -self.freedom / 2 * np.log(squares)
        else:
            logs = -(self.freedom / 2 + SHAPE) * np.log1p(squares / (2 * SHAPE * self.unit**2))
        return self.constants.reshape(-1, *(1,) * (squares.ndim - 1)) + logs

    def seen(self) -> list[tuple[Transform, np.ndarray, np.ndarray, float]]:
        """Return defined transforms with values, squared distances ``[K]`` and log slope."""
        found = []
        for transform in self.transforms:
            counted = transform[0](self.values)
            if np.all(np.isfinite(counted)):
                counted = counted - (np.median(counted) if self.location is None else self.location)
                squares = np.einsum("kij,i,j->k", self.inverses, counted, counted)
                # Rounding leaves about this much of values that a trend explains.
                squares = np.maximum(squares, LEAST**2 * np.sum(np.square(counted)) / self.variances)
                found.append((transform, counted, squares, float(np.sum(transform[1](self.values)))))
        return found

    def healthy(self) -> float:
        """Return the log density of the values."""
        seen = self.seen()
        return float(summed(np.stack([slope + summed(self.terms(squares)) for _, _, squares, slope in seen])) - np.log(len(seen)))

    def changed(self, others: np.ndarray) -> np.ndarray:
        """Return log densities ``[n, n]`` of blocks, by ends, with other values."""

        def cumulated(table: np.ndarray, axis: int) -> np.ndarray:
            return np.insert(np.cumsum(table, axis=axis), 0, 0, axis=axis)

        found, seen = list[np.ndarray](), self.seen()
        for (value_of, slope_of), counted, squares, slope in seen:
            change = value_of(others) - value_of(self.values)
            # Undefined numbers count as zero in the sums, and blocks that hold one are excluded below.
            undefined, change = np.isnan(change), np.nan_to_num(change)
            # Sums over a block are differences of sums from the first number on.
            linear = cumulated(change * np.einsum("kij,j->ki", self.inverses, counted), 1)
            square = cumulated(cumulated(change[:, None] * change * self.inverses, 1), 2)
            slopes = cumulated(np.nan_to_num(slope_of(others) - slope_of(self.values)), 0)
            holes, ends = cumulated(undefined.astype(int), 0), np.einsum("kii->ki", square)
            moved = ends[:, None, 1:] + ends[:, :-1, None] - 2 * square[:, :-1, 1:] + 2 * (linear[:, None, 1:] - linear[:, :-1, None])
            distances = np.maximum(squares[:, None, None] + moved, LEAST * squares[:, None, None])
            table = slope + slopes[None, 1:] - slopes[:-1, None] + summed(self.terms(distances))
            found.append(np.where(holes[None, 1:] > holes[:-1, None], -np.inf, table))
        table = np.where(np.tri(len(others), dtype=bool).T, summed(np.stack(found)) - np.log(len(seen)), -np.inf)
        if self.location is None:
            # Where location and scale are unknown a change of all values cannot be seen.
            table[0, -1] = -np.inf
        return table

    def wrong_unit(self) -> Block:
        """Return the likeliest values with another unit or sign."""
        first, last = np.indices((len(self.values),) * 2)
        tables = [self.changed(self.values / factor) - (last - first + 1) * np.log(abs(factor)) for factor in FACTORS]
        return Block.best(np.stack(tables) - np.log(len(FACTORS)), self.healthy())

    def exchanged(self, other: Column) -> Block:
        """Return the likeliest exchange of values with a column of equal rows."""
        table = self.changed(other.values) + other.changed(self.values)
        return Block.best(table[None], self.healthy() + other.healthy())

    def drift(self) -> tuple[float, float]:
        """Return evidence of a drift, and the change from first to last."""
        ramp, logs, size = np.linspace(-0.5, 0.5, len(self.values)), list[float](), 0.0
        steep, seen = np.einsum("kij,i,j->k", self.inverses, ramp, ramp), self.seen()
        share = self.variances / (1 + self.variances * steep)
        for number, (_, counted, squares, slope) in enumerate(seen):
            along = np.einsum("kij,i,j->k", self.inverses, ramp, counted)
            terms = self.terms(np.maximum(squares - share * np.square(along), LEAST * squares)) - np.log1p(self.variances * steep) / 2
            logs.append(slope + float(summed(terms)))
            if number == 0:
                size = float(np.exp(terms - summed(terms)) @ (share * along))
        return float(summed(np.asarray(logs)) - np.log(len(seen))) - self.healthy(), size


def misstatements(kernel: Kernel, noise: float) -> list[tuple[Kernel, float]]:
    """Return kernels and noise variances in the order of ``NAMED``."""
    return [(longer(kernel, factor), noise) if name == "length_scale" else (kernel, noise * factor) for name, factor in NAMED]


def of_stated(
    points: np.ndarray, values: np.ndarray, kernel: Kernel, noise: float, location: float | None, unit: float | None = None
) -> np.ndarray:
    """Return log densities under a stated model and its alternatives."""
    models = [(kernel, noise), *misstatements(kernel, noise)]
    return np.asarray([Column.of(points, values, [(*one, 1.0)], location, unit=unit).healthy() for one in models])


def misstated(logarithms: np.ndarray) -> tuple[float, str, float]:
    """Return evidence of a wrong stated model, hyper-parameter and factor."""
    evidence = summed(logarithms[1:]) - np.log(len(NAMED)) - logarithms[0]
    return float(evidence), *NAMED[int(np.argmax(logarithms[1:]))]


def summed(logarithms: np.ndarray) -> np.ndarray:
    """Return the logarithm of a sum of exponentials over the first axis."""
    largest = np.maximum(np.max(logarithms, axis=0), -1e300)
    added: np.ndarray = np.log(np.maximum(np.sum(np.exp(logarithms - largest), axis=0), 1e-300)) + largest
    return added
