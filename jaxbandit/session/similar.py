"""Posterior means of similar sessions, for the default model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.domains import Domain
from jaxbandit.kernels import PosteriorMean
from jaxbandit.session.axes import Space
from jaxbandit.session.models import MAX_FITTED, best_of_fits, default_model, for_each, standardised
from jaxbandit.session.specification import Specification
from jaxbandit.surrogates.evidence.host import covariances

# Means of values with less noise variance have weights that float32 cannot add.
LEAST_NOISE = 1e-3


def means_of(specification: Specification, other: Specification, columns: Mapping[str, np.ndarray]) -> dict[str, PosteriorMean]:
    """Return the means of outputs that another session measured, too.

    The default model is fitted to the values in ``columns``, in the coordinates of the session of the ``specification``.
    """
    space, outputs = specification.space, specification.outputs
    for kind, names, others in (("axes", space.names, other.space.names), ("outputs", outputs.names, other.outputs.names)):
        if not {*names} & {*others} or (kind == "axes" and {*names} != {*others}):
            same = "the axes" if kind == "axes" else "one of the outputs"
            raise InvalidArgument(f"must have {same} of this session, {', '.join(names)}, got {', '.join(others)}")
    shared = [name for name in outputs.names if name in other.outputs.names]
    values = np.stack([columns[name] for name in shared], axis=1)
    measured = np.isfinite(values).any(axis=1)
    if not measured.any():
        raise InvalidArgument("must be a session that was told some values, got one without any")
    points, numbers = np.unique(space.coordinates({name: columns[name][measured] for name in space.names}), axis=0, return_inverse=True)
    told = [
        (number, {name: value for name, value in zip(shared, row, strict=True) if np.isfinite(value)})
        for number, row in zip(numbers.ravel().tolist(), values[measured].tolist(), strict=True)
    ]
    model, standard = default_model(space.domain, specification.algorithm), specification.first[1]
    best = best_of_fits(outputs, Space(Domain(points=points), axes=(), names=space.names), model, standard, told)
    means = dict[str, PosteriorMean]()
    kernels, noises, locations = (for_each(name, best.model, outputs, best.standard) for name in ("kernel", "noise_variance", "prior_mean"))
    for number, name in enumerate(outputs.names):
        indices, _, seen = standardised(outputs, best.standard, told, [number])
        kept = np.linspace(0, len(seen) - 1, min(len(seen), MAX_FITTED)).astype(int)
        if kept.size:
            at = points[indices[kept]]
            matrix = covariances(kernels[number], at) + max(noises[number], LEAST_NOISE) * np.eye(len(at))
            weights = np.linalg.solve(matrix, seen[kept, 0] - locations[number])
            # Means have 64 points, or twice that and so on, so that few programs are compiled.
            more = (0, max(64, 1 << (len(at) - 1).bit_length()) - len(at))
            means[name] = PosteriorMean(
                kernel=kernels[number], points=np.pad(at, (more, (0, 0)), mode="edge"), weights=np.pad(weights, more)
            )
    return means
