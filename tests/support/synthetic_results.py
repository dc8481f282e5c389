"""Results datasets made by hand, in the shape that studies write them."""

import json

import numpy as np
import xarray as xr

from jaxbandit.core.status import Status

LABELS = ("RPOL-UCB", "CBO-UCB", "CONFIG")


def results(seed=0, *, labels=LABELS, trials=12, rounds=60, before=0, failed=(), late=False):
    """Return random cumulative measures ``[algorithm, trial, round]``, some NaN.

    ``before`` points of an initial design count as rounds ``1 - before .. 0``; ``late`` adds Poisson arrivals.
    """
    random = np.random.default_rng(seed)
    shape = (len(labels), trials, rounds + before)
    level = 0.5 + np.arange(len(labels))[:, None, None] / len(labels)
    gap = level * random.gamma(2.0, 0.5, shape) / np.sqrt(np.arange(1, shape[2] + 1))
    cost = np.maximum(random.normal(0.0, 1.0, shape) / level, 0) / np.sqrt(np.arange(1, shape[2] + 1))
    curves = {
        "regret": np.cumsum(gap - 0.05, axis=-1),
        "positive_regret": np.cumsum(gap, axis=-1),
        "hard_violation": np.cumsum(cost, axis=-1),
        "soft_violation": 0.8 * np.cumsum(cost, axis=-1),
        "violating_rounds": np.cumsum(cost > 0, axis=-1),
        "best_constrained_regret": np.minimum.accumulate(gap + cost, axis=-1),
    }
    status = np.zeros(shape[:2], np.int32)
    for a, n in failed:
        status[a, n] = int(Status.NONFINITE_FEEDBACK)
        for values in curves.values():
            if values.dtype.kind == "f":
                values[a, n, rounds // 2 :] = np.nan
    variables = {name: (("algorithm", "trial", "round"), values) for name, values in curves.items()}
    variables |= {"status": (("algorithm", "trial"), status), "declared_round": (("algorithm", "trial"), np.zeros(shape[:2], np.int32))}
    if late:
        delays = np.random.default_rng(seed + 1).poisson(7.0, (1, trials, rounds, 2)) * np.ones((len(labels), 1, 1, 1), int)
        arrival = np.arange(1, rounds + 1)[:, None] + delays
        variables["arrival"] = (("algorithm", "trial", "played", "output"), arrival)
    coordinates = {"algorithm": list(labels), "trial": np.arange(trials), "round": np.arange(1 - before, rounds + 1)}
    if late:
        coordinates |= {"played": np.arange(1, rounds + 1), "output": ["reward", "constraint 1"]}
        coordinates["delay"] = ("algorithm", ["Poisson(mean 7)"] * len(labels))
    types = ("Rpol", "Cbo", "Config", "RandomSearch")
    attributes = {
        "study": "synthetic",
        "seed": seed,
        "command": "python -m experiments synthetic --trials 12",
        "algorithms": json.dumps({label: {"alg": label, "type": types[a % len(types)]} for a, label in enumerate(labels)}),
        "versions": json.dumps({"jaxbandit": "0.1", "numpy": np.__version__}),
        "devices": json.dumps(["TFRT_CPU_0"]),
        "parameters": json.dumps({"set": "recommended", "beta": 3.0}),
    }
    return xr.Dataset(variables, coords=coordinates, attrs=attributes)


def swept(seed=0, *, widths=(1.0, 2.0, 4.0), costs=(0.5, 1.0), bases=("RPOL-UCB",), plain=("CONFIG",)):
    """Return results of a sweep, and of algorithms outside of it.

    It has two hyper-parameters, and one where ``costs`` has a single value.
    """
    grid = [(base, w, c) for base in bases for w in widths for c in costs]
    labels = [f"{base} w={w:g} c={c:g}" for base, w, c in grid] + list(plain)
    dataset = results(seed, labels=labels, trials=6, rounds=30)
    missing = [np.nan] * len(plain)
    coordinates = {
        "base": ("algorithm", [base for base, _, _ in grid] + list(plain)),
        "problem": ("algorithm", ["sine"] * len(labels)),
        "delay": ("algorithm", ["NoDelay"] * len(labels)),
        "estimator.reward_width": ("algorithm", [w for _, w, _ in grid] + missing),
    }
    names = ["estimator.reward_width"]
    if len(costs) > 1:
        coordinates["estimator.cost_width"] = ("algorithm", [c for _, _, c in grid] + missing)
        names.append("estimator.cost_width")
    return dataset.assign_coords(coordinates).assign_attrs(swept=json.dumps(names))
