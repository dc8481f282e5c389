"""Fitting of a session's model to all that has been told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxbandit.core.codec import from_plain, to_plain
from jaxbandit.kernels import Kernel
from jaxbandit.session.journal import SessionError
from jaxbandit.session.specification import Specification, prior_means
from jaxbandit.session.tickets import Record
from jaxbandit.study.model import Model
from jaxbandit.surrogates import Prior, fit


def fitted_model(specification: Specification, model: Model, records: Mapping[int, Record]) -> Model:
    """Return the model with the kernel and the noise variance of greatest posterior density for each output.

    The search starts at ``model``. Outputs of which nothing has been told keep what they have.

    Raises:
      SessionError: when nothing has been told of any output, and where the noise variance of the model differs between points.
    """
    outputs, points = specification.outputs, np.asarray(specification.space.domain.points, np.float64)
    if not any(record.values for record in records.values()):
        raise SessionError("fit: nothing has been told yet; tell some values first")
    if np.size(model.noise_variance) > len(outputs.names):
        raise SessionError("fit: fits one noise variance for each output, and the model has a table over the points; give it numbers")
    prior = Prior(extent=np.ptp(points, axis=0) + (np.ptp(points, axis=0) == 0))
    means, kernels, noises = prior_means(model, outputs), [], []
    for number, name in enumerate(outputs.names):
        kernel = from_plain(Kernel, _of(model.kernel, number), "model.kernel")
        noise = float(_of(model.noise_variance, number))
        told = [(record.index, record.values[name]) for record in records.values() if name in record.values]
        if told:
            places, values = (np.asarray(column) for column in zip(*told, strict=True))
            found = fit(kernel, points[places], values - means[number], noise, prior=prior)
            kernel, noise = found.kernel, float(found.noise_variance)
        kernels.append(to_plain(kernel, "model.kernel"))
        noises.append(noise)
    return dataclasses.replace(model, kernel=tuple(kernels), noise_variance=tuple(noises), prior_mean=tuple(means))


def _of(value: Any, number: int) -> Any:
    """Return an output's own entry of a list, or what all outputs share."""
    return value[number] if isinstance(value, list | tuple | np.ndarray) and np.shape(value) != () else value
