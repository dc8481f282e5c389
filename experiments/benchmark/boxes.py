"""The time of a round on a continuous box, Hartmann-6 where ``|x| <= 1``, beside BoTorch on the same problem and number of evaluations."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
import warnings
from typing import Any

import jax
import numpy as np

import jaxbandit as jb

FIRST = 12  # points of the initial design, which count as evaluations
RESTARTS, RAW = 8, 512  # of BoTorch's maximiser


def measure_boxes(spec: dict[str, Any]) -> dict[str, Any]:
    """Return microseconds a trial-round of constrained EI with fixed kernels and with fits, and BoTorch's constrained log-EI beside it.

    ``best`` are medians over trials of the best feasible value after as many evaluations as a trial of BoTorch has.
    """
    us: dict[str, Any] = {}
    best: dict[str, Any] = {}
    for name, learner in {"fixed": jb.Cei(), "fitted": jb.Refitted(algorithm=jb.Cei(), at_start=True, every=4)}.items():
        us[name], best[name] = _ours(learner, spec)
    rival = _botorch(spec) if importlib.util.find_spec("botorch") else {"note": 'not installed: pip install "jaxbandit[rivals]"'}
    if "us" in rival:
        us["botorch"], best["botorch"] = rival["us"], rival["best"]
        return {"us": us, "best": best, "botorch_over_fitted": us["botorch"] / us["fitted"], "version": rival["version"]}
    return {"us": us, "best": best, "botorch_over_fitted": None, **rival}


def _ours(learner: jb.Algorithm, spec: dict[str, Any]) -> tuple[float, float]:
    problem = jb.problems.hartmann6()
    model = jb.surrogate(problem.domain, jb.kernels.Matern52(length_scale=0.5), noise_variance=1e-4, outputs=2)
    first, seconds = jb.InitialDesign(random=FIRST, counted=True), []
    for _ in range(2):  # the first compiles
        started = time.perf_counter()
        run = jb.simulate(
            problem, learner, model, horizon=spec["horizon"], trials=spec["trials"], key=jax.random.key(0), initial=first, record="indices"
        )
        jax.block_until_ready(run.points)
        seconds.append(time.perf_counter() - started)
    chosen = np.concatenate([np.asarray(run.initial_points), np.asarray(run.points)], axis=1)[:, : FIRST + spec["rival_horizon"]]
    return seconds[1] / spec["trials"] / spec["horizon"] * 1e6, _median_of_best(np.asarray(problem.means_of(chosen)))


def _median_of_best(values: np.ndarray) -> float:
    """Return the median over trials of the best feasible value of ``values [1 + m, trials, n]``."""
    return float(np.median(np.max(np.where(np.all(values[1:] <= 0, axis=0), values[0], -np.inf), axis=1)))


def _botorch(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure trials of constrained log-EI, its kernels fitted anew each round, one after the other."""
    import torch
    from botorch.acquisition.analytic import LogConstrainedExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import ModelListGP, SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.test_functions.synthetic import ConstrainedHartmann
    from botorch.utils.sampling import draw_sobol_samples
    from gpytorch.mlls import SumMarginalLogLikelihood

    problem = ConstrainedHartmann(dim=6, negate=True)
    bounds = torch.stack([torch.zeros(6), torch.ones(6)]).double()

    def outputs(x: Any) -> Any:
        return torch.stack([problem(x), -problem.evaluate_slack(x)[:, 0]], dim=-1)

    warnings.simplefilter("ignore")  # of fits that are tried again
    seconds, values = 0.0, []
    for seed in range(spec["rival_trials"]):
        torch.manual_seed(seed)
        x = draw_sobol_samples(bounds, FIRST, 1, seed=seed).squeeze(1)
        y = outputs(x)
        started = time.perf_counter()
        for _ in range(spec["rival_horizon"]):
            model = ModelListGP(*(SingleTaskGP(x, y[:, n : n + 1]) for n in range(2)))
            fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
            feasible = y[:, 1] <= 0
            best = y[feasible, 0].max() if bool(feasible.any()) else y[:, 0].min()
            rule = LogConstrainedExpectedImprovement(model, best_f=best, objective_index=0, constraints={1: (None, 0.0)})
            point, _ = optimize_acqf(rule, bounds, q=1, num_restarts=RESTARTS, raw_samples=RAW)
            x, y = torch.cat([x, point]), torch.cat([y, outputs(point)])
        seconds += time.perf_counter() - started
        values.append(y.T.numpy())
    rounds = spec["rival_trials"] * spec["rival_horizon"]
    return {
        "us": seconds / rounds * 1e6,
        "best": _median_of_best(np.stack(values, axis=1)),
        "version": importlib.metadata.version("botorch"),
    }
