"""The time of a round on a continuous box.

The problem is Hartmann-6 where ``|x| <= 1``. BoTorch plays the same problem with the same number of evaluations.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import jaxbandit as jb

# Points of the initial design. They count as evaluations.
FIRST = 12
# Settings of BoTorch's maximiser.
RESTARTS, RAW = 8, 512
# Number of candidates of BoTorch's SCBO.
CANDIDATES = 2000


def measure_boxes(spec: dict[str, Any]) -> dict[str, Any]:
    """Return microseconds a trial-round of constrained EI, SCBO and BoTorch.

    Constrained EI has fixed kernels and fits, SCBO has fits. ``best`` are medians over trials of the best feasible value after as many
    evaluations as a trial of BoTorch has.
    """
    us: dict[str, Any] = {}
    best: dict[str, Any] = {}
    fitted = {"fitted": jb.Cei()} | ({"scbo": jb.Scbo()} if spec["scbo"] else {})
    learners = {"fixed": jb.Cei()} | {name: jb.Refitted(algorithm=rule, at_start=True, every=4) for name, rule in fitted.items()}
    for name, learner in learners.items():
        us[name], best[name] = _ours(learner, spec)
    if not importlib.util.find_spec("botorch"):
        words = 'not installed: pip install "jaxbandit[rivals]"'
        return {"us": us, "best": best, **dict.fromkeys(f"botorch_over_{name}" for name in fitted), "note": words}
    rivals = {"fitted": _log_cei, "scbo": _TrustRegion}
    for name in fitted:
        us[f"botorch_{name}"], best[f"botorch_{name}"] = _botorch(rivals[name](), spec)
    over = {f"botorch_over_{name}": us[f"botorch_{name}"] / us[name] for name in fitted}
    return {"us": us, "best": best, **over, "version": importlib.metadata.version("botorch")}


def _ours(learner: jb.Algorithm, spec: dict[str, Any]) -> tuple[float, float | None]:
    problem = jb.problems.hartmann6()
    model = jb.surrogate(problem.domain, jb.kernels.Matern52(length_scale=0.5), noise_variance=1e-4, outputs=2)
    first, seconds = jb.InitialDesign(random=FIRST, counted=True), []
    # The first run compiles.
    for _ in range(2):
        started = time.perf_counter()
        run = jb.simulate(
            problem, learner, model, horizon=spec["horizon"], trials=spec["trials"], key=jax.random.key(0), initial=first, record="indices"
        )
        jax.block_until_ready(run.points)
        seconds.append(time.perf_counter() - started)
    chosen = np.concatenate([np.asarray(run.initial_points), np.asarray(run.points)], axis=1)[:, : FIRST + spec["rival_horizon"]]
    return seconds[1] / spec["trials"] / spec["horizon"] * 1e6, _median_of_best(np.asarray(problem.means_of(chosen)))


def _median_of_best(values: np.ndarray) -> float | None:
    """Return the median over trials of the best feasible value.

    Values are ``[1 + m, trials, n]``. The result is ``None`` if half of the trials have no feasible value.
    """
    median = float(np.median(np.max(np.where(np.all(values[1:] <= 0, axis=0), values[0], -np.inf), axis=1)))
    return median if np.isfinite(median) else None


def _botorch(propose: Callable[[Any, Any], Any], spec: dict[str, Any]) -> tuple[float, float | None]:
    """Return each round's microseconds, trials in turn, and the median best value."""
    import torch
    from botorch.test_functions.synthetic import ConstrainedHartmann
    from botorch.utils.sampling import draw_sobol_samples

    problem = ConstrainedHartmann(dim=6, negate=True)

    def outputs(x: Any) -> Any:
        return torch.stack([problem(x), -problem.evaluate_slack(x)[:, 0]], dim=-1)

    # BoTorch warns of fits that are tried again.
    warnings.simplefilter("ignore")
    seconds, values = 0.0, []
    for seed in range(spec["rival_trials"]):
        torch.manual_seed(seed)
        x, own = draw_sobol_samples(_bounds(), FIRST, 1, seed=seed).squeeze(1), copy.copy(propose)
        y = outputs(x)
        started = time.perf_counter()
        for _ in range(spec["rival_horizon"]):
            point = own(x, y)
            x, y = torch.cat([x, point]), torch.cat([y, outputs(point)])
        seconds += time.perf_counter() - started
        values.append(y.T.numpy())
    return seconds / (spec["rival_trials"] * spec["rival_horizon"]) * 1e6, _median_of_best(np.stack(values, axis=1))


def _bounds() -> Any:
    import torch

    return torch.stack([torch.zeros(6), torch.ones(6)]).double()


def _log_cei() -> Callable[[Any, Any], Any]:
    """Return constrained log-EI with BoTorch's own kernels, fitted anew each round."""
    from botorch.acquisition.analytic import LogConstrainedExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import ModelListGP, SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import SumMarginalLogLikelihood

    def propose(x: Any, y: Any) -> Any:
        model = ModelListGP(*(SingleTaskGP(x, y[:, n : n + 1]) for n in range(2)))
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        feasible = y[:, 1] <= 0
        best = y[feasible, 0].max() if bool(feasible.any()) else y[:, 0].min()
        rule = LogConstrainedExpectedImprovement(model, best_f=best, objective_index=0, constraints={1: (None, 0.0)})
        return optimize_acqf(rule, _bounds(), q=1, num_restarts=RESTARTS, raw_samples=RAW)[0]

    return propose


@dataclasses.dataclass
class _TrustRegion:
    """SCBO from BoTorch's tutorial, a point at a time.

    The tutorial is "Scalable constrained Bayesian optimization".
    """

    length: float = 0.8
    # Take the least violation so far, and minus the largest reward with it.
    best: tuple[float, float] | None = None
    successes: int = 0
    failures: int = 0

    def __call__(self, x: Any, y: Any) -> Any:
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.generation.sampling import ConstrainedMaxPosteriorSampling
        from botorch.models import SingleTaskGP
        from botorch.models.transforms.outcome import Standardize
        from gpytorch.constraints import Interval
        from gpytorch.kernels import MaternKernel, ScaleKernel
        from gpytorch.likelihoods import GaussianLikelihood
        from gpytorch.mlls import ExactMarginalLogLikelihood
        from torch.quasirandom import SobolEngine

        ranks = [(max(float(cost), 0.0), -float(value) if cost <= 0 else 0.0) for value, cost in y]
        middle = min(range(len(ranks)), key=ranks.__getitem__)
        self._move(ranks[middle])
        models = []
        for n in range(2):
            kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=6, lengthscale_constraint=Interval(0.005, 4.0)))
            likelihood, scaled = GaussianLikelihood(noise_constraint=Interval(1e-8, 1e-3)), Standardize(m=1)
            model = SingleTaskGP(x, y[:, n : n + 1], covar_module=kernel, likelihood=likelihood, outcome_transform=scaled)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            models.append(model)
        low, high = (torch.clamp(x[middle] + side * self.length / 2, 0.0, 1.0) for side in (-1, 1))
        around = low + (high - low) * SobolEngine(6, scramble=True).draw(CANDIDATES).double()
        with torch.no_grad():
            return ConstrainedMaxPosteriorSampling(model=models[0], constraint_model=models[1], replacement=False)(around, num_samples=1)

    def _move(self, now: tuple[float, float]) -> None:
        if self.best is not None:
            better = now[0] < self.best[0] or now[1] < self.best[1] - 1e-3 * abs(self.best[1])
            self.successes, self.failures = (self.successes + 1, 0) if better else (0, self.failures + 1)
        self.best = now if self.best is None else min(now, self.best)
        if self.successes == 10:
            self.length, self.successes = min(2 * self.length, 1.6), 0
        elif self.failures == 6:
            self.length, self.failures = self.length / 2, 0
        self.length = 0.8 if self.length < 0.5**7 else self.length
