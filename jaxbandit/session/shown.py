"""Beliefs that a session shows, averaged over hyper-parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import jax
import numpy as np

from jaxbandit.domains import Box
from jaxbandit.kernels import Kernel, Matern32, Matern52
from jaxbandit.session.axes import Space
from jaxbandit.session.models import MOST_FITTED, Values, best_of_fits, prior_of, sides_of, standardised
from jaxbandit.session.quantities import Outputs, Standard
from jaxbandit.study.runs import Model
from jaxbandit.surrogates.evidence.density import MEAN, NOISE, NOISES
from jaxbandit.surrogates.evidence.host import DRAWS, Averaged, averaged, evidence_of_noise

Believed: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Mean and deviation ``[n, M]`` of every output in its own units, and the probability ``[M]`` that all constraints hold."""
FORMS: Sequence[type[Kernel]] = (Matern52, Matern32)
# A noise variance below this share of the variance of the values has no consequence.
LITTLE = 1e-3
# Noise is shown where it is more likely than roughness by this many nats.
NATS = 3.0


class Shown:
    """Beliefs of a GP of standardised outputs that is fitted to all values.

    Intervals of a single choice of hyper-parameters are too narrow. Therefore they are averaged over draws from their posterior and, where
    no model was given, over forms of the kernel. Algorithms choose by the maximum alone.

    Attributes:
      noise: for every output, whether its values show noise. A function that is rough between neighbouring points looks the same, so noise
        is shown only where neighbours, or values at one point, differ by more.
    """

    def __init__(self, outputs: Outputs, space: Space, model: Model, standard: Standard, told: Values, *, forms: bool) -> None:
        best = best_of_fits(outputs, space, model, standard, told)
        kernels, noises = (cast(Sequence[Any], part) for part in (best.model.kernel, best.model.noise_variance))
        prior, rough = prior_of(space), _rough(space, np.unique([index for index, _ in told]))
        self.outputs, self.standard, self.averages, self.noise = outputs, best.standard, list[Averaged](), list[bool]()
        self._points, self._known, self._trust = space.modelled, np.full((len(outputs.names), space.size), np.nan), list[float]()
        for number, (kernel, noise) in enumerate(zip(kernels, noises, strict=True)):
            indices, values, seen = standardised(outputs, best.standard, told, [number])
            several, given = [_with_form(kernel, form) for form in FORMS] if forms else [kernel], (space.modelled[indices], seen, noise)
            draws = DRAWS if len(seen) <= MOST_FITTED and np.unique(seen).size > 1 else 0
            bounds = {NOISE: NOISES}
            self.averages.append(averaged(several, *given, prior=prior, bounds=bounds, constant=MEAN, draws=draws))
            nats = evidence_of_noise(kernel, *given, prior=prior, constant=MEAN, rough=rough, least=NOISES[0]) if noise > LITTLE else 0.0
            self.noise.append(nats > NATS)
            self._trust.append(0.0 if nats > NATS else 0.5 if noise > LITTLE else 1.0)
            counts = np.bincount(indices, minlength=space.size)
            np.divide(np.bincount(indices, values[:, 0], space.size), counts, out=self._known[number], where=counts > 0)

    def at(self, points: np.ndarray) -> Believed:
        """Return the belief at ``points [M, d]`` in the model's units."""
        mean, sd, holds = self._each(points)
        return mean, sd, np.prod(holds, axis=0)

    def measured(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rewards, probabilities of feasibility and violations ``[m]`` at measured points.

        Where values show no noise the measured value counts instead of the mean, and a constraint that was measured to hold, or not to
        hold, does so for certain. Where roughness and noise look the same, certainty has half of the weight.
        """
        mean, _, holds = self._each(self._points[indices])
        known = self._known[:, indices]
        there = np.isfinite(known) & (np.asarray(self._trust) > 0)[:, None]
        values, trust = np.where(there, known, mean), np.where(there, np.asarray(self._trust)[:, None], 0)
        violations = [one.violation(row) for one, row in zip(self.outputs.constraints, values[1:], strict=True)]
        holds = (1 - trust[1:]) * holds + trust[1:] * (np.reshape(violations, holds.shape) == 0)
        excess = sum((row / (np.max(row) or 1.0) for row in violations), np.zeros(len(indices)))
        return self.outputs.objective.sign * values[0], np.prod(holds, axis=0), excess

    def _each(self, points: np.ndarray) -> Believed:
        """Return means and deviations ``[n, M]``, and probabilities ``[n - 1, M]`` of the constraints."""
        # SciPy comes with JAX. It is imported here because start-up should not pay for it.
        from scipy.special import ndtr

        outputs, standard, sign = self.outputs, self.standard, self.outputs.objective.sign
        means, deviations, holds = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for number, average in enumerate(self.averages):
            each, spread = (standard.scale[number] * table for table in average.at(points))  # [K, M]
            each, spread = each + standard.location[number], np.maximum(spread, np.finfo(np.float64).tiny)
            mean = average.weights @ each
            sd = np.sqrt(average.weights @ (np.square(spread) + np.square(each - mean)))
            if number:
                bounds = dict(outputs.constraints[number - 1].sides)
                low, high = -bounds.get(-1, np.inf), bounds.get(1, np.inf)
                holds.append(np.clip(average.weights @ (ndtr((high - each) / spread) - ndtr((low - each) / spread)), 0, 1))
            # Under a bend a deviation is not equally far on both sides: half of their distance stands for it.
            elif standard.bend is not None:
                above, mean, below = (sign * standard.straightened(sign * mean + side * sd) for side in (1, 0, -1))
                sd = np.abs(above - below) / 2
            means.append(mean)
            deviations.append(sd)
        return np.stack(means), np.stack(deviations), np.reshape(holds, (len(means) - 1, len(points)))


def _with_form(kernel: Kernel, form: type[Kernel]) -> Kernel:
    """Return a kernel with another form in the place of Matern-5/2."""

    def formed(part: object) -> object:
        return cast(Any, form)(length_scale=part.length_scale) if isinstance(part, Matern52) else part

    changed: Kernel = jax.tree.map(formed, kernel, is_leaf=lambda part: isinstance(part, Matern52))
    return changed


def _rough(space: Space, measured: np.ndarray) -> np.ndarray:
    """Return the distance ``[d]`` within which a function may be rough.

    On a box it is a hundredth of the diagonal, or a thousandth where some points ``[m]`` were ``measured`` nearly twice, because these tell
    noise from finer roughness. On a grid it is the distance of neighbours, at most a twentieth of an axis, if that is more.
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
