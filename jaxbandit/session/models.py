"""Models of sessions: the default model, standardised units, and fits."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from jaxbandit import domains
from jaxbandit.algorithms import Algorithm, Cei
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Key
from jaxbandit.core.doors import warn
from jaxbandit.core.pytree import replace
from jaxbandit.domains import Box, Domain
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.learner import UNLIKELY
from jaxbandit.kernels import Categorical, Kernel, Matern52, OnAxes, PosteriorMean, Scale
from jaxbandit.rules.estimators import Thompson
from jaxbandit.session.axes import Space
from jaxbandit.session.journal import SessionError
from jaxbandit.session.mistakes import longer
from jaxbandit.session.quantities import RUNS, Outputs, Standard
from jaxbandit.study.runs import Model
from jaxbandit.surrogates import Prior
from jaxbandit.surrogates.evidence.density import LEARNED, LEARNING, NOISE, learned
from jaxbandit.surrogates.evidence.fitting import kept_paths, paths, with_arrays
from jaxbandit.surrogates.evidence.host import best_fit, constants

# Before any fit this share of an axis is its length-scale.
LENGTH = 0.5
# A smaller noise variance of standardised values counts as no noise. Fits of earlier versions find none below 1e-6.
QUIET = 5e-7
# A fit looks at this number of values of an output at most, evenly spaced in their order, because the cost grows with its third power.
MAX_FITTED = 256
DEFAULT_ALGORITHM: Algorithm = Cei(augmented=True)
Values: TypeAlias = Sequence[tuple[int, Mapping[str, float]]]
"""Points by number, with the values there by the names of outputs."""


def default_model(domain: Domain, algorithm: Algorithm) -> Model:
    """Return the default model of standardised outputs for sessions to fit.

    It is Matern-5/2 with a length-scale for each axis, half of the axis before any fit. Its form has the same shapes whatever is fitted:
    with one output nothing is compiled anew, with several once, when the first fit gives each a kernel of its own. An algorithm that draws
    jointly needs another form. On a box it is in float64 from the start, because fits of functions without noise need that.
    """
    is_box = isinstance(domain, Box)
    form = "auto" if is_box else "features" if draws(algorithm) else "rows"
    numeric = tuple(axis for axis in range(domain.dimension) if not domain.is_categorical(axis))
    lengths = (LENGTH * sides_of(domain)[list(numeric)]).tolist()
    parts: list[Kernel] = [OnAxes(kernel=Categorical(), axes=(axis,)) for axis in range(domain.dimension) if axis not in numeric]
    if numeric:
        smooth = Matern52(length_scale=lengths)
        parts.append(OnAxes(kernel=smooth, axes=numeric) if parts else smooth)
    kernel, precision = Scale(kernel=functools.reduce(operator.mul, parts), variance=1.0), "float64" if is_box else "auto"
    return Model(kernel=kernel, noise_variance=1e-4, form=form, precision=precision)


def with_means(model: Model, outputs: Outputs, similar: Sequence[Mapping[str, PosteriorMean]]) -> Model:
    """Return a model with multiples of known means in each output's kernel."""
    kernel = cast(Kernel, model.kernel)
    kernels = [functools.reduce(operator.add, [means[name] for means in similar if name in means], kernel) for name in outputs.names]
    return dataclasses.replace(model, kernel=tuple(kernels)) if similar else model


def draws(algorithm: Algorithm) -> bool:
    """Return whether an algorithm draws jointly from the posterior.

    Models by rows cannot do that.
    """
    parts = jax.tree.leaves(algorithm, is_leaf=lambda part: isinstance(part, Thompson))
    return any(isinstance(part, Thompson) for part in parts)


def spread_out(domain: Domain, key: Key | None, *, halved: bool = False) -> InitialDesign:
    """Return the default initial design: points of a Sobol sequence.

    There are ``2 (d + 1)`` points, at most ten, because on more than four axes a model chooses better points from there on. A model that
    knows similar sessions needs them ``halved``, and three at least. On a grid they are the points nearest to the sequence. On a box the
    last point is within a ten-thousandth of every side of the first, which tells noise from roughness, unless all axes have whole numbers.
    Only a grid needs the ``key``.
    """
    count = min(2 * (domain.dimension + 1), 10)
    count = max(3, count // 2) if halved else count
    if isinstance(domain, Box):
        is_table = all(side.scale == "integers" for side in domain.sides)
        return InitialDesign(random=count, repeated_within=None if is_table else 1e-4)
    assert key is not None
    points = np.asarray(domain.points, np.float64)
    sides, free, chosen = sides_of(domain), np.ones(domain.size, bool), []
    unit = (points - points.min(axis=0)) / sides
    low, high = [0.0] * domain.dimension, [1.0] * domain.dimension
    for target in np.asarray(domains.sobol(low, high, min(count, domain.size), key).points):
        chosen.append(int(np.argmin(np.where(free, np.sum(np.square(unit - target), axis=1), np.inf))))
        free[chosen[-1]] = False
    return InitialDesign(indices=np.asarray(chosen))


def sides_of(domain: Domain) -> np.ndarray:
    """Return the ranges ``[d]`` of the model's points, with 1 for 0."""
    if isinstance(domain, Box):
        return np.ones(domain.dimension)
    sides = np.ptp(np.asarray(domain.points, np.float64), axis=0)
    return np.where(sides > 0, sides, 1.0)


def standard_of(outputs: Outputs, told: Values, before: Standard) -> Standard:
    """Return mean and standard deviation of every output's values.

    An output without values is as ``before``. Equal values have the scale of their distance from the bound, or from 0, because
    there is no better unit. The objective stays bent as it is.
    """
    location, scale, sign = list(before.location), list(before.scale), outputs.objective.sign
    for number, (name, bound) in enumerate(zip(outputs.names, (0.0, *(one.centre for one in outputs.constraints)), strict=True)):
        values = np.asarray([values[name] for _, values in told if name in values], np.float64)
        if name == RUNS:
            continue
        if number == 0:
            values = sign * before.bent(sign * values)
        if values.size:
            centre, spread = float(np.mean(values)), float(np.std(values))
            location[number] = centre
            scale[number] = spread if spread > 1e-9 * abs(centre) else abs(centre - bound) or 1.0
    return dataclasses.replace(before, location=tuple(location), scale=tuple(scale))


def fitted(
    outputs: Outputs, space: Space, model: Model, standard: Standard | None, told: Values, *, shared: bool = False
) -> tuple[Model, Standard]:
    """Return ``model`` fitted to ``told`` in standardised units, and the standard.

    Outputs have kernels and noise variances of their own, or share one, which some algorithms need. The objective is bent where that makes
    the values more likely. See ``Session.fit``.
    """
    best = best_of_fits(outputs, space, model, standard, told, shared=shared)
    if best.ends:
        words = "so far the values do not determine it; look whether they repeat, or do not depend on an axis"
        warn(f"fit: {', '.join(best.ends)} ended at the end of the range that was searched: {words}")
    return best.model, best.standard


def best_of_fits(outputs: Outputs, space: Space, model: Model, standard: Standard | None, told: Values, *, shared: bool = False) -> _Found:
    """Return the fit of :func:`fitted`, without its warning."""
    unknown = Standard(tuple(float(name == RUNS) for name in outputs.names), (1.0,) * len(outputs.names))
    before = dataclasses.replace(standard or unknown, bend=None)
    bend = None if shared else _bend(outputs, told)
    standards = [standard_of(outputs, told, one) for one in (before, *([dataclasses.replace(before, bend=bend)] if bend else []))]
    found = [_fitted(outputs, space, model, standard, one, told, shared=shared) for one in standards]
    return max(found, key=lambda one: one.evidence)


class _Found(NamedTuple):
    """Fitted model, evidence of the objective, and hyper-parameters at a bound."""

    model: Model
    standard: Standard
    evidence: float
    ends: list[str]


def _bend(outputs: Outputs, told: Values) -> tuple[float, float] | None:
    """Return knee and unit of the objective's bend, or ``None``.

    The knee is the median, the unit its distance from the best value. Values are bent only if the worst value lies more than four units
    below the median.
    """
    name, sign = outputs.names[0], outputs.objective.sign
    rewards = sign * np.asarray([values[name] for _, values in told if name in values], np.float64)
    if rewards.size < 2:
        return None
    middle, unit = float(np.median(rewards)), float(np.max(rewards) - np.median(rewards))
    return (middle, unit) if 0 < 4 * unit < middle - np.min(rewards) else None


def _fitted(
    outputs: Outputs, space: Space, model: Model, standard: Standard | None, new: Standard, told: Values, *, shared: bool
) -> _Found:
    """Return ``model`` fitted to ``told``, in terms of the ``new`` standard."""
    points, sides, prior = _points_for_fit(model, outputs, space, told), sides_of(space.domain), prior_of(space)
    _, kernels, noises = (for_each(name, model, outputs, new) for name in ("prior_mean", "kernel", "noise_variance"))
    means, ends, evidence, sign = np.zeros(len(outputs.names)), list[str](), 0.0, outputs.objective.sign
    together = [number for number, name in enumerate(outputs.names) if shared and name != RUNS]
    for group in [together] * shared + [[number] for number in range(len(means)) if number not in together]:
        names = [outputs.names[number] for number in group]
        # Few failures determine no length-scales: a step between them looks like a rough function.
        if names == [RUNS]:
            continue
        indices, values, seen = standardised(outputs, new, told, group)
        if len(seen) > MAX_FITTED:
            kept = np.linspace(0, len(seen) - 1, MAX_FITTED).astype(int)
            indices, values, seen = indices[kept], values[kept], seen[kept]
        # Outputs with equal values keep their hyper-parameters.
        if not np.any(np.ptp(seen, axis=0) if len(seen) else 0):
            continue
        kernel, noise, places = kernels[group[0]], float(noises[group[0]]), points[indices]
        # Without a standard the model was in the outputs' units.
        if standard is None:
            noise = noise / new.scale[group[0]] ** 2
            kernel = Scale(kernel=kernel.kernel, variance=1.0) if isinstance(kernel, Scale) else kernel
        bounds, starts = learned(paths(with_arrays(kernel)), float(np.exp(np.mean(np.log(sides)))))
        found = best_fit(
            kernel, places, seen, noise, prior=prior, bounds=bounds, starts=1, further=starts, constant=LEARNED.mean, errors=False
        )
        kernel, noise = found.kernel, float(found.noise_variance)
        # The evidence is that of the values themselves, whatever they are bent and scaled by.
        if group[0] == 0:
            rewards, log_scale = sign * values[:, 0], float(np.log(new.scale[0]))
            evidence = float(found.log_evidence) + float(np.sum(new.log_slope(rewards))) - len(rewards) * log_scale
        means[group] = constants(kernel, places, seen, noise, prior=prior, constant=LEARNED.mean)
        for number in group:
            kernels[number], noises[number] = kernel, noise
        found_ends = [path for path, at in found.at_bound.items() if np.any(at) and (path != NOISE or noise > QUIET)]
        # A known mean may leave nothing for the rest of the kernel, whose length-scales then do not matter.
        ends += [f"{path.removeprefix('kernel.')} of {', '.join(names)}" for path in found_ends if not kept_paths(kernel)]
    fitted = dataclasses.replace(model, kernel=tuple(kernels), noise_variance=tuple(noises), prior_mean=tuple(means.tolist()))
    return _Found(fitted, new, evidence, ends)


def prior_of(space: Space, prior: Prior = LEARNING) -> Prior:
    """Return a prior of hyper-parameters of standardised outputs in a space."""
    return replace(prior, extent=sides_of(space.domain))


def standardised(outputs: Outputs, standard: Standard, told: Values, group: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices ``[n]``, values and standardised values ``[n, k]`` of outputs."""
    names, sign = [outputs.names[number] for number in group], outputs.objective.sign
    rows = [(index, [values[name] for name in names]) for index, values in told if values.keys() >= {*names}]
    values = np.asarray([values for _, values in rows], np.float64).reshape(-1, len(group))
    counted = [sign * standard.bent(sign * column) if number == 0 else column for number, column in zip(group, values.T, strict=True)]
    seen = (np.stack(counted, axis=1) - np.asarray(standard.location)[group]) / np.asarray(standard.scale)[group]
    return np.asarray([index for index, _ in rows], np.int64), values, seen


def warn_of_constraints_that_held(outputs: Outputs, told: Values) -> None:
    """Warn of constraints without a violation, whose models then guess."""
    measured = {one: [values[one.name] for _, values in told if one.name in values] for one in outputs.constraints}
    held = [str(one) for one, values in measured.items() if values and not np.any(one.violation(np.asarray(values)))]
    if held:
        remedy = "tell a run that broke it, or expect the first ones that do"
        warn(f"fit: {', '.join(held)} held in all that was told, so where it does not is a guess; {remedy}")


def fitted_in_units(outputs: Outputs, space: Space, model: Model, told: Values) -> Model:
    """Return ``model`` fitted in the outputs' units, for sessions of version 1."""
    points, prior = _points_for_fit(model, outputs, space, told), Prior(extent=sides_of(space.domain))
    means, kernels, noises = (for_each(name, model, outputs, None) for name in ("prior_mean", "kernel", "noise_variance"))
    for number, name in enumerate(outputs.names):
        rows = [(index, values[name]) for index, values in told if name in values]
        # An output without values keeps its hyper-parameters.
        if rows:
            places, values = map(np.asarray, zip(*rows, strict=True))
            found = best_fit(kernels[number], points[places], values - means[number], float(noises[number]), prior=prior)
            kernels[number], noises[number] = found.kernel, found.noise_variance
    return dataclasses.replace(model, kernel=tuple(kernels), noise_variance=tuple(map(float, noises)), prior_mean=tuple(map(float, means)))


def _points_for_fit(model: Model, outputs: Outputs, space: Space, told: Values) -> np.ndarray:
    if not told:
        raise SessionError("fit: nothing has been told yet; tell some values first")
    if np.size(model.noise_variance) > len(outputs.names):
        raise SessionError("fit: fits one noise variance for each output, and the model has a table over the points; give it numbers")
    return space.modelled


def for_each(name: str, model: Model, outputs: Outputs, standard: Standard | None) -> list[Any]:
    """Return a model's field for each output, or raise ``InvalidArgument``."""
    value = getattr(model, name)
    if not isinstance(value, list | tuple | np.ndarray) or np.shape(value) == ():
        # A single prior mean is the objective's: a constraint in its own units is as likely to hold as not.
        means = [0.0 if standard else constraint.centre for constraint in outputs.constraints]
        return [value, *(means if name == "prior_mean" else [value] * len(means))]
    if len(value) != len(outputs.names):
        raise InvalidArgument(f"model.{name}: must hold one for each of the {len(outputs.names)} outputs, got {len(value)}")
    return list(value)


def unlikely(outputs: Outputs, space: Space, model: Model, values: Mapping[str, float], index: int) -> dict[str, float]:
    """Return unlikely values' prior deviations by name, under an unstandardised model."""
    fields, away = ("prior_mean", "kernel", "noise_variance"), dict[str, float]()
    for name, value in values.items():
        mean, kernel, noise = (for_each(field, model, outputs, None)[outputs.names.index(name)] for field in fields)
        away[name] = float(abs(value - mean) / np.sqrt(float(kernel.diag(space.modelled[[index]])[0]) + float(np.max(noise))))
    return {name: size for name, size in away.items() if size > UNLIKELY}


def with_runs(outputs: Outputs, first: Model, model: Model, standard: Standard | None, size: int) -> tuple[Model, Standard | None]:
    """Return a model and its standard with one more output.

    The output is whether a run gives values.

    Its kernel is that of the objective in the ``first`` model, with variance 1 and shorter length-scales, because regions where runs fail
    have sharp borders. Its prior mean is 1, and it is neither standardised nor fitted. ``size`` is the number of points.
    """
    means, kernels = (for_each(name, model, outputs, standard) for name in ("prior_mean", "kernel"))
    # The output that says whether runs give values has this noise variance and 0.6 of the objective's length-scales.
    runs_noise = 0.01
    kernel, noise = longer(for_each("kernel", first, outputs, standard)[0], 0.6), np.asarray(model.noise_variance, np.float64)
    if noise.shape == (size,) and size != len(outputs.names):
        # A table over the points belongs to all outputs.
        noise = np.broadcast_to(noise, (len(outputs.names), size))
    noise = np.broadcast_to(noise, (len(outputs.names), *noise.shape[1:]))
    # Outputs of one kernel and noise variance are observed together, and this one is observed alone where a run failed.
    own = np.nextafter(runs_noise, 1) if np.any(noise == runs_noise) else runs_noise
    changed = dataclasses.replace(
        model,
        kernel=(*kernels, Scale(kernel=kernel.kernel, variance=1.0) if isinstance(kernel, Scale) else kernel),
        noise_variance=np.concatenate([noise, np.full_like(noise[:1], own)]).tolist(),
        prior_mean=(*map(float, means), 0.0 if standard else 1.0),
    )
    after = standard and dataclasses.replace(standard, location=(*standard.location, 1.0), scale=(*standard.scale, 1.0))
    return changed, after


def expanded(model: Model, outputs: Outputs, size: int, standard: Standard | None) -> Model:
    """Return the outputs' model as that of modelled functions at points."""

    def rows_of(name: str) -> list[Any]:
        each = dict(zip(outputs.names, for_each(name, model, outputs, standard), strict=True))
        return [each[output] for output, *_ in outputs.functions]

    means = list(map(float, for_each("prior_mean", model, outputs, standard)))
    if standard is not None:
        means = [place + scale * mean for place, scale, mean in zip(standard.location, standard.scale, means, strict=True)]
    inward = np.asarray(list(outputs.inward(dict(zip(outputs.names, means, strict=True))).values()))
    shift, scale = outputs.units(standard)
    changes: dict[str, Any] = {"prior_mean": ((inward - shift) / scale).tolist()}
    if isinstance(model.kernel, list | tuple):
        changes["kernel"] = rows_of("kernel")
    noise = np.shape(model.noise_variance)
    # A table over the points belongs to all outputs.
    if noise and (noise == (len(outputs.names),) or noise != (size,)):
        changes["noise_variance"] = np.asarray(rows_of("noise_variance")).tolist()
    return dataclasses.replace(model, **changes)
