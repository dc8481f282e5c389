"""jaxbandit: Gaussian-process bandits with unknown constraints, simulated by the thousand in one compiled program.

A study is a problem, an algorithm and a surrogate::

    problem = jaxbandit.problems.sine(50)
    model = jaxbandit.surrogate(problem.domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    run = jaxbandit.simulate(problem, jaxbandit.Rpol(), model, horizon=1000, trials=100, key=jax.random.key(0))

The same algorithms drive a real experiment: ``jaxbandit.Session`` asks for points and is told what was measured.

Sign rule everywhere: maximise the reward; a constraint holds where its value is ``<= 0``.
"""

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from jaxbandit import (
    acquisition,
    algorithms,
    consensus,
    delays,
    domains,
    estimators,
    feedback,
    fused,
    informed,
    kernels,
    metrics,
    penalties,
    problems,
    safety,
    surrogates,
    widths,
)
from jaxbandit._version import __version__
from jaxbandit.algorithms.registry import *  # noqa: F403  # the algorithms, listed there
from jaxbandit.algorithms.registry import ALGORITHMS, Algorithm
from jaxbandit.core import checks, fields, keys, status
from jaxbandit.core.cache import enable_cache
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.hints import missing
from jaxbandit.core.pytree import canonicalise, pytree, replace, static
from jaxbandit.core.status import Status, explain
from jaxbandit.core.sweep import Sweep, sweep
from jaxbandit.engine import Informed, InitialDesign, Trajectory, simulate
from jaxbandit.surrogates import Surrogate, ranged, surrogate

__all__ = ["ALGORITHMS", "Algorithm", "Informed", "InitialDesign", "InvalidArgument", "Status", "Sweep", "Trajectory", *ALGORITHMS]
__all__ += ["__version__", "acquisition", "algorithms", "canonicalise", "checks", "consensus", "delays", "domains", "enable_cache"]
__all__ += ["estimators", "explain", "feedback", "fields", "fused", "informed", "kernels", "keys", "metrics", "penalties", "problems"]
__all__ += ["pytree", "ranged", "replace", "safety", "simulate", "static", "status", "surrogate", "surrogates"]
__all__ += ["Surrogate", "sweep", "widths"]

if TYPE_CHECKING:
    from jaxbandit import gradients as gradients
    from jaxbandit import optuna as optuna
    from jaxbandit import report as report
    from jaxbandit import session as session
    from jaxbandit import study as study
    from jaxbandit.citations import cite as cite
    from jaxbandit.report.comparison import compare as compare
    from jaxbandit.session import Session as Session
    from jaxbandit.session import optimise as optimise

LATER = ("gradients", "optuna", "report", "session", "study")  # which need optax, or the extras ``study`` and ``optuna``
FROM = {"Session": "session", "cite": "citations", "compare": "report.comparison", "optimise": "session"}  # the modules of further names
__dir__ = [*__all__, *FROM, *LATER].copy
HOLDING = {"kernels": kernels, "delays": delays, "problems": problems, "domains": domains, "estimators": estimators}


def __getattr__(name: str) -> Any:
    """Load some names and modules when they are first asked for: the engine does not need what they need."""
    if name in FROM:
        return getattr(importlib.import_module(f"jaxbandit.{FROM[name]}"), name)
    if name in LATER:
        return importlib.import_module(f"jaxbandit.{name}")
    held = dict(HOLDING)
    for module in () if name.startswith("_") else LATER:
        with contextlib.suppress(ImportError):  # an extra is not installed
            held[module] = importlib.import_module(f"jaxbandit.{module}")
    return missing(__name__, __dir__(), held)(name)
