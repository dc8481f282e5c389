"""Worth and cost of gradients of simulated studies, and of fits.

The fits are of hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import jaxbandit as jb
from experiments.benchmark.engine import interleaved
from experiments.differentiable.settings import Setting, four, sine, sixteen
from jaxbandit.gradients import SmoothedLoss
from jaxbandit.surrogates import fit_many, log_evidence

# A gradient has 64 trials for up to eight parameters, and 1,024 for sixteen.
PAIRS, WIDE_PAIRS, STEP = 32, 512, 0.3
# Least and largest length-scale of the ranged model.
LENGTH_SCALES = (0.7, 1.4)


def measure_tuning(spec: dict[str, Any]) -> dict[str, Any]:
    """Return accuracy and cost of smoothed gradients and of fits.

    ``spec`` holds the number of gradients with 4 and with 16 parameters whose accuracy is measured (``keys``, ``wide_keys``),
    ``points_per_axis`` and ``horizon`` of the studies, ``fits`` and ``fit_points`` of a batch of data sets that is fitted in each of the
    ``precisions``, whether fits between rounds are timed (``refits``), and ``repeats``. Times are the best of these.
    """
    problem, model = sine(spec["points_per_axis"], spec["horizon"])
    settings = {"rpol4": (four(model), PAIRS, spec["keys"]), "rpol16": (sixteen(model, spec["horizon"]), WIDE_PAIRS, spec["wide_keys"])}
    gradients = {}
    for name, ((start, build), pairs, keys) in settings.items():
        if not keys:
            continue
        loss = SmoothedLoss(problem, build, horizon=spec["horizon"], pairs=pairs, step=STEP)
        gradients[name] = _against_the_mean(loss, start, keys)
    return {
        "gradients": gradients,
        **_cost(problem, four(model), spec["horizon"], spec["repeats"]),
        "fit_many_s": {name: _fits(spec["fits"], spec["fit_points"], name, spec["repeats"]) for name in spec["precisions"]},
        "evidence_us": _evidence(spec["fit_points"], spec["repeats"]),
        **(_refits(problem, spec["horizon"], spec["repeats"]) if spec["refits"] else {}),
    }


def _against_the_mean(loss: SmoothedLoss, start: Any, keys: int) -> dict[str, Any]:
    """Return the mean cosine of gradients to all others' mean.

    With it comes how often their 95% intervals hold that mean.
    """
    found = [loss.estimate(start, jax.random.key(number)) for number in range(keys)]
    each, halves = (np.stack([ravel_pytree(getattr(one, name))[0] for one in found]).astype(float) for name in ("gradient", "half_width"))
    others = (each.sum(axis=0)[None] - each) / max(keys - 1, 1)
    cosines = np.sum(each * others, axis=1) / (np.linalg.norm(each, axis=1) * np.linalg.norm(others, axis=1))
    held = np.abs(each - others) <= halves * np.sqrt(1 + 1 / max(keys - 1, 1))
    facts = {"parameters": each.shape[1], "trials": 2 * loss.pairs, "keys": keys}
    return facts | {"cosine": float(cosines.mean()), "coverage": float(held.mean())}


def _cost(problem: Any, setting: Setting, horizon: int, repeats: int) -> dict[str, Any]:
    """Return the time of value and gradient, and its memory.

    Beside the time is that of as many trials alone. The memory is by number of rounds.
    """
    start, build = setting
    loss = SmoothedLoss(problem, build, horizon=horizon, pairs=PAIRS)
    key, numbers = jax.random.key(0), jnp.tile(jnp.arange(PAIRS, dtype=jnp.int32), 2)
    gradient, plain = jax.jit(jax.value_and_grad(loss)).lower(start, key).compile(), jax.jit(loss.measured)
    points = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2 * PAIRS, *jnp.shape(leaf))), start)
    both, _ = interleaved({"gradient": lambda: gradient(start, key), "plain": lambda: plain(points, numbers, key)}, repeats)
    longer = SmoothedLoss(problem, build, horizon=4 * horizon, pairs=PAIRS)
    programs = {horizon: gradient, 4 * horizon: jax.jit(jax.value_and_grad(longer)).lower(start, key).compile()}
    used: dict[str, Any] = {str(rounds): program.memory_analysis() for rounds, program in programs.items()}
    return {
        "gradient_over_plain": both["gradient"] / both["plain"],
        "gradient_mb": {rounds: float(memory.temp_size_in_bytes / 2**20) for rounds, memory in used.items()},
        "gradient_trials": 2 * PAIRS,
    }


def _fits(count: int, points: int, precision: str, repeats: int) -> float:
    """Return the seconds of fits of three hyper-parameters to drawn data."""
    rng = np.random.default_rng(0)
    places, values = rng.uniform(0, 3, (count, points, 2)), np.empty((count, points))
    for number, x in enumerate(places):
        scale, noise = np.exp(rng.uniform(np.log(0.3), np.log(1.5))), np.exp(rng.uniform(np.log(0.003), np.log(0.2)))
        matrix = np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, axis=-1) / scale**2)
        values[number] = np.linalg.cholesky(matrix + noise * np.eye(points)) @ rng.standard_normal(points)
    kernel = jb.kernels.Scale(kernel=jb.kernels.SquaredExponential(length_scale=1.0), variance=1.0)
    return interleaved({"fits": lambda: fit_many(kernel, places, values, 0.05, precision=precision).log_evidence}, repeats)[0]["fits"]


def _evidence(points: int, repeats: int) -> float:
    """Return the microseconds of one log evidence with its gradient.

    The gradient is in two hyper-parameters, inside a compiled loop, in float64.
    """
    with jax.enable_x64(True):
        rng, times = np.random.default_rng(0), 100
        x, y = jnp.asarray(rng.uniform(0, 3, (points, 2))), jnp.asarray(rng.standard_normal(points))

        def density(place: jax.Array) -> jax.Array:
            return log_evidence(jb.kernels.SquaredExponential(length_scale=jnp.exp(place[0])), x, y, jnp.exp(place[1]))

        def step(_: int, place: jax.Array) -> jax.Array:
            return place + 1e-9 * jax.grad(density)(place)

        program = jax.jit(lambda place: jax.lax.fori_loop(0, times, step, place))
        return interleaved({"evidence": lambda: program(jnp.zeros(2))}, repeats)[0]["evidence"] / times * 1e6


def _refits(problem: Any, horizon: int, repeats: int) -> dict[str, Any]:
    """Return microseconds per trial-round on a ranged model, without fits or with."""
    kernel = jb.kernels.SquaredExponential(length_scale=1.0)
    low, high = LENGTH_SCALES
    model = jb.ranged(problem.domain, kernel, low=low, high=high, noise_variance=0.05, horizon=horizon)
    key, trials = jax.random.key(0), 16

    def played(algorithm: jb.Algorithm) -> Callable[[], Any]:
        return lambda: jb.simulate(problem, algorithm, model, key=key, trials=trials, horizon=horizon).indices

    best, _ = interleaved({"ranged": played(jb.Rpol()), "refitted": played(jb.Refitted(algorithm=jb.Rpol()))}, repeats)
    return {f"{name}_round_us": seconds / trials / horizon * 1e6 for name, seconds in best.items()}
