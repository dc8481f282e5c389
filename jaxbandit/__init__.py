"""Gaussian-process bandits with unknown constraints, thousands in one compiled program.

A study is a problem, an algorithm and a surrogate::

    problem = jaxbandit.problems.sine(50)
    model = jaxbandit.surrogate(problem.domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    run = jaxbandit.simulate(problem, jaxbandit.Rpol(), model, horizon=1000, trials=100, key=jax.random.key(0))

The same algorithms drive a real experiment: ``jaxbandit.Session`` chooses its points and stores the measured values.

Sign rule everywhere: maximise the reward; a constraint holds where its value is ``<= 0``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxbandit import algorithms, delays, domains, feedback, fused, kernels, problems, surrogates
from jaxbandit import numerics as acquisition
from jaxbandit._version import __version__
from jaxbandit.algorithms.registry import *  # noqa: F403
from jaxbandit.algorithms.registry import ALGORITHMS, Algorithm
from jaxbandit.core import checks, fields, keys, status
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.hints import missing
from jaxbandit.core.pytree import canonicalise, pytree, replace, static
from jaxbandit.core.status import Status, explain
from jaxbandit.core.sweep import Sweep, sweep
from jaxbandit.engine import Informed, InitialDesign, Learner, LearnerState, SafetyTable, Trajectory, certify, informed, simulate
from jaxbandit.host.cache import enable_cache
from jaxbandit.results import metrics
from jaxbandit.rules import consensus, estimators, penalties, safety, widths
from jaxbandit.surrogates import Surrogate, ranged, surrogate

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Informed",
    "InitialDesign",
    "InvalidArgument",
    "Learner",
    "LearnerState",
    "SafetyTable",
    "Status",
    "Sweep",
    "Trajectory",
]
__all__ += ALGORITHMS
__all__ += ["__version__", "acquisition", "algorithms", "canonicalise", "certify", "checks", "consensus", "delays", "domains"]
__all__ += ["enable_cache"]
__all__ += ["estimators", "explain", "feedback", "fields", "fused", "informed", "kernels", "keys", "metrics", "penalties", "problems"]
__all__ += ["pytree", "ranged", "replace", "safety", "simulate", "static", "status", "surrogate", "surrogates"]
__all__ += ["Surrogate", "sweep", "widths"]

if TYPE_CHECKING:
    from jaxbandit import gradients as gradients
    from jaxbandit import optuna as optuna
    from jaxbandit import report as report
    from jaxbandit import session as session
    from jaxbandit import sklearn as sklearn
    from jaxbandit import study as study
    from jaxbandit import testing as testing
    from jaxbandit.report import theory as theory
    from jaxbandit.report.comparison import compare as compare
    from jaxbandit.results.citations import cite as cite
    from jaxbandit.session import Session as Session
    from jaxbandit.session import Settled as Settled
    from jaxbandit.session import forecast as forecast
    from jaxbandit.session import optimise as optimise

# These modules need optax or extras: ``study``, ``optuna``, ``sklearn``. Their names stand here so that a misspelt name loads no module.
LATER = {
    "gradients": "Candidate GradientEstimate Replay SmoothedLoss SubjectTo Tuned best_feasible descend hard_violation logarithms"
    " positive_regret regret regret_and_violation replay",
    "optuna": "Sampler export",
    "report": "comparison html plots session statistics style tables theory watching",
    "session": "Axis CannotRecord DamagedSession DeclaredInfeasible Forecast Model ModelCheck Optimised Reason Recommendation Session"
    " SessionError SessionInUse Settled Settlement Specification Ticket forecast optimise read_toml",
    "sklearn": "SearchCV",
    "study": "BatchFailed CannotWrite CheckpointMismatch DirectoryInUse ExistingOutput HeldDirectory Keep Model Parser Plan Policy"
    " Progress Reporter Run Study TaskFailed Verification WorkerMismatch WorkersLost audit bundle compile_quickly connected"
    " ended flags_in_words forget from_table from_toml grid hold_directory interrupted made_before make_plan own_algorithm"
    " prepare_directory prepare_file read_results rerun run_study spread sweeps_without_effect to_dataframe tune"
    " use_all_cores verify write_results write_whole",
    "theory": "Claim TheoryCheck check",
    "testing": "check_algorithm check_delay check_kernel check_plot check_policy check_problem",
}
PLACES = {"theory": "report.theory"}
FROM = dict.fromkeys(("Session", "Settled", "forecast", "optimise"), "session") | {
    "cite": "results.citations",
    "compare": "report.comparison",
}
__dir__ = [*__all__, *FROM, *LATER].copy


def __getattr__(name: str) -> Any:
    """Load a name or module that the engine does not need."""
    if name in FROM:
        return getattr(importlib.import_module(f"jaxbandit.{FROM[name]}"), name)
    if name in LATER:
        return importlib.import_module(f"jaxbandit.{PLACES.get(name, name)}")
    within = {module.__name__.rpartition(".")[2]: module.__all__ for module in (kernels, delays, problems, domains, estimators)}
    within |= {module: names.split() for module, names in LATER.items()}
    return missing(__name__, __dir__(), within)(name)
