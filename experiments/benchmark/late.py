"""Time of a round by feedback policy on a CPU.

Beside it are a round without delay and the arithmetic of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import jaxbandit
from experiments.benchmark.engine import LENGTH_SCALE, NOISE_VARIANCE, interleaved
from jaxbandit import delays, feedback, kernels

POLICIES: dict[str, feedback.Policy | None] = {
    "none": None,
    "censor": feedback.Censor(),
    "wait": feedback.Wait(),
    "hallucinate": feedback.Hallucinate(),
}


def measure_late(spec: dict[str, Any]) -> dict[str, Any]:
    """Return each policy's time of a trial-round, beside that without delay.

    Delays are Poisson with mean ``spec["mean_delay"]``. The last figure of a policy is the ratio of multiply-adds of the posterior.
    """
    problem = jaxbandit.problems.sine(spec["points_per_axis"])
    kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    model = jaxbandit.surrogate(problem.domain, kernel, noise_variance=NOISE_VARIANCE, outputs=problem.outputs, form="product")

    def play(policy: feedback.Policy | None, record: str = "indices") -> Any:
        late: dict[str, Any] = {} if policy is None else {"delay": delays.Poisson(mean=spec["mean_delay"]), "feedback": policy}
        given: dict[str, Any] = {
            "horizon": spec["horizon"],
            "record": record,
            "trials": spec["trials"],
            "key": jax.random.key(0),
            "devices": jax.devices()[:1],
        }
        return jaxbandit.simulate(problem, jaxbandit.Rpol(), model, **given, **late)

    runs: dict[str, Callable[[], Any]] = {name: partial(lambda policy: play(policy).indices, policy) for name, policy in POLICIES.items()}
    best, _ = interleaved(runs, spec["repeats"])
    arrivals = np.asarray(play(feedback.Wait(), "all").arrivals)
    work = multiply_adds(model.forms[0], problem.outputs, float(np.mean(arrivals <= spec["horizon"])), min(spec["slots"], spec["horizon"]))
    rounds = spec["trials"] * spec["horizon"]
    return {
        "rank": model.forms[0].rank,
        "policies": {
            name: {"us": seconds / rounds * 1e6, "over_none": seconds / best["none"], "work_over_none": work[name] / work["none"]}
            for name, seconds in best.items()
        },
    }


def multiply_adds(form: Any, outputs: int, arriving: float, slots: int) -> dict[str, float]:
    """Return multiply-adds of a round's posterior by policy.

    A root is updated in three passes. ``arriving`` values of each output come in a round, and at most ``slots`` points are pending.
    """
    update, points, kept = 3 * form.rank**2, 1, [np.shape(axis) for axis in form.axes]
    function = 0
    for n, (size, features) in enumerate(kept):
        function += points * size * features * math.prod(left for _, left in kept[n + 1 :])
        points *= size
    open_targets = feedback.Censor().window
    return {
        "none": update + function,
        "censor": update + (1 + outputs) * function + (1 + outputs) * open_targets * form.rank,
        "wait": outputs * arriving * (update + function),
        "hallucinate": update + (1 + outputs) * function + (1 + 2 * outputs) * slots * form.rank + outputs * (1 + arriving) * slots**2,
    }
