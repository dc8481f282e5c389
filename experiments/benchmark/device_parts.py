"""Measurements on an accelerator.

Each function named in ``bench --device`` gives the figures of one part, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from experiments.benchmark.engine import LENGTH_SCALE, NOISE_VARIANCE, interleaved
from jaxbandit import delays, feedback, kernels

WIDTH = 3.0
REPEATS = 3
# One float32 is read and written.
BYTES_PER_PASS = 8

# Each figure comes with its name as soon as it is measured.
Figures: TypeAlias = Iterator[tuple[str, Any]]


def part(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of the part that ``spec`` names.

    The figures so far are printed after each, because a part may run out of time.
    """
    found: dict[str, Any] = {}
    for name, figure in globals()[spec["part"]](spec):
        found[name] = figure
        print("\n" + json.dumps(found), flush=True)
    return found


def limits(sizes: dict[str, Any]) -> Figures:
    """Give the speed of copies and products, and a launch's cost."""
    device = jax.devices()[0]
    yield from {"device": device.device_kind, "platform": device.platform, "jax": jax.__version__}.items()
    yield "copy_gb_per_s", _copied(sizes) / 1e9
    side = sizes["product_side"]
    matrix = jax.random.normal(jax.random.key(0), (side, side))
    for precision in ("highest", "default"):
        seconds = _seconds(jax.jit(partial(jnp.matmul, precision=precision)), matrix, matrix)
        yield f"gemm_{precision}_tflop_per_s", 2 * side**3 / seconds / 1e12

    turn = jnp.roll(jnp.eye(64), 1, axis=0)

    def rounds(x: jax.Array, launches: int) -> jax.Array:
        def one(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            for _launch in range(launches):
                # XLA does not join this product to the next one.
                carry = jnp.matmul(turn, carry, precision="highest")
            return carry, None

        return jax.lax.scan(one, x, None, length=1000)[0]

    one, many = (_seconds(jax.jit(partial(rounds, launches=launches)), jnp.ones((64, 4))) for launches in (1, 17))
    yield "launch_us", (many - one) / 16 * 1e3


def _copied(sizes: dict[str, Any]) -> float:
    """Return the bytes per second of a copy."""
    return BYTES_PER_PASS * float(sizes["copied"]) / _seconds(jax.jit(lambda x: x * 1.0001 + 1), jnp.ones((sizes["copied"],)))


def choices(sizes: dict[str, Any]) -> Figures:
    """Give the quality of choices under a dense float64 reference.

    It is how far scores are below the best, and how many choices equal those of a CPU. The largest gap over all rounds of RPOL-UCB, in
    posterior deviations of the prior; by XLA in two forms, and by a kernel for all rounds. A first round in which scores tie may differ.
    """
    problem, horizon = _problem(sizes), sizes["choice_rounds"]
    cpu = jax.devices("cpu")[:1]
    for name, form, fused in (("product", "product", False), ("features", "features", False), ("product by a kernel", "product", True)):
        play = partial(
            jaxbandit.simulate, problem, jaxbandit.Rpol(), _model(problem, form), horizon=horizon, trials=4, key=jax.random.key(0)
        )
        here, there = play(devices=jax.devices()[:1], fused=fused), play(devices=cpu, fused=False)
        same = np.asarray(here.indices) == np.asarray(there.indices)
        gaps = [_largest_gap(problem, here, trial) for trial in range(4)]
        yield name, {"largest_gap": max(gaps), "same_as_cpu": float(same.mean()), "trials_alike": float(same.all(axis=1).mean())}


def _largest_gap(problem: Any, run: jaxbandit.Trajectory, trial: int) -> float:
    """Return a trial's largest shortfall of a score (RPOL, eq. 7).

    A shortfall is the best score less that of the chosen point.
    """
    points = np.asarray(problem.domain.points, np.float64)
    matrix = np.exp(-0.5 * np.sum((points[:, None] - points[None]) ** 2, axis=-1) / LENGTH_SCALE**2)
    indices, values, multipliers = (np.asarray(x, np.float64)[trial] for x in (run.indices, run.values, run.multipliers))
    indices = indices.astype(int)
    # Rows of a Cholesky factor, and of the values in its terms.
    rows, weights = np.zeros((0, len(points))), np.zeros((0, 2))
    worst = 0.0
    for t, index in enumerate(indices):
        mean, sd = weights.T @ rows, np.sqrt(np.maximum(1 - np.sum(rows**2, axis=0), 0))
        score = mean[0] + WIDTH * sd - multipliers[t, 0] * np.maximum(mean[1] - WIDTH * sd, 0)
        worst = max(worst, float(score.max() - score[index]))
        pivot = np.sqrt(NOISE_VARIANCE + sd[index] ** 2)
        weights = np.vstack([weights, (values[t] - mean[:, index]) / pivot])
        rows = np.vstack([rows, (matrix[index] - rows[:, index] @ rows) / pivot])
    return worst


def speed(sizes: dict[str, Any]) -> Figures:
    """Give times by form and trials, beside a copy of states."""
    problem, copied = _problem(sizes), _copied(sizes)
    for form in ("product", "features", "rows"):
        model = _model(problem, form)
        # The state has the root, two means and a variance.
        state = 4 * (model.forms[0].rank ** 2 + 3 * problem.domain.size)
        for trials in sizes["trials"][: 2 if form == "rows" else None]:
            timed = _timed(sizes, problem, jaxbandit.Rpol(), model, trials)
            yield f"{form}, {trials} trials", timed | {"memory_floor_us": 2 * state / copied * 1e6}


def late(sizes: dict[str, Any]) -> Figures:
    """Give times by policy, without delay and with Poisson delays."""
    problem = _problem(sizes)
    model, trials = _model(problem, "product"), sizes["trials"][1]
    policies: dict[str, Any] = {"none": None, "wait": feedback.Wait(), "hallucinate": feedback.Hallucinate(), "censor": feedback.Censor()}
    for name, policy in policies.items():
        options = {} if policy is None else {"delay": delays.Poisson(mean=15.0), "feedback": policy}
        yield name, _timed(sizes, problem, jaxbandit.Rpol(), model, trials, **options)


def fused_rounds(sizes: dict[str, Any]) -> Figures:
    """Give the times of kernels for all rounds and of XLA.

    With them comes the number of equal choices. What a compiler refuses says why. On a CPU kernels are interpreted.
    """
    problem = _problem(sizes)
    # A kernel may be slow, so it plays fewer rounds.
    model, sizes = _model(problem, "product"), sizes | {"trial_rounds": sizes["trial_rounds"] // 3}
    played = {"Rpol": jaxbandit.Rpol(), "Cbo": jaxbandit.Cbo(reward_clip=4.0), "Config": jaxbandit.Config(), "Se3": jaxbandit.Se3()}
    for name, algorithm in list(played.items())[: sizes["fused_algorithms"]]:
        yield f"{name}, same choices", _tried(partial(_same_choices, sizes, problem, algorithm, model))
        for trials in sizes["trials"][1:] if name == "Rpol" else sizes["trials"][-1:]:
            yield (
                f"{name}, {trials} trials",
                {
                    words: _tried(partial(_timed, sizes, problem, algorithm, model, trials, fused=fused))
                    for words, fused in (("by XLA", False), ("by a kernel", True))
                },
            )


def boxes(sizes: dict[str, Any]) -> Figures:
    """Give times of constrained EI on Hartmann-6, with and without fits."""
    problem = jaxbandit.problems.hartmann6()
    model = jaxbandit.surrogate(problem.domain, kernels.Matern52(length_scale=0.5), noise_variance=1e-4, outputs=2)
    played = {"given": jaxbandit.Cei(), "fitted": jaxbandit.Refitted(algorithm=jaxbandit.Cei(), at_start=True, every=4)}
    for name, algorithm in played.items():
        for trials in sizes["box_trials"]:
            given = sizes | {"horizon": sizes["box_horizon"]}
            first = jaxbandit.InitialDesign(random=12)
            yield f"{name}, {trials} trials", _tried(partial(_timed, given, problem, algorithm, model, trials, initial=first))


def _tried(measure: Callable[[], Any]) -> Any:
    """Return a function's result, or the reason why it failed."""
    try:
        return measure()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def _same_choices(sizes: dict[str, Any], problem: Any, algorithm: Any, model: jaxbandit.Surrogate) -> float:
    """Return the share of rounds where a kernel and XLA chose alike."""
    options = {"horizon": sizes["choice_rounds"], "trials": 4, "key": jax.random.key(0), "devices": jax.devices()[:1], "record": "indices"}
    by_xla, by_kernel = (
        np.asarray(jaxbandit.simulate(problem, algorithm, model, **options, fused=fused).indices) for fused in (False, True)
    )
    return float((by_xla == by_kernel).mean())


def algorithms(sizes: dict[str, Any]) -> Figures:
    """Give times, or errors, of algorithms that score, search or loop differently."""
    problem = _problem(sizes)
    played = {
        "Rpol": jaxbandit.Rpol(),
        "Cbo": jaxbandit.Cbo(reward_clip=4.0),
        "Cbo, Thompson": jaxbandit.Cbo(estimator=jaxbandit.estimators.Thompson(), reward_clip=4.0),
        "Config": jaxbandit.Config(),
        "Cei": jaxbandit.Cei(),
        "SafeOpt": jaxbandit.SafeOpt(seeds=[0]),
        "Admmbo": jaxbandit.Admmbo(),
        "Bpe": jaxbandit.Bpe(),
    }
    measured = partial(_timed, sizes, problem, model=_model(problem, "product"), trials=sizes["trials"][1])
    for name, algorithm in played.items():
        yield name, _tried(partial(measured, algorithm=algorithm))


def _problem(sizes: dict[str, Any]) -> Any:
    return jaxbandit.problems.sine(sizes["points_per_axis"])


def _model(problem: Any, form: str) -> jaxbandit.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    return jaxbandit.surrogate(problem.domain, kernel, noise_variance=NOISE_VARIANCE, form=form)


def _timed(sizes: dict[str, Any], problem: Any, algorithm: Any, model: jaxbandit.Surrogate, trials: int, **options: Any) -> dict[str, Any]:
    """Return compile seconds, and microseconds per trial-round and per round.

    A round is of all trials. The device is the first one.
    """
    horizon = max(1, min(sizes["horizon"], sizes["trial_rounds"] // trials))

    def play() -> Any:
        given = {"horizon": horizon, "trials": trials, "key": jax.random.key(0), "record": "indices", "devices": jax.devices()[:1]}
        return jaxbandit.simulate(problem, algorithm, model, **{"fused": False} | given | options).indices

    best, first = interleaved({"it": play}, REPEATS)
    each = best["it"] / horizon * 1e6
    return {"compile_s": first["it"] - best["it"], "us_per_trial_round": each / trials, "us_per_round": each, "horizon": horizon}


def _seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the least seconds of a call, after one that compiles."""
    return interleaved({"it": lambda: function(*arguments)}, REPEATS)[0]["it"]
