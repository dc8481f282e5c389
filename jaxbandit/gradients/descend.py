"""Descent on a smoothed loss, guarded at both ends: screening of where to start, validation of where to stop.

A descent alone can end worse than it began: a few trials that get stuck dominate a loss, and few gradients see them. So the start is the
best of several screened points, iterates are compared on trials that no step has used, and the winner has to beat the start on others.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import checked
from jaxbandit.core.executors import EXECUTOR, AnyExecutor, map_tasks
from jaxbandit.core.fields import Words, between, of_class, positive, text, whole
from jaxbandit.core.files import reason_of, write_whole
from jaxbandit.core.intervals import NORMAL_95
from jaxbandit.core.pytree import float_dtype, replace
from jaxbandit.core.tuned import Candidate, Tuned
from jaxbandit.core.types import Array, Key
from jaxbandit.gradients.losses import SubjectTo
from jaxbandit.gradients.parameters import Logarithms
from jaxbandit.gradients.smoothed import SmoothedLoss

MAX_COUNT = 1_000_000  # of steps, of points and of trials in a descent
SCREEN, STEP, VALIDATE, CONFIRM = range(4)  # purposes of random numbers: none is used for two


class _Progress(NamedTuple):
    """State of a descent after some steps."""

    params: Array  # [d]
    optimizer: Any
    history: dict[str, np.ndarray]  # [steps so far, ...]


@checked
def descend(
    loss: SmoothedLoss,
    params: Any,
    key: Key,
    *,
    optimizer: Annotated[optax.GradientTransformation, Words("an optimiser of optax, such as optax.adam(0.1)")] | None = None,
    steps: Annotated[int, whole(1, MAX_COUNT)] = 40,
    screen: Annotated[int, whole(1, MAX_COUNT)] = 16,
    reach: Annotated[float, between(0, float("inf"), open_high=True, host=True)] = float(np.log(10)),
    validate: Annotated[int, whole(2, MAX_COUNT)] = 256,
    every: Annotated[int, whole(1, MAX_COUNT)] = 5,
    dual_step: Annotated[float, positive] | None = None,
    limits: tuple[Any, Any] | None = None,
    file: Annotated[str | Path, text | of_class(Path, "a path")] | None = None,
    executor: Annotated[AnyExecutor, EXECUTOR] | None = None,
) -> Tuned[Any]:
    """Return parameters with a smaller loss, never worse than ``params`` beyond the interval of the validation.

    1. Screening: ``screen`` points, ``params`` and others drawn uniformly within ``reach`` of them, are compared on common trials.
    2. Descent: ``steps`` steps of ``optimizer`` from the best of these, each on fresh trials.
    3. Validation: the start, the screened point, every ``every``-th iterate and the mean of the last quarter are compared on ``validate``
       common fresh trials. The best replaces the start only if on as many further trials it is better by more than the half-width
       of the 95% interval of the paired difference.

    All of it runs one compiled program.

    With ``dual_step`` a loss :class:`SubjectTo` a budget is a constrained problem: after each step its multiplier moves by ``dual_step``
    times what the violation exceeds the budget, and stays at least 0 (Arrow, Hurwicz and Uzawa 1958, dual ascent). The best candidate is
    then the one with the least objective among those within the budget, or with the least violation where none is. It replaces a start
    within the budget if it is better by more than that half-width and still within the budget on the further trials, and a start that
    is not if its violation is less by more than that.

    Args:
      loss: the smoothed loss.
      params: where to start, a pytree of floating-point numbers.
      key: PRNG key.
      optimizer: of optax; default Adam with a cosine decay from 0.1, ``b1 = 0.8`` and ``b2 = 0.95``.
      steps: number of steps; each takes ``2 loss.pairs`` trials.
      screen: number of screened points; 1 for none but the start, which is best where there are many parameters and the start is not bad:
        points at random lie the farther away the more parameters there are.
      reach: half-width of the box that is screened, in units of the parameters.
      validate: trials of the validation, and of the confirmation.
      every: steps between two iterates that are validated.
      dual_step: step, > 0, of the multiplier's ascent; default none, for a multiplier that stays as it is.
      limits: least and largest values of the parameters, each a pytree like ``params``, infinite where there is none. Points are projected
        into this box, less ``loss.step`` on every side, so that only trials of the start are played outside. Default: the
        ranges of the fields that :func:`logarithms` has made the parameters of, and none for a ``build`` of your own.
      file: NumPy file that the descent is kept in, and goes on from if it is there; default nowhere.
      executor: workers that play the trials of screening, validation and confirmation, as for :func:`~jaxbandit.study.run_study`; steps
        are taken here, one after the other. Default none, for this process.

    Returns:
      The best parameters, all candidates, the improvement over the start with its interval, and the history of the descent. With
      ``dual_step`` losses and improvement are those of the objective, and the history has ``violation`` and ``multiplier``, too.

    Raises:
      InvalidArgument: on numbers out of range, parameters that make no study, a start whose trials fail, limits that leave no room for
        ``loss.step`` on both sides, or a file of another descent.
      CannotWrite: when the file cannot be written.
      TaskFailed: when trials have failed on workers again and again.
    """
    if dual_step is not None and not isinstance(loss.measure, SubjectTo):
        raise InvalidArgument(
            f"dual_step: moves the multiplier of a loss with measure=SubjectTo(...), which this one is not, got {dual_step}; leave it out"
        )
    if file is not None:
        _check_place(Path(file))
    loss._check(params)
    flat, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float_dtype()), params))
    box = _box(loss, params, limits)
    loss.estimate(rebuild(box.nearest(flat)), key)  # compiles
    compared = _Compared(loss, params, key, dual_step is not None, executor)
    budget = float(loss.measure.budget) if dual_step is not None and isinstance(loss.measure, SubjectTo) else None

    away = jax.random.uniform(jax.random.fold_in(key, SCREEN), (screen - 1, flat.shape[0]), flat.dtype, -reach, reach)
    screened = jnp.concatenate([flat[None], box.nearest(flat[None] + away)])
    begin = box.nearest(screened[_best(compared(screened, max(loss.pairs // 2, 2), SCREEN), budget)])

    chosen = optax.adam(optax.cosine_decay_schedule(0.1, steps, 0.1), b1=0.8, b2=0.95) if optimizer is None else optimizer
    identity = json.dumps(
        [np.asarray(flat).tolist(), np.asarray(jax.random.key_data(key)).tolist(), loss.horizon, loss.pairs, loss.step, dual_step]
        + [end.tolist() for end in box]
    )
    path = None if file is None else Path(file)
    after = _descended(loss, rebuild, box, begin, key, chosen, steps, every, dual_step, path, identity)

    visited = np.concatenate([after.history["params"], np.asarray(after.params)[None]])
    named = {"start": np.asarray(flat), "screened": np.asarray(begin)}
    named |= {f"step {number}": visited[number] for number in range(every, steps + 1, every)}
    named["mean of the last steps"] = visited[-max(1, steps // 4) :].mean(axis=0)
    validated = compared(jnp.asarray(np.stack(list(named.values()))), validate, VALIDATE)
    losses = validated if budget is None else validated[..., 0]
    candidates = tuple(
        Candidate(rebuild(jnp.asarray(point)), float(mean), _error(own), found)
        for (found, point), own, mean in zip(named.items(), losses, np.mean(losses, axis=1), strict=True)
    )
    best = _best(validated, budget)
    pair = compared(jnp.asarray(np.stack([named["start"], list(named.values())[best]])), validate, CONFIRM)
    if best == 0 or not _replaces(pair, budget):
        return Tuned(rebuild(flat), candidates, 0.0, (0.0, 0.0), after.history)
    better, half = _paired(pair if budget is None else pair[..., 0])
    return Tuned(candidates[best].values, candidates, better, (better - half, better + half), after.history)


class _Box(NamedTuple):
    """Least and largest values ``[d]`` of the parameters."""

    low: np.ndarray
    high: np.ndarray

    def nearest(self, points: Array) -> Array:
        """Return the points of the box that are nearest to ``points [..., d]``."""
        return jnp.asarray(np.clip(points, *(end.astype(points.dtype) for end in self)))


def _box(loss: SmoothedLoss, params: Any, limits: tuple[Any, Any] | None) -> _Box:
    """Return the box that a descent keeps to, a step of the smoothing inside the limits."""
    if limits is None and isinstance(loss.build, Logarithms):
        limits = loss.build.limits(params)
    if limits is None:
        limits = jax.tree.map(lambda leaf: -np.inf, params), jax.tree.map(lambda leaf: np.inf, params)
    wrong = InvalidArgument(f"limits: expected two pytrees of numbers like params, the least and the largest values, got {short(limits)}")
    structure: Any = jax.tree.structure(params)
    if not isinstance(limits, tuple) or len(limits) != 2 or any(jax.tree.structure(end) != structure for end in limits):
        raise wrong
    try:
        low, high = (
            np.concatenate(
                [np.ravel(np.broadcast_to(np.asarray(end, np.float64), np.shape(leaf))) for end, leaf in zip(*pair, strict=True)]
            )
            for pair in ((jax.tree.leaves(end), jax.tree.leaves(params)) for end in limits)
        )
    except (TypeError, ValueError):  # no numbers, or of another shape
        raise wrong from None
    if not np.all(high - low > 2 * loss.step):
        raise InvalidArgument(
            f"limits: must leave room for the steps of the loss to both sides, 2 x {loss.step:g}, got a width of"
            f" {float(np.min(high - low)):.3g}; use a wider range or a SmoothedLoss with a smaller step"
        )
    return _Box(low + loss.step, high - loss.step)


class _Compared:
    """Losses of points on common trials, by the program of the gradient: as many trials at a time as it has."""

    def __init__(self, loss: SmoothedLoss, params: Any, key: Key, apart: bool, executor: AnyExecutor | None) -> None:
        self.loss, self.params, self.key, self.apart, self.executor = loss, params, key, apart, executor

    def __call__(self, points: Array, trials: int, purpose: int) -> np.ndarray:
        """Return losses ``[C, trials]`` of ``points [C, d]``, or both parts ``[C, trials, 2]``; infinite where a trial failed."""
        count, room = len(points) * trials, 2 * self.loss.pairs
        missing = -count % room
        owners = np.concatenate([np.repeat(np.arange(len(points)), trials), np.zeros(missing, int)])
        numbers = np.concatenate([np.tile(np.arange(trials), len(points)), np.zeros(missing, int)]).astype(np.int32)
        tasks = [(np.asarray(points)[owners[i : i + room]], numbers[i : i + room]) for i in range(0, count, room)]
        key = np.asarray(jax.random.key_data(jax.random.fold_in(self.key, purpose)))
        work = _Losses(self.loss, self.params, key, str(jax.random.key_impl(self.key)), self.apart)
        together = np.concatenate(map_tasks(self.executor, work, tasks))[:count]
        return together.reshape(len(points), trials, *together.shape[1:])


@dataclasses.dataclass(frozen=True)
class _Losses:
    """Work of a process: play trials at points given as flat parameters."""

    loss: SmoothedLoss
    params: Any
    key: np.ndarray
    kind: str  # of the key
    apart: bool

    @functools.cached_property
    def rebuild(self) -> Callable[[np.ndarray], Any]:
        """Function from points ``[n, d]`` to parameters."""
        return jax.jit(jax.vmap(ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float_dtype()), self.params))[1]))

    def __call__(self, task: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return the losses of trials by their points and numbers, infinite where one failed."""
        points, numbers = task
        key = jax.random.wrap_key_data(jnp.asarray(self.key), impl=self.kind)
        measured, _, healthy = self.loss.measured(self.rebuild(points), jnp.asarray(numbers), key)
        losses = np.asarray(measured if self.apart else self.loss.combined(measured), np.float64)
        usable = np.asarray(healthy) & np.isfinite(self.loss.combined(measured))
        return np.where(usable[:, None] if self.apart else usable, losses, np.inf)


def _descended(
    loss: SmoothedLoss,
    rebuild: Any,
    box: _Box,
    begin: Array,
    key: Key,
    optimizer: optax.GradientTransformation,
    steps: int,
    every: int,
    dual_step: float | None,
    file: Path | None,
    identity: str,
) -> _Progress:
    """Take the steps of the descent, and of the multiplier where it moves, from where the ``file`` left them."""
    now = _Progress(begin, optimizer.init(begin), {})
    if file is not None and file.exists():
        now = _restored(now, file, identity)
    done = len(now.history.get("value", ()))
    if done and dual_step is not None and isinstance(loss.measure, SubjectTo):
        last = now.history["multiplier"][-1] + dual_step * (now.history["violation"][-1] - float(loss.measure.budget))
        loss = _with_multiplier(loss, max(0.0, float(last)))
    update = jax.jit(optimizer.update)
    for step in range(done, steps):
        found = loss.estimate(rebuild(now.params), jax.random.fold_in(jax.random.fold_in(key, STEP), step))
        with jax.numpy_dtype_promotion("standard"):  # schedules of optax divide whole numbers
            updates, state = update(ravel_pytree(found.gradient)[0], now.optimizer, now.params)
        error = jnp.sqrt(jnp.mean(jnp.square(ravel_pytree(found.standard_error)[0])))
        row: dict[str, Any] = {
            "value": found.value,
            "standard_error": error * loss.step,
            "unchanged": found.unchanged,
            "failed": found.failed,
        }
        if dual_step is not None and isinstance(loss.measure, SubjectTo) and found.violation is not None:
            row |= {"violation": found.violation, "multiplier": loss.measure.multiplier}
            after = max(0.0, float(loss.measure.multiplier) + dual_step * (float(found.violation) - float(loss.measure.budget)))
            loss = _with_multiplier(loss, after)
        history = {
            name: np.concatenate([now.history[name], [np.asarray(value)]]) if now.history else np.asarray(value)[None]
            for name, value in (row | {"params": now.params}).items()
        }
        now = _Progress(box.nearest(optax.apply_updates(now.params, updates)), state, history)
        if file is not None and ((step + 1) % every == 0 or step + 1 == steps):
            _save(now, file, identity)
    return now


def _check_place(file: Path) -> None:
    """Raise ``InvalidArgument`` where no file can be: in no directory, or in place of a directory or a device."""
    try:
        possible = "\0" not in str(file) and file.parent.is_dir() and (file.is_file() or not file.exists())
    except OSError:  # a name that is too long
        possible = False
    if not possible:
        raise InvalidArgument(f"file: must be a file in a directory that is there, got {str(file)!r}")


def _save(now: _Progress, file: Path, identity: str) -> None:
    """Write the state; the file is the old one or the whole new one, whatever happens. Raises ``CannotWrite``."""
    leaves = {f"leaf {number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves((now.params, now.optimizer)))}
    history = {f"history {name}": values for name, values in now.history.items()}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as held:
            np.savez(held, **leaves, **history, identity=np.asarray(identity))  # type: ignore[arg-type]

    write_whole(file, write)


def _restored(like: _Progress, file: Path, identity: str) -> _Progress:
    """Return the state that a file holds; raise ``InvalidArgument`` when it is of another descent, or damaged."""
    try:
        with np.load(file, allow_pickle=False) as held:
            kept = {name: held[name] for name in held.files}
        leaves, structure = jax.tree.flatten((like.params, like.optimizer))
        restored = [jnp.asarray(kept[f"leaf {number}"], leaf.dtype) for number, leaf in enumerate(leaves)]
        same = str(kept["identity"]) == identity
    except Exception as error:  # what the readers of a damaged file raise is not documented
        raise InvalidArgument(f"file: {file} holds no descent that can be read ({reason_of(error)}); remove it to begin anew") from error
    if not same:
        raise InvalidArgument(f"file: {file} holds a descent from other parameters, key or loss; name another file")
    params, optimizer = jax.tree.unflatten(structure, restored)
    history = {name.removeprefix("history "): values for name, values in kept.items() if name.startswith("history ")}
    return _Progress(params, optimizer, history)


def _with_multiplier(loss: SmoothedLoss, multiplier: float) -> SmoothedLoss:
    """Return the loss with another multiplier, which runs the same program."""
    return dataclasses.replace(loss, measure=replace(loss.measure, multiplier=multiplier))


def _best(losses: np.ndarray, budget: float | None) -> int:
    """Return the number of the best of ``losses [C, trials]``, or ``[C, trials, 2]`` with a violation that has a ``budget``."""
    means = np.mean(losses, axis=1)
    if budget is None:
        return int(np.argmin(means))
    within = means[:, 1] <= budget
    return int(np.argmin(np.where(within, means[:, 0], np.inf) if within.any() else means[:, 1]))


def _replaces(pair: np.ndarray, budget: float | None) -> bool:
    """Say whether the second of two points is better than the first, by their losses on trials that nothing was chosen by."""
    if budget is None:
        better, half = _paired(pair)
        return better > half  # not where it is NaN
    if np.mean(pair[0, :, 1]) <= budget:
        better, half = _paired(pair[..., 0])
        return better > half and float(np.mean(pair[1, :, 1])) <= budget
    better, half = _paired(pair[..., 1])
    return better > half


def _error(losses: np.ndarray) -> float:
    """Return the standard error of the mean of ``losses [trials]``, NaN where one is infinite."""
    return float(np.std(losses, ddof=1) / np.sqrt(len(losses))) if np.all(np.isfinite(losses)) else float("nan")


def _paired(losses: np.ndarray) -> tuple[float, float]:
    """Return by how much the second of ``losses [2, trials]`` is smaller, and the half-width of the 95% interval; NaN where one failed."""
    if not np.all(np.isfinite(losses)):
        return float("nan"), float("nan")
    difference = losses[0] - losses[1]
    return float(np.mean(difference)), NORMAL_95 * _error(difference)
