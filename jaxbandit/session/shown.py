"""Beliefs that a session shows, averaged over hyper-parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.domains import Box
from jaxbandit.kernels import Kernel, Matern32, Matern52, PosteriorMean
from jaxbandit.session.axes import Space
from jaxbandit.session.models import MAX_FITTED, Values, best_of_fits, for_each, prior_of, sides_of, standardised
from jaxbandit.session.quantities import RUNS, Outputs, Standard, probability_of
from jaxbandit.study.runs import Model
from jaxbandit.surrogates.evidence.density import BELIEVING, LEARNED, NOISE
from jaxbandit.surrogates.evidence.host import Averaged, averaged, evidence_of_noise

Believed: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Mean and deviation ``[n, M]`` of every output in its own units, and the probability ``[M]`` that all constraints hold."""


@dataclasses.dataclass
class Shown:
    """Beliefs about every output, given all values.

    Attributes:
      outputs: the outputs that the beliefs are about.
      model: the most likely model of every output.
      standard: location and scale of the averages' values.
      points: all points ``[M, d]`` for the model.
      known: mean ``[n, M]`` of the values at each point, NaN without values.
      averages: for every output, its belief averaged over hyper-parameters.
      noise: for every output, whether its values show noise. A function that is rough between neighbouring points looks the same, so noise
        is shown only where neighbours, or values at one point, differ by more.
      trust: for every output, the weight of a measured value against the belief at its point.
    """

    outputs: Outputs
    model: Model
    standard: Standard
    points: np.ndarray
    known: np.ndarray
    averages: list[Averaged] = dataclasses.field(default_factory=list)
    noise: list[bool] = dataclasses.field(default_factory=list)
    trust: list[float] = dataclasses.field(default_factory=list)

    @classmethod
    def fitted(cls, outputs: Outputs, space: Space, model: Model, standard: Standard, told: Values, *, forms: bool) -> Shown:
        """Return the beliefs of a standardised GP fitted to all values.

        Intervals of a single choice of hyper-parameters are too narrow. Therefore they are averaged over draws from their posterior and,
        where no model was given, over ``forms`` of the kernel. Algorithms choose by the maximum only.
        """
        best = best_of_fits(outputs, space, model, standard, told)
        kernels, noises = (cast(Sequence[Any], part) for part in (best.model.kernel, best.model.noise_variance))
        prior, rough = prior_of(space, BELIEVING), _rough(space, np.unique([index for index, _ in told]))
        shown = cls(outputs, best.model, best.standard, space.modelled, np.full((len(outputs.names), space.size), np.nan))
        # A noise variance below this share of the variance of the values has no consequence.
        little = 1e-3
        # Noise is shown where it is more likely than roughness by this many nats.
        least_nats = 3.0
        others: Sequence[type[Kernel]] = (Matern52, Matern32)

        def with_form(kernel: Kernel, form: Any) -> Kernel:
            """Return a kernel with another form in place of Matern-5/2."""

            def formed(part: Any) -> Any:
                return form(length_scale=part.length_scale) if isinstance(part, Matern52) else part

            changed: Kernel = jax.tree.map(formed, kernel, is_leaf=lambda part: isinstance(part, Matern52 | PosteriorMean))
            return changed

        for number, (kernel, noise) in enumerate(zip(kernels, noises, strict=True)):
            indices, values, seen = standardised(outputs, best.standard, told, [number])
            several, given = [with_form(kernel, form) for form in others] if forms else [kernel], (space.modelled[indices], seen, noise)
            if outputs.names[number] == RUNS:
                # Runs are not fitted. A point with a successful run may fail later, so its probability counts, too.
                average = averaged([kernel], *given, prior=None, draws=0)
                shown._add(average, False, 0.0, indices, values[:, 0])
                continue
            # Each form of a kernel has 16 draws of hyper-parameters.
            draws = 16 if len(seen) <= MAX_FITTED and np.unique(seen).size > 1 else 0
            average = averaged(several, *given, prior=prior, bounds={NOISE: LEARNED.noises}, constant=LEARNED.mean, draws=draws)
            nats = 0.0
            if noise > little:
                nats = evidence_of_noise(kernel, *given, prior=prior, constant=LEARNED.mean, rough=rough, least=LEARNED.noises[0])
            shown._add(average, nats > least_nats, 0.0 if nats > least_nats else 0.5 if noise > little else 1.0, indices, values[:, 0])
        return shown

    @classmethod
    def stated(cls, outputs: Outputs, space: Space, model: Model, standard: Standard | None, told: Values) -> Shown:
        """Return a given model's beliefs, unstandardised without a ``standard``."""
        kernels, noises, means = (for_each(field, model, outputs, standard) for field in ("kernel", "noise_variance", "prior_mean"))
        own = standard or Standard((0.0,) * len(means), (1.0,) * len(means))
        locations = [location + scale * float(mean) for location, scale, mean in zip(own.location, own.scale, means, strict=True)]
        own = dataclasses.replace(own, location=tuple(locations))
        shown = cls(outputs, model, own, space.modelled, np.full((len(outputs.names), space.size), np.nan))
        for number, (kernel, noise) in enumerate(zip(kernels, noises, strict=True)):
            if np.ndim(noise):
                raise InvalidArgument("model.noise_variance: joint draws need noise that is the same at all points")
            indices, values, seen = standardised(outputs, own, told, [number])
            average = averaged([kernel], space.modelled[indices], seen, float(noise), prior=None, draws=0)
            shown._add(average, True, 0.0, indices, values[:, 0])
        return shown

    def _add(self, average: Averaged, noise: bool, trust: float, indices: np.ndarray, values: np.ndarray) -> None:
        """Add the next output's belief, with ``values [m]`` at ``indices [m]``."""
        self.averages.append(average)
        self.noise.append(noise)
        self.trust.append(trust)
        size = self.known.shape[1]
        counts = np.bincount(indices, minlength=size)
        np.divide(np.bincount(indices, values, size), counts, out=self.known[len(self.averages) - 1], where=counts > 0)

    def at(self, points: np.ndarray) -> Believed:
        """Return the belief at ``points [M, d]`` in the model's units."""
        mean, sd, holds = self._each(points)
        return mean, sd, np.prod(holds, axis=0)

    def measured(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rewards, probabilities of feasibility and violations ``[m]`` at measured points.

        If values show no noise, a measured value replaces the mean, and a measured constraint is certain. If roughness and noise look the
        same, certainty has half of the weight.
        """
        mean, _, holds = self._each(self.points[indices])
        known = self.known[:, indices]
        there = np.isfinite(known) & (np.asarray(self.trust) > 0)[:, None]
        values, trust = np.where(there, known, mean), np.where(there, np.asarray(self.trust)[:, None], 0)
        violations = [one.violation(row) for one, row in zip(self.outputs.constraints, values[1:], strict=True)]
        holds = (1 - trust[1:]) * holds + trust[1:] * (np.reshape(violations, holds.shape) == 0)
        excess = sum((row / (np.max(row) or 1.0) for row in violations), np.zeros(len(indices)))
        return self.outputs.objective.sign * values[0], np.prod(holds, axis=0), excess

    def draws(self, points: np.ndarray, count: int, *, numbers: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rewards and feasibility ``[count, M]`` of draws at ``points [M, d]``.

        ``numbers [M]`` are the points' numbers, -1 for a point without a number. Measured values without noise replace the drawn values; if
        roughness and noise look the same, they do so in half of the draws.
        """
        rewards, holds = np.empty((count, len(points))), np.ones((count, len(points)), bool)
        for number, average in enumerate(self.averages):
            bent = self.standard.location[number] + self.standard.scale[number] * average.draws(points, count, seed + number)[0]
            sign = self.outputs.objective.sign
            drawn = bent if number else sign * self.standard.straightened(sign * bent)
            known = np.where(numbers >= 0, self.known[number, numbers], np.nan)
            stand = (np.arange(count) < self.trust[number] * count)[:, None] & np.isfinite(known)
            drawn = np.where(stand, known, drawn)
            if number:
                holds &= self.outputs.constraints[number - 1].violation(drawn) == 0
            else:
                rewards = sign * drawn
        return rewards, holds

    def in_units(self, number: int, means: np.ndarray, deviations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an output's mean and deviation ``[m]`` from models' ``[K, m]``."""
        standard, weights, sign = self.standard, self.averages[number].weights, self.outputs.objective.sign
        each, spread = standard.scale[number] * means, standard.scale[number] * deviations
        each, spread = each + standard.location[number], np.maximum(spread, np.finfo(np.float64).tiny)
        mean = weights @ each
        sd = np.sqrt(weights @ (np.square(spread) + np.square(each - mean)))
        if number == 0:
            reward, sd = standard.straightened_belief(sign * mean, sd)
            mean = sign * reward
        return mean, sd

    def _each(self, points: np.ndarray) -> Believed:
        """Return means, deviations ``[n, M]`` and constraints' probabilities ``[n - 1, M]``."""
        outputs, standard = self.outputs, self.standard
        means, deviations, holds = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for number, average in enumerate(self.averages):
            each, spread = average.at(points)  # [K, M]
            mean, sd = self.in_units(number, each, spread)
            if number:
                each = standard.scale[number] * each + standard.location[number]
                likely = probability_of(outputs.constraints[number - 1], each, standard.scale[number] * spread)
                holds.append(np.clip(average.weights @ likely, 0, 1))
            means.append(mean)
            deviations.append(sd)
        return np.stack(means), np.stack(deviations), np.reshape(holds, (len(means) - 1, len(points)))


def _rough(space: Space, measured: np.ndarray) -> np.ndarray:
    """Return the largest distance ``[d]`` of roughness in a function.

    On a box it is a hundredth of the diagonal, or a thousandth if some points ``[m]`` were ``measured`` nearly twice, because these values
    separate noise from finer roughness. On a grid it is the distance of neighbours, at most a twentieth of an axis, if that is more.
    """
    # SciPy comes with JAX. It is imported here because start-up should not pay for it.
    from scipy.spatial.distance import pdist

    fine, rough, coarse = 0.001, 0.01, 0.05
    sides = sides_of(space.domain)
    near = np.sqrt(len(sides)) * sides
    if isinstance(space.domain, Box):
        return near * (fine if np.min(pdist(space.modelled[measured], "chebyshev"), initial=1) < fine / 2 else rough)
    near = rough * near
    gaps = [np.min(np.diff(np.unique(column)), initial=side) for column, side in zip(space.modelled.T, sides, strict=True)]
    return np.maximum(near, np.minimum(gaps, coarse * sides))
