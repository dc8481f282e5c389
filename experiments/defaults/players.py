"""The players that ``rivals`` compares.

They are ``jb.optimise`` with its defaults, samplers of Optuna, log-EI of BoTorch, and random points.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from experiments.defaults.functions import Function
from jaxbandit import InvalidArgument
from jaxbandit.session import optimise

# Settings of BoTorch's search for the best of its rule.
RESTARTS, RAW = 8, 512
# From a function, its noisy values [1 + m] at a point [d] in the units of the axes, a number of evaluations and a seed, to the point that
# is recommended. Where there are constraints a player may recommend none.
Player: TypeAlias = Callable[[Function, Callable[[np.ndarray], np.ndarray], int, int], np.ndarray | None]


def by_jaxbandit(function: Function, evaluate: Callable[[np.ndarray], np.ndarray], evaluations: int, seed: int) -> np.ndarray:
    """Play ``jb.optimise`` with its defaults."""
    names = ["y", *(f"g{number}" for number in range(1, 1 + function.constraints))]

    def called(**point: float) -> dict[str, float]:
        return dict(zip(names, map(float, evaluate(np.array(list(point.values()), np.float64))), strict=True))

    limits = [f"{name} <= 0" for name in names[1:]]
    found = optimise(called, function.box, evaluations, objective="minimise y", constraints=limits, key=seed)
    return np.array(list(found.session.recommend().point.values()), np.float64)


def by_optuna(kind: str) -> Player:
    """Return the player of an Optuna sampler with its defaults."""

    def play(function: Function, evaluate: Callable[[np.ndarray], np.ndarray], evaluations: int, seed: int) -> np.ndarray | None:
        optuna = importlib.import_module("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=getattr(optuna.samplers, kind)(seed=seed))
        for _ in range(evaluations):
            trial, point = study.ask(), []
            for name, side in zip(function.box.names, function.box.sides, strict=True):
                if side.scale == "integers":
                    point.append(trial.suggest_int(name, int(side.low), int(side.high)))
                else:
                    point.append(trial.suggest_float(name, side.low, side.high, log=side.scale == "log"))
            value, *costs = map(float, evaluate(np.array(point, np.float64)))
            for number, cost in enumerate(costs, start=1):
                trial.set_constraint(f"g{number}", cost)
            study.tell(trial, value)
        return None if function.constraints else np.array(list(study.best_params.values()), np.float64)

    return play


def by_botorch(function: Function, evaluate: Callable[[np.ndarray], np.ndarray], evaluations: int, seed: int) -> np.ndarray:
    """Play BoTorch's ``SingleTaskGP`` with log-EI.

    With noise it is ``qLogNoisyExpectedImprovement``. ``2 (d + 1)`` Sobol points come first. It recommends the point of the best posterior
    mean among those evaluated.
    """
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.utils.sampling import draw_sobol_samples
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    dimension = function.box.dimension
    cube = torch.stack([torch.zeros(dimension), torch.ones(dimension)]).double()

    def at(points: Any) -> Any:
        values = [[-float(evaluate(np.asarray(function.box.from_unit(point.numpy())))[0])] for point in points]
        return torch.tensor(values, dtype=torch.float64)

    def fitted(x: Any, y: Any) -> Any:
        model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    x = draw_sobol_samples(cube, min(evaluations, 2 * (dimension + 1)), 1, seed=seed).squeeze(1)
    y = at(x)
    while len(x) < evaluations:
        model = fitted(x, y)
        rule = qLogNoisyExpectedImprovement(model, x) if function.noise else LogExpectedImprovement(model, best_f=y.max())
        point = optimize_acqf(rule, cube, q=1, num_restarts=RESTARTS, raw_samples=RAW)[0]
        x, y = torch.cat([x, point]), torch.cat([y, at(point)])
    model = fitted(x, y)
    with torch.no_grad():
        best = int(torch.argmax(model.posterior(x).mean[:, 0]))
    return np.asarray(function.box.from_unit(x[best].numpy()))


def at_random(function: Function, evaluate: Callable[[np.ndarray], np.ndarray], evaluations: int, seed: int) -> np.ndarray | None:
    """Evaluate points drawn evenly from the box, and recommend the best one."""
    points = np.asarray(function.box.snapped(np.random.default_rng([seed, 1]).random((evaluations, function.box.dimension))))
    points = np.asarray(function.box.from_unit(points))
    values = np.array([evaluate(point) for point in points])
    return None if function.constraints else points[np.argmin(values[:, 0])]


# Name: how it plays, and the modules that it needs, which are imported only when it is played.
PLAYERS: dict[str, tuple[Player, tuple[str, ...]]] = {
    "jaxbandit": (by_jaxbandit, ()),
    "GPSampler": (by_optuna("GPSampler"), ("optuna", "torch")),
    "TPESampler": (by_optuna("TPESampler"), ("optuna",)),
    "BoTorch": (by_botorch, ("botorch",)),
    "random": (at_random, ()),
}


def check_installed(players: tuple[str, ...]) -> None:
    """Raise ``InvalidArgument`` where a library that a player needs is not installed."""
    for player in players:
        for module in PLAYERS[player][1]:
            try:
                importlib.import_module(module)
            except ImportError as error:
                words = f'{player} needs {module}, which is not installed: pip install "jaxbandit[rivals]", or leave {player} out'
                raise InvalidArgument(f"--players: {words}") from error
