"""Logarithms of hyper-parameters, and descent on a smoothed loss.

A descent alone can end worse than it began: a few trials that get stuck dominate a loss, and few gradients see them. So the start is
screened and the end is validated.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.checks import Interval, InvalidArgument, check_known, short
from jaxbandit.core.declare import Array, KeyOrSeed, Scalar, checked, parameters
from jaxbandit.core.fields import Words, between, positive, whole
from jaxbandit.core.fields import text as text_check
from jaxbandit.core.pytree import float_dtype, replace, set_field
from jaxbandit.gradients.smoothed import Params, SmoothedLoss, SubjectTo
from jaxbandit.numerics.intervals import NORMAL_95
from jaxbandit.results.search import Candidate, Tuned
from jaxbandit.surrogates import RangedSurrogate, Surrogate

# The path of a field of the model begins so, as in study files.
MODEL = "model."
Count: TypeAlias = Annotated[int, whole(1, 1_000_000)]


class Purpose(enum.IntEnum):
    """Purposes of random numbers in a descent, with a stream each."""

    SCREEN, STEP, VALIDATE, CONFIRM = range(4)


# Identity compares and hashes this static argument of programs.
@dataclasses.dataclass(frozen=True, eq=False)
class Logarithms:
    """Function from logarithms of hyper-parameters to an algorithm and a model."""

    algorithm: Algorithm
    model: Surrogate

    def __call__(self, params: Mapping[str, Array]) -> tuple[Algorithm, Surrogate]:
        """Return the algorithm and the model with these logarithms, by path."""
        built: Any = {"algorithm": self.algorithm, "model": self.model}
        for path, logarithm in params.items():
            built = set_field(built, _whole(path), jnp.exp(logarithm), f"paths.{path}")
        return built["algorithm"], built["model"]

    def limits(self, params: Mapping[str, Array]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return each field's least and largest logarithm, infinite without a limit."""
        low, high = {}, {}
        # Rounding a logarithm to float32 could cross the end of a range: keep this far away from it.
        margin = 1e-6
        for path, value in params.items():
            item: Any = self.model if path.startswith(MODEL) else self.algorithm
            *way, name = path.removeprefix(MODEL).split(".")
            for step in way:
                item = getattr(item, step)
            if isinstance(item, RangedSurrogate) and name == "length_scale":
                # A shared length-scale stays in the ranges of all axes.
                least, largest = (item.low, item.high) if np.ndim(value) else (max(item.low), min(item.high))
            else:
                check = next(parameter.check for parameter in parameters(type(item)) if parameter.name == name)
                least, largest = (check.interval or Interval()).low, (check.interval or Interval()).high
            # Without a least number the logarithm is -inf.
            with np.errstate(divide="ignore"):
                low[path] = np.broadcast_to(np.log(np.maximum(least, 0)) + margin, np.shape(value))
            high[path] = np.broadcast_to(np.log(largest) - margin, np.shape(value))
        return low, high


@checked
def logarithms(
    algorithm: Algorithm, model: Annotated[Surrogate, Words("a model, jaxbandit.surrogate(...)")], *paths: str
) -> tuple[dict[str, Array], Logarithms]:
    """Return logarithms of hyper-parameters, and the function that builds from them.

    Args:
      algorithm: the algorithm; parameters start at its values.
      model: the GP model.
      *paths: dotted paths of fields, as for :func:`~jaxbandit.sweep`; a path that begins with ``"model."`` names a field of the model, such
        as ``"model.noise_variance"``, or ``"model.length_scale"`` of a model of :func:`~jaxbandit.ranged`.

    Returns:
      The logarithms of the fields by path, and ``build`` of :class:`SmoothedLoss`. A logarithm has the shape of its field: ``[]`` for one
      number, ``[m]`` for a number per constraint, and ``[G]`` for the noise variance of a model, a number per group of outputs that share
      kernel and noise variance. :func:`descend` stays in the range of a field, such as a probability or the length-scale of a ranged model.

    Raises:
      InvalidArgument: without a path, or on a path of an unknown field, a static field, or a field without positive numbers.
    """
    if not paths:
        raise InvalidArgument('paths: give at least one field, such as "estimator.reward_width"')
    for number, path in enumerate(paths):
        text_check(f"paths[{number}]", path)
        if path in paths[:number]:
            raise InvalidArgument(f"paths: must name different fields, got {path!r} twice")
    params = {path: jnp.log(jnp.asarray(_positive(algorithm, model, path), float_dtype())) for path in paths}
    return params, Logarithms(algorithm, model)


def _whole(path: str) -> str:
    return path if path.startswith(MODEL) else f"algorithm.{path}"


def _positive(algorithm: Algorithm, model: Surrogate, path: str) -> np.ndarray:
    """Return the positive numbers in the field at ``path``."""
    item: Any = model if path.startswith(MODEL) else algorithm
    for name in path.removeprefix(MODEL).split("."):
        names = [f.name for f in dataclasses.fields(item)] if dataclasses.is_dataclass(item) else []
        check_known(name, names, f"paths.{path}", f"{type(item).__name__} has")
        item = getattr(item, name)
    # This raises an error on static fields.
    set_field({"algorithm": algorithm, "model": model}, _whole(path), item, f"paths.{path}")
    is_leaf = jax.tree.leaves(item) and jax.tree.leaves(item)[0] is item
    values = np.asarray(item if is_leaf else np.nan, np.float64)
    if not (np.all(np.isfinite(values)) and np.all(values > 0)):
        raise InvalidArgument(f"paths.{path}: expected positive numbers, whose logarithms exist, got {short(item)}")
    return values


@checked
def descend(
    loss: SmoothedLoss,
    params: Params,
    key: KeyOrSeed,
    *,
    optimizer: Annotated[optax.GradientTransformation, Words("an optimiser of optax, such as optax.adam(0.1)")] | None = None,
    steps: Count = 40,
    screen: Count = 16,
    reach: Annotated[float, between(0, float("inf"), open_high=True, host=True)] = float(np.log(10)),
    validate: Annotated[int, whole(2, 1_000_000)] = 256,
    every: Count = 5,
    dual_step: Annotated[float, positive] | None = None,
) -> Tuned[Params]:
    """Return parameters with a smaller loss, found by a validated descent.

    They are never worse than ``params`` beyond the interval of the validation.

    1. Screening: ``screen`` points, ``params`` and others drawn uniformly within ``reach`` of them, are compared on common trials.
    2. Descent: ``steps`` steps of ``optimizer`` from the best of these, each on fresh trials.
    3. Validation: the start, the screened point, every ``every``-th iterate and the mean of the last quarter are compared on ``validate``
       common fresh trials. The best replaces the start only if on as many further trials it is better by more than the half-width
       of the 95% interval of the paired difference.

    All trials run in one compiled program. Parameters from :func:`logarithms` stay in the ranges of their fields: points are projected into
    the ranges, less ``loss.step`` on every side, so that only trials of the start may run outside.

    With ``dual_step`` a loss :class:`SubjectTo` a budget is a constrained problem: after each step its multiplier moves by ``dual_step``
    times the violation's excess over the budget, and stays at least 0 (Arrow, Hurwicz and Uzawa 1958, dual ascent). The best candidate
    has the least objective of the candidates within the budget, or the least violation if no candidate is within. It replaces a start
    within the budget if it is better by more than the half-width and still within the budget on the further trials, and a start beyond
    the budget if its violation is less by more than the half-width.

    Args:
      loss: the smoothed loss.
      params: the start, a pytree of floating-point numbers.
      key: PRNG key.
      optimizer: an optimizer of optax; default Adam with a cosine decay from 0.1, ``b1 = 0.8`` and ``b2 = 0.95``.
      steps: number of steps; each takes ``2 loss.pairs`` trials.
      screen: number of screened points. 1, the start alone, is best for a good start and many parameters, because the distance of random
        points grows with the number of parameters.
      reach: half-width of the box that is screened, in units of the parameters.
      validate: trials of the validation, and of the confirmation.
      every: steps between two iterates that are validated.
      dual_step: step, > 0, of the multiplier's ascent; default ``None``, for a constant multiplier.

    Returns:
      The best parameters, all candidates, the improvement over the start with its interval, and the history of the descent. With
      ``dual_step`` losses and improvement are those of the objective, and the history has ``violation`` and ``multiplier``, too.

    Raises:
      InvalidArgument: on numbers out of range, parameters without a valid study, a start with failed trials, or ranges too narrow for
        ``loss.step`` on both sides.
    """
    subject = loss.measure if isinstance(loss.measure, SubjectTo) else None
    if dual_step is not None and subject is None:
        raise InvalidArgument(
            f"dual_step: moves the multiplier of a loss with measure=SubjectTo(...), which this one is not, got {dual_step}; leave it out"
        )
    loss._check(params)
    like = jax.tree.map(lambda leaf: jnp.asarray(leaf, float_dtype()), params)
    flat = _flat(like)
    low, high = np.full(flat.shape, -np.inf), np.full(flat.shape, np.inf)
    if isinstance(loss.build, Logarithms):
        low, high = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(end)]) for end in loss.build.limits(params))
    if not np.all(high - low > 2 * loss.step):
        raise InvalidArgument(
            f"params: their ranges must leave room for the steps of the loss to both sides, 2 x {loss.step:g}, got a width of"
            f" {float(np.min(high - low)):.3g}; use a wider range or a SmoothedLoss with a smaller step"
        )
    low, high = (low + loss.step).astype(flat.dtype), (high - loss.step).astype(flat.dtype)

    def inside(points: np.ndarray) -> np.ndarray:
        return np.clip(points, low, high)

    # Compile the program of the gradient, which measures all losses below.
    loss.estimate(_rebuilt(like, inside(flat)), key)
    budget = None if dual_step is None or subject is None else float(subject.budget)
    measured = loss.measured

    def compared(points: np.ndarray, trials: int, purpose: Purpose) -> np.ndarray:
        """Return losses ``[C, trials]`` of ``points [C, d]``, infinite after failures.

        With a budget they are objectives and violations ``[C, trials, 2]``.
        """
        count, room, purpose_key = len(points) * trials, 2 * loss.pairs, jax.random.fold_in(key, purpose)
        # The first trials fill the rest of the last batch.
        places = np.arange(-(-count // room) * room) % count
        parts = []
        for at in range(0, count, room):
            owners, numbers = np.divmod(places[at : at + room], trials)
            batch = _rebuilt(like, points[owners])
            combined, apart, _, healthy = measured(batch, numbers.astype(np.int32), purpose_key)
            usable = np.asarray(healthy) & np.isfinite(combined)
            losses = np.asarray(combined if budget is None else apart, np.float64)
            parts.append(np.where(usable if budget is None else usable[:, None], losses, np.inf))
        together = np.concatenate(parts)[:count]
        return together.reshape(len(points), trials, *together.shape[1:])

    away = jax.random.uniform(jax.random.fold_in(key, Purpose.SCREEN), (screen - 1, flat.shape[0]), flat.dtype, -reach, reach)
    screened = np.concatenate([flat[None], inside(flat[None] + np.asarray(away))])
    begin = inside(screened[_best_step(compared(screened, max(loss.pairs // 2, 2), Purpose.SCREEN), budget)])

    adam = _adam(steps) if optimizer is None else optimizer
    state, update, rows, point = adam.init(begin), jax.jit(adam.update), [], begin
    for step in range(steps):
        estimate = loss.estimate(_rebuilt(like, point), jax.random.fold_in(jax.random.fold_in(key, Purpose.STEP), step))
        # Schedules of optax divide whole numbers.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = update(_flat(estimate.gradient), state, point)
        error = np.sqrt(np.mean(np.square(_flat(estimate.standard_error))))
        row: dict[str, Scalar] = {"value": estimate.value, "standard_error": error * loss.step}
        row |= {"unchanged": estimate.unchanged, "failed": estimate.failed}
        if dual_step is not None and subject is not None and estimate.violation is not None:
            row |= {"violation": estimate.violation, "multiplier": subject.multiplier}
            after = max(0.0, float(subject.multiplier) + dual_step * (float(estimate.violation) - float(subject.budget)))
            subject = replace(subject, multiplier=after)
            # The new loss runs the same program.
            loss = dataclasses.replace(loss, measure=subject)
        rows.append(jax.tree.map(np.asarray, row | {"params": point}))
        point = inside(point + np.asarray(updates, flat.dtype))
    history = {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    visited = np.concatenate([history["params"], point[None]])
    named = {"start": flat, "screened": begin}
    named |= {f"step {number}": visited[number] for number in range(every, steps + 1, every)}
    named["mean of the last steps"] = visited[-max(1, steps // 4) :].mean(axis=0)
    validated = compared(np.stack(list(named.values())), validate, Purpose.VALIDATE)
    losses = validated if budget is None else validated[..., 0]
    candidates = tuple(
        Candidate(_rebuilt(like, point), float(mean), _error(each), name)
        for (name, point), each, mean in zip(named.items(), losses, np.mean(losses, axis=1), strict=True)
    )
    best = _best_step(validated, budget)
    pair = compared(np.stack([flat, list(named.values())[best]]), validate, Purpose.CONFIRM)
    start_within, best_within = (budget is None or float(np.mean(losses[:, 1])) <= budget for losses in pair)
    better, half = _paired(pair if budget is None else pair[..., 0 if start_within else 1])
    # A comparison with NaN is false, so that the start stays there, too.
    if best == 0 or not better > half or (start_within and not best_within):
        params, better, half = _rebuilt(like, flat), 0.0, 0.0
    else:
        params, (better, half) = candidates[best].values, _paired(pair if budget is None else pair[..., 0])
    found = jax.tree.map(jnp.exp, params) if isinstance(loss.build, Logarithms) else params
    return Tuned(found, candidates, better, (better - half, better + half), history, params, *loss.build(params))


@functools.cache
def _adam(steps: int) -> optax.GradientTransformation:
    """Return the default optimizer, one object for descents of equal length."""
    return optax.adam(optax.cosine_decay_schedule(0.1, steps, 0.1), b1=0.8, b2=0.95)


def _flat(params: Params) -> np.ndarray:
    """Return parameters as one vector ``[d]`` on the host, without compiling."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def _rebuilt(like: Params, points: np.ndarray) -> Params:
    """Return parameters like ``like`` from ``points [..., d]``, with their leading axes."""
    leaves = jax.tree.leaves(like)
    parts = np.split(points, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=-1)
    shaped = [jnp.asarray(part.reshape(points.shape[:-1] + leaf.shape)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), shaped)


def _best_step(losses: np.ndarray, budget: float | None) -> int:
    """Return the number of the best of ``losses [C, trials]``."""
    means = np.mean(losses, axis=1)
    if budget is None:
        return int(np.argmin(means))
    within = means[:, 1] <= budget
    return int(np.argmin(np.where(within, means[:, 0], np.inf) if within.any() else means[:, 1]))


def _error(losses: np.ndarray) -> float:
    """Return the standard error of ``losses [trials]``, NaN if one is infinite."""
    return float(np.std(losses, ddof=1) / np.sqrt(len(losses))) if np.all(np.isfinite(losses)) else float("nan")


def _paired(losses: np.ndarray) -> tuple[float, float]:
    """Return mean and half-width of ``losses[0] - losses[1]``, NaN after failures."""
    if not np.all(np.isfinite(losses)):
        return float("nan"), float("nan")
    difference = losses[0] - losses[1]
    return float(np.mean(difference)), NORMAL_95 * _error(difference)
