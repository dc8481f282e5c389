"""Seeds, checks and models of algorithms that certify points.

Such an algorithm keeps constraints as long as the model's prior of them is right. So the session keeps the user's model in the outputs'
units or, without one, a model with a cautious prior that is fitted once to the values before round 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.doors import either, warn
from jaxbandit.engine import InitialDesign
from jaxbandit.kernels import Kernel
from jaxbandit.session.axes import ON_GRID
from jaxbandit.session.history import HistoryRow
from jaxbandit.session.journal import SessionError
from jaxbandit.session.models import LENGTH, Values, default_model, sides_of, unlikely
from jaxbandit.session.quantities import Standard
from jaxbandit.session.specification import Specification, seeds_option
from jaxbandit.study.runs import Model
from jaxbandit.surrogates import Prior
from jaxbandit.surrogates.evidence.density import LEARNED, NOISE
from jaxbandit.surrogates.evidence.fitting import paths, with_arrays
from jaxbandit.surrogates.evidence.host import best_fit


def seeded_by(specification: Specification, rows: Sequence[HistoryRow]) -> Specification:
    """Return the specification with seeds from rows whose constraints held."""
    parts, outputs = specification, specification.outputs
    own = [] if parts.algorithm.traits.seeds is None else np.asarray(parts.algorithm.traits.seeds).tolist()
    broken = {row.index for row in rows if outputs.hold(row.values) is False}
    if wrong := sorted(broken & set(own)):
        point = short(parts.space.point(wrong[0]))
        raise InvalidArgument(f"seeds: at {point} a constraint did not hold in the history; leave that seed out")
    held = {row.index for row in rows if outputs.hold(row.values) and row.distance <= ON_GRID} - broken
    seeds = [*dict.fromkeys([*own, *sorted(held)])]
    if rows and not seeds:
        raise InvalidArgument(
            f"history: in no row all constraints were measured to hold, and {type(parts.algorithm).__name__} begins at points that are"
            f" known to be safe; give {seeds_option()}"
        )
    if seeds != own:
        parts = dataclasses.replace(parts, algorithm=parts.algorithm.with_facts(seeds=np.asarray(seeds)))
    measured = {row.index for row in rows if row.is_whole(outputs)}
    if parts.initial is None and measured:
        left = [seed for seed in own if seed not in measured]
        parts = dataclasses.replace(parts, initial=InitialDesign(indices=np.asarray(left)) if left else InitialDesign())
    if parts.model is None and seeds and not parts.design.count and not measured:
        words = "without a model the values at the seeds are those that one is fitted to"
        raise InvalidArgument(f"initial: {words}; leave it out, or give a model whose prior of the constraints you know")
    for row in rows:
        check_prior(parts, row.values, row.index, "history")
    return parts


def check_prior(specification: Specification, values: Mapping[str, float], index: int, what: str) -> None:
    """Raise ``SessionError`` for a constraint's value unlikely under the given prior."""
    outputs, model = specification.outputs, specification.model
    if model is None:
        return
    limited = {name: values[name] for name in outputs.names[1:] if name in values}
    for name, away in unlikely(outputs, specification.space, model, limited, index).items():
        raise SessionError(
            f"{what}: {name} = {values[name]:g} is {away:.3g} prior deviations from the prior mean, so the model would certify what is"
            " not safe; begin a session with one whose prior_mean and variance of the constraints are in their own units"
        )


def fitted_once(specification: Specification, told: Values) -> tuple[Model, Standard]:
    """Return a cautious fitted model and its units, with a warning.

    The prior mean of a constraint is its bound, and its prior deviation is at least the largest measured distance from the bound. Its
    length-scales lie between 0.1 and 0.3 of each axis. Its noise variance is at least 0.01 of its variance.
    """
    parts, outputs, space = specification, specification.outputs, specification.space
    model = default_model(space.domain, parts.algorithm)
    kernel: Any = model.kernel
    start = with_arrays(kernel)
    least_noise = 0.01
    limits: dict[str, Any] = {"variance": (1.0, 1e3), NOISE: (least_noise, LEARNED.noises[1])}
    for path, length in _lengths(start).items():
        limits[path] = 0.1 / LENGTH * length, 0.3 / LENGTH * length
    location, scale, kernels, noises = [], [], list[Kernel](), list[float]()
    for number, name in enumerate(outputs.names):
        rows = [(index, values[name]) for index, values in told if name in values]
        places, values = space.modelled[[index for index, _ in rows]], np.asarray([value for _, value in rows], np.float64)
        spread = float(np.std(values))
        if number:
            sides = np.asarray([sign * values - bound for sign, bound in outputs.constraints[number - 1].sides])
            centre, size = outputs.constraints[number - 1].centre, max(spread, float(np.max(np.abs(sides))))
        else:
            centre = float(np.mean(values))
            size = spread if spread > 1e-9 * abs(centre) else abs(centre)
        location.append(centre)
        scale.append(size or 1.0)
        seen = (values - centre) / scale[-1]
        found = best_fit(start, places, seen, least_noise, prior=Prior(extent=sides_of(space.domain), scale=1.0), bounds=limits)
        kernels.append(found.kernel)
        noises.append(float(found.noise_variance))
    if outputs.constraints:
        warn(f"fit: {_assumptions(parts, kernels, scale, told)}")
    fitted = dataclasses.replace(model, kernel=tuple(kernels), noise_variance=tuple(noises), prior_mean=(0.0,) * len(kernels))
    return fitted, Standard(tuple(location), tuple(scale))


def _lengths(kernel: Kernel) -> dict[str, np.ndarray]:
    """Return the length-scales of a kernel by their paths."""
    named = zip(paths(kernel), jax.tree.leaves(kernel), strict=True)
    return {path: np.asarray(leaf) for path, leaf in named if path.endswith("length_scale")}


def _assumptions(parts: Specification, kernels: Sequence[Kernel], scale: Sequence[float], told: Values) -> str:
    """Return the model's assumptions about the constraints in words."""
    assumed = []
    for number, one in enumerate(parts.outputs.constraints, start=1):
        kernel: Any = kernels[number]
        lengths = "; ".join(short(np.round(own, 3).tolist()) for own in _lengths(kernel).values())
        deviation = scale[number] * float(kernel.variance) ** 0.5
        where = "its bound" if len(one.sides) == 1 else "between its bounds"
        words = f"deviation {deviation:.3g} and length-scales {lengths} of the axes"
        assumed.append(f"{one.name} has mean {one.centre:g}, {where}, {words}")
    name, count = type(parts.algorithm).__name__, len(told)
    words = f"constraints hold as far as this prior does, fitted once, to {count} point{'s' if count > 1 else ''}: {', '.join(assumed)}"
    return f"{name} promises that {words}; {either('give model=', 'add a table [model]')} where you know better"
