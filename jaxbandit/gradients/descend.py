"""Descent on a smoothed loss, guarded at both ends: screening of where to start, validation of where to stop.

A descent alone can end worse than it began: a few trials that get stuck dominate a loss, and few gradients see them. So the start is the
best of several screened points, iterates are compared on trials that no step has used, and the winner has to beat the start on others.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.intervals import NORMAL_95
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.tuned import Candidate, Tuned
from jaxbandit.core.types import Array, Key
from jaxbandit.gradients.smoothed import SmoothedLoss

SCREEN, STEP, VALIDATE, CONFIRM = range(4)  # purposes of random numbers: none is used for two


class _Progress(NamedTuple):
    """State of a descent after some steps."""

    params: Array  # [d]
    optimizer: Any
    history: dict[str, np.ndarray]  # [steps so far, ...]


def descend(
    loss: SmoothedLoss,
    params: Any,
    key: Key,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 40,
    screen: int = 16,
    reach: float = float(np.log(10)),
    validate: int = 256,
    every: int = 5,
    file: str | Path | None = None,
) -> Tuned[Any]:
    """Return parameters with a smaller loss, never worse than ``params`` beyond the interval of the validation.

    1. Screening: ``screen`` points, ``params`` and others drawn uniformly within ``reach`` of them, are compared on common trials.
    2. Descent: ``steps`` steps of ``optimizer`` from the best of these, each on fresh trials.
    3. Validation: the start, the screened point, every ``every``-th iterate and the mean of the last quarter are compared on ``validate``
       common fresh trials. The best replaces the start only if on as many further trials it is better by more than the half-width
       of the 95% interval of the paired difference.

    All of it runs one compiled program.

    Args:
      loss: the smoothed loss.
      params: where to start, a pytree of floating-point numbers.
      key: PRNG key.
      optimizer: of optax; default Adam with a cosine decay from 0.1, ``b1 = 0.8`` and ``b2 = 0.95``.
      steps: number of steps; each takes ``2 loss.pairs`` trials.
      screen: number of screened points; 1 for none but the start.
      reach: half-width of the box that is screened, in units of the parameters.
      validate: trials of the validation, and of the confirmation.
      every: steps between two iterates that are validated.
      file: NumPy file that the descent is kept in, and goes on from if it is there; default nowhere.

    Returns:
      The best parameters, all candidates, the improvement over the start with its interval, and the history of the descent.

    Raises:
      InvalidArgument: on numbers out of range, parameters that make no study, a start whose trials fail, or a file of another descent.
    """
    for name, value in (("steps", steps), ("screen", screen), ("validate", validate), ("every", every)):
        checks.integer(name, value, least=1 if name != "validate" else 2)
    checks.within("reach", reach, 0.0, float("inf"), open_high=True)
    loss.estimate(params, key)  # refuses what makes no study, and compiles
    flat, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float_dtype()), params))
    compared = _Compared(loss, rebuild, key)

    away = jax.random.uniform(jax.random.fold_in(key, SCREEN), (screen - 1, flat.shape[0]), flat.dtype, -reach, reach)
    screened = jnp.concatenate([flat[None], flat[None] + away])
    begin = screened[int(np.argmin(_means(compared(screened, max(loss.pairs // 2, 2), SCREEN))))]

    chosen = optax.adam(optax.cosine_decay_schedule(0.1, steps, 0.1), b1=0.8, b2=0.95) if optimizer is None else optimizer
    identity = json.dumps([np.asarray(flat).tolist(), np.asarray(jax.random.key_data(key)).tolist(), loss.horizon, loss.pairs, loss.step])
    path = None if file is None else Path(file)
    after = _descended(loss, rebuild, begin, key, chosen, steps, every, path, identity)

    visited = np.concatenate([after.history["params"], np.asarray(after.params)[None]])
    named = {"start": np.asarray(flat), "screened": np.asarray(begin)}
    named |= {f"step {number}": visited[number] for number in range(every, steps + 1, every)}
    named["mean of the last steps"] = visited[-max(1, steps // 4) :].mean(axis=0)
    validated = compared(jnp.asarray(np.stack(list(named.values()))), validate, VALIDATE)
    candidates = tuple(
        Candidate(rebuild(jnp.asarray(point)), float(mean), _error(own), found)
        for (found, point), own, mean in zip(named.items(), validated, _means(validated), strict=True)
    )
    best = int(np.argmin(_means(validated)))
    better, half = _confirmed(compared, np.stack([named["start"], list(named.values())[best]]), validate)
    if best == 0 or not better > half:  # also where a difference is NaN
        return Tuned(rebuild(flat), candidates, 0.0, (0.0, 0.0), after.history)
    return Tuned(candidates[best].values, candidates, better, (better - half, better + half), after.history)


class _Compared:
    """Losses of points on common trials, by the program of the gradient: as many trials at a time as it has."""

    def __init__(self, loss: SmoothedLoss, rebuild: Any, key: Key) -> None:
        self.loss, self.rebuild, self.key = loss, rebuild, key

    def __call__(self, points: Array, trials: int, purpose: int) -> np.ndarray:
        """Return the losses ``[C, trials]`` of ``points [C, d]``; infinite where a trial failed."""
        count, room = len(points) * trials, 2 * self.loss.pairs
        missing = -count % room
        owners = np.concatenate([np.repeat(np.arange(len(points)), trials), np.zeros(missing, int)])
        numbers = np.concatenate([np.tile(np.arange(trials), len(points)), np.zeros(missing, int)]).astype(np.int32)
        key = jax.random.fold_in(self.key, purpose)
        found = []
        for first in range(0, count, room):
            part = slice(first, first + room)
            own = jax.vmap(self.rebuild)(jnp.asarray(points)[owners[part]])
            losses, _, healthy = self.loss.played(own, jnp.asarray(numbers[part]), key)
            found.append(np.where(np.asarray(healthy) & np.isfinite(losses), np.asarray(losses, np.float64), np.inf))
        return np.concatenate(found)[:count].reshape(len(points), trials)


def _descended(
    loss: SmoothedLoss,
    rebuild: Any,
    begin: Array,
    key: Key,
    optimizer: optax.GradientTransformation,
    steps: int,
    every: int,
    file: Path | None,
    identity: str,
) -> _Progress:
    """Take the steps of the descent, from where the ``file`` left it if there is one."""
    now = _Progress(begin, optimizer.init(begin), {})
    if file is not None and file.exists():
        now = _restored(now, file, identity)
    done = len(now.history.get("value", ()))
    update = jax.jit(optimizer.update)
    for step in range(done, steps):
        found = loss.estimate(rebuild(now.params), jax.random.fold_in(jax.random.fold_in(key, STEP), step))
        with jax.numpy_dtype_promotion("standard"):  # schedules of optax divide whole numbers
            updates, state = update(ravel_pytree(found.gradient)[0], now.optimizer, now.params)
        error = jnp.sqrt(jnp.mean(jnp.square(ravel_pytree(found.standard_error)[0])))
        row = {"value": found.value, "standard_error": error * loss.step, "unchanged": found.unchanged, "failed": found.failed}
        history = {
            name: np.concatenate([now.history[name], [np.asarray(value)]]) if now.history else np.asarray(value)[None]
            for name, value in (row | {"params": now.params}).items()
        }
        now = _Progress(optax.apply_updates(now.params, updates), state, history)
        if file is not None and ((step + 1) % every == 0 or step + 1 == steps):
            _save(now, file, identity)
    return now


def _save(now: _Progress, file: Path, identity: str) -> None:
    """Write the state under a temporary name and rename, so that the file is the old one or the whole new one."""
    leaves = {f"leaf {number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves((now.params, now.optimizer)))}
    temporary = file.with_name(f".{file.name}.npz")
    history = {f"history {name}": values for name, values in now.history.items()}
    np.savez(temporary, **leaves, **history, identity=np.asarray(identity))  # type: ignore[arg-type]
    os.replace(temporary, file)


def _restored(like: _Progress, file: Path, identity: str) -> _Progress:
    """Return the state that a file holds; raise ``InvalidArgument`` when it is of another descent, or damaged."""
    try:
        with np.load(file, allow_pickle=False) as held:
            kept = {name: held[name] for name in held.files}
        leaves, structure = jax.tree.flatten((like.params, like.optimizer))
        restored = [jnp.asarray(kept[f"leaf {number}"], leaf.dtype) for number, leaf in enumerate(leaves)]
        same = str(kept["identity"]) == identity
    except Exception as error:  # what the readers of a damaged file raise is not documented
        raise InvalidArgument(f"file: {file} holds no descent that can be read ({error}); remove it to begin anew") from error
    if not same:
        raise InvalidArgument(f"file: {file} holds a descent from other parameters, key or loss; name another file")
    params, optimizer = jax.tree.unflatten(structure, restored)
    history = {name.removeprefix("history "): values for name, values in kept.items() if name.startswith("history ")}
    return _Progress(params, optimizer, history)


def _means(losses: np.ndarray) -> np.ndarray:
    """Return the mean loss ``[C]`` of ``losses [C, trials]``."""
    return np.mean(losses, axis=1)


def _error(losses: np.ndarray) -> float:
    """Return the standard error of the mean of ``losses [trials]``, NaN where one is infinite."""
    return float(np.std(losses, ddof=1) / np.sqrt(len(losses))) if np.all(np.isfinite(losses)) else float("nan")


def _confirmed(compared: _Compared, pair: np.ndarray, trials: int) -> tuple[float, float]:
    """Return by how much the second point is better than the first on trials not used before, and the half-width of its interval."""
    losses = compared(jnp.asarray(pair), trials, CONFIRM)
    if not np.all(np.isfinite(losses)):
        return float("nan"), float("nan")
    difference = losses[0] - losses[1]
    return float(np.mean(difference)), NORMAL_95 * _error(difference)
