"""Package of the Optuna sampler for OptunaHub, written by a command."""

from __future__ import annotations

import shutil
from pathlib import Path

from jaxbandit import InvalidArgument, __version__

FIGURE = Path(__file__).parent / "figures" / "rivals.png"
HEAD = """\
---
author: The jaxbandit developers
title: Constrained Gaussian-process sampler of jaxbandit
description: Constrained expected improvement with fitted kernels, for noisy objectives, unknown constraints and trials in parallel.
tags: [sampler, Gaussian process, Bayesian optimization, constrained optimization, parallel]
optuna_versions: [5.0.0]
license: Apache License 2.0
---
"""
EXAMPLE = """\
import optuna
import optunahub


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -5, 5)
    y = trial.suggest_float("y", -5, 5)
    trial.set_user_attr("load", x + y)
    return (x - 2) ** 2 + (y - 2) ** 2


if __name__ == "__main__":
    module = optunahub.load_module("samplers/jaxbandit")
    sampler = module.Sampler(module.Cei(), key=0, constraints=["load <= 3"])
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=30)
    print(study.best_trial.value, study.best_trial.params)
"""
README = f"""\
{HEAD}
## Abstract

A Gaussian process with fitted length-scales and noise models the objective and every constraint, and constrained expected improvement
chooses the trials. Constraints are unknown functions with noise of their own, named with their limits. Running trials count as pending, so
that many workers share one study; failed and pruned trials are learnt from. Every choice follows from the trials and the key.

![Median gaps to the optimum on standard functions, beside other samplers](images/rivals.png)

## Class or Function Names

- Sampler
- Cei

## Installation

A clone of jaxbandit {__version__}, on no package index: `pip install ".[optuna,study]"`.

## Example

```python
{EXAMPLE}```

## Others

`Sampler(algorithm, model=None, *, key, constraints=None, points=None, horizon=1000, delay=None, feedback=None)` takes any algorithm of
jaxbandit. `optuna-dashboard` 0.21 does not show constraints of Optuna 5; `study.best_trial` respects them.
"""
INIT = '''\
"""Constrained Gaussian-process sampler of jaxbandit."""

from jaxbandit import Cei, optuna

Sampler = optuna.Sampler
__all__ = ["Cei", "Sampler"]
'''


def write_package(place: Path, *, force: bool = False) -> Path:
    """Write ``package/samplers/jaxbandit``, over another one only by ``force``."""
    package = place / "package" / "samplers" / "jaxbandit"
    if package.exists() and not force:
        raise InvalidArgument(f"out: {package} exists; add --force to replace it")
    (package / "images").mkdir(parents=True, exist_ok=True)
    for name, content in {"README.md": README, "__init__.py": INIT, "example.py": EXAMPLE}.items():
        (package / name).write_text(content)
    shutil.copy(FIGURE, package / "images")
    shutil.copy(Path(__file__).parents[1] / "LICENSE", package)
    return package
