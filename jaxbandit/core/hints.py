"""Hints after a name that is not there: names of other libraries and papers, and the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

SHORTEST = 4  # letters of the beginning of a name by which that is meant
NEAR = 0.7  # share of letters that a misspelt name has in common with what was meant, at least

# Names elsewhere, in lower case, and what stands for them here: the first of these that is known where the name was looked for.
ALIASES = {
    "alpha": ("noise_variance",),
    "axes": ("domain",),
    "axis": ("axes", "domain"),
    "bounds": ("axes", "domain"),
    "budget": ("evaluations", "horizon"),
    "ei": ("Cei",),
    "expectedimprovement": ("Cei",),
    "gaussianprocess": ("surrogate",),
    "gp": ("surrogate",),
    "iterations": ("horizon", "evaluations", "steps"),
    "kernel_length_scale": ("length_scale",),
    "lengthscale": ("length_scale",),
    "lengthscales": ("length_scale",),
    "matern": ("Matern52",),
    "minimise": ("optimise",),
    "minimize": ("optimise",),
    "n_trials": ("evaluations", "trials"),
    "noise_std": ("noise_variance",),
    "num_trials": ("trials",),
    "optimize": ("optimise",),
    "outputscale": ("variance",),
    "random_state": ("key", "seed"),
    "rate": ("mean",),
    "rbf": ("SquaredExponential",),
    "rng": ("key", "seed"),
    "rounds": ("horizon",),
    "seed": ("key",),
    "search_space": ("axes", "domain"),
    "se": ("SquaredExponential",),
    "sigma": ("sd",),
    "space": ("axes", "domain"),
    "std": ("sd",),
    "stddev": ("sd",),
    "ts": ("ConstrainedThompson",),
    "ucb": ("Unconstrained",),
    "var": ("sd",),
    "variance": ("noise_variance", "sd"),
}

# Names of other libraries, in lower case and without underscores, by what to write here; the page "Coming from" has more of each.
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
    """Return what stands here for a name of another library, ``"; here it is ..."``; nothing for other names."""
    bare = name.replace("_", "").lower()
    here = next((words for words, names in ELSEWHERE.items() if bare in names.split()), "")
    return f"; here it is {here.replace('`', '')}, see the page 'Coming from Optuna, BoTorch or Ax'" if here else ""


def did_you_mean(name: str, known: Iterable[str], places: Mapping[str, str] | None = None) -> str:
    """Return ``", did you mean ...?"`` with what stands for a name here, or the known one nearest to it; nothing where none is near.

    Names that are known in other ``places`` are shown with these.
    """
    shown = dict(places or {}) | {other: other for other in known}
    lowered = {other.lower(): other for other in shown}
    found = [other for other in ALIASES.get(name.lower(), ()) if other in shown]
    found += [lowered[near] for near in difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=NEAR)]
    # The beginning of a name, as in "length" for "length_scale", has few letters in common with it.
    found += [lowered[other] for other in lowered if len(name) >= SHORTEST and other.startswith(f"{name.lower()}_")]
    return f", did you mean {shown[found[0]]!r}?" if found else ""


def missing(namespace: str, names: Iterable[str], modules: Mapping[str, Iterable[str]] | None = None) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module with public ``names``, which says which of these, or of those in ``modules``, was meant."""

    def missing(name: str) -> Any:
        within = {other: f"{place}.{other}" for place, inside in (modules or {}).items() for other in inside}
        near = "" if name.startswith("_") else did_you_mean(name, names, within)
        is_here = name.lower() in ALIASES or (modules is None and name.lower() in map(str.lower, names))
        words = near if name.startswith("_") or (near and is_here) else elsewhere(name) or near
        raise AttributeError(f"module {namespace!r} has no attribute {name!r}{words}")

    return missing
