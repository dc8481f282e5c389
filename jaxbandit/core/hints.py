"""Hints after an unknown name, from other libraries, papers and near names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# Names elsewhere, in lower case, with their names here. The first known one counts.
ALIASES = {
    alias: here.split()
    for aliases, here in {
        "alpha noise_std": "noise_variance",
        "axes": "domain",
        "axis bounds search_space space": "axes domain",
        "budget": "evaluations horizon",
        "ei expectedimprovement": "Cei",
        "gaussianprocess gp": "surrogate",
        "iterations": "horizon evaluations steps",
        "kernel_length_scale lengthscale lengthscales": "length_scale",
        "matern": "Matern52",
        "minimise minimize optimize": "optimise",
        "n_trials": "evaluations trials",
        "num_trials": "trials",
        "outputscale": "variance",
        "random_state rng": "key seed",
        "rate": "mean",
        "rbf se": "SquaredExponential",
        "rounds": "horizon",
        "seed": "key",
        "sigma std stddev var": "sd",
        "ts": "ConstrainedThompson",
        "ucb": "Unconstrained",
        "variance": "noise_variance sd",
    }.items()
    for alias in aliases.split()
}

# Names of other libraries, in lower case and without underscores, by the text of the hint. The page "Coming from" has more on each.
ELSEWHERE = {
    "`Session.create` or `optimise`, and `study.Study` for simulations": "study",
    "`Session.create`, or `optimise` for a function": (
        "createstudy loadstudy trial client axclient experiment bayesianoptimization bayesopt optimizer bo optimizationloop"
    ),
    "`optimise`": "gpminimize forestminimize dummyminimize gbrtminimize maximize fmin optimizeacqf differentialevolution loop",
    "`(low, high)` in the axes of `optimise` or `Session.create`, or `session.Axis.between`": (
        "real suggestfloat suggestuniform rangeparameter rangeparameterconfig uniform hp searchspace pbounds space"
    ),
    "`domains.log` in the axes, or `session.Axis.between`": "suggestloguniform loguniform",
    "`domains.integers` in the axes": "integer suggestint quniform randint",
    "texts in the axes, or `session.Axis.of_categories`": (
        "suggestcategorical categorical choiceparameter choiceparameterconfig categoricaldistribution choice"
    ),
    "`surrogate`": (
        "singletaskgp fixednoisegp modellistgp heteroskedasticsingletaskgp mixedsingletaskgp gpregression sparsegpregression"
        " gaussianprocessregressor exactgp gpr fitgpytorchmll fitgpytorchmodel exactmarginalloglikelihood"
    ),
    "`Unconstrained`, whose `estimators.Bounds` have a width, the square root of BoTorch's beta": (
        "upperconfidencebound qupperconfidencebound gpucb lowerconfidencebound lcb utilityfunction acquisitionfunction"
    ),
    "`Cei`": (
        "logexpectedimprovement qexpectedimprovement qlogexpectedimprovement noisyexpectedimprovement"
        " qnoisyexpectedimprovement qlognoisyexpectedimprovement constrainedexpectedimprovement probabilityofimprovement"
        " logconstrainedexpectedimprovement"
    ),
    "`Unconstrained` with `estimators.Thompson`, or `ConstrainedThompson`": (
        "thompsonsampling thompson maxposteriorsampling constrainedmaxposteriorsampling pathwisethompsonsampling"
    ),
    "`Scbo`, which is TuRBO with constraints": "turbo turbo1 turbom turbostate",
    "`kernels.Scale`": "scalekernel constantkernel",
    "`kernels.SquaredExponential`": "rbfkernel expquad squaredexponentialkernel",
    "`kernels.Matern52`, `kernels.Matern32` or `kernels.Matern12`": "maternkernel",
    "`kernels.White`": "whitekernel",
    "`kernels.Periodic`": "expsinesquared periodickernel",
    "`kernels.Linear`": "dotproduct linearkernel",
    "`kernels.Categorical`": "categoricalkernel",
    "`domains.sobol`": "drawsobolsamples sobolengine sobolsampler",
    "`optuna.Sampler`": "tpesampler gpsampler botorchsampler cmaessampler nsgaiisampler sampler",
}


def elsewhere(name: str) -> str:
    """Return the hint for a name of another library, if any."""
    bare = name.replace("_", "").lower()
    here = next((words for words, names in ELSEWHERE.items() if bare in names.split()), "")
    return f"; here it is {here.replace('`', '')}, see the page 'Coming from Optuna, BoTorch or Ax'" if here else ""


def did_you_mean(name: str, known: Iterable[str], places: Mapping[str, str] | None = None) -> str:
    """Return ``", did you mean ...?"`` with a known name, or nothing."""
    shown = dict(places or {}) | {other: other for other in known}
    lowered = {other.lower(): other for other in shown}
    found = [other for other in ALIASES.get(name.lower(), ()) if other in shown]
    # A misspelt name shares at least seven letters of ten with the known name.
    found += [lowered[near] for near in difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.7)]
    # The beginning of a name, such as "length" for "length_scale", shares fewer letters with it, but counts if it has four.
    found += [lowered[other] for other in lowered if len(name) >= 4 and other.startswith(f"{name.lower()}_")]
    return f", did you mean {shown[found[0]]!r}?" if found else ""


def missing(namespace: str, names: Iterable[str], modules: Mapping[str, Iterable[str]] | None = None) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, with a hint at the nearest name."""

    def missing(name: str) -> Any:
        within = {other: f"{place}.{other}" for place, inside in (modules or {}).items() for other in inside}
        near = "" if name.startswith("_") else did_you_mean(name, names, within)
        is_here = name.lower() in ALIASES or (modules is None and name.lower() in map(str.lower, names))
        words = near if name.startswith("_") or (near and is_here) else elsewhere(name) or near
        raise AttributeError(f"module {namespace!r} has no attribute {name!r}{words}")

    return missing
