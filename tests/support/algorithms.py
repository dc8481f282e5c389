"""Algorithms of the conformance tests by name."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import jaxbandit
from jaxbandit import estimators, penalties
from jaxbandit.algorithms.safe_sets import Safe

# With their usual strategy and settings.
DEFAULTS: dict[str, Callable[[], Any]] = {
    "rpol": jaxbandit.Rpol,
    "rpol-thompson": lambda: jaxbandit.Rpol(estimator=estimators.Thompson()),
    "cbo": lambda: jaxbandit.Cbo(reward_clip=4.0),
    "cbo-randomised": lambda: jaxbandit.Cbo(estimator=estimators.Randomised(), reward_clip=4.0),
    "config": jaxbandit.Config,
    "epbo": jaxbandit.Epbo,
    "scgp": lambda: jaxbandit.Scgp(reward_clip=4.0),
    "se2": lambda: jaxbandit.Se2(epoch=3),
    "se3": lambda: jaxbandit.Se3(epoch=3, restart=True),
    "unconstrained": jaxbandit.Unconstrained,
    "anytime-cbo": lambda: jaxbandit.Anytime(algorithm=jaxbandit.Cbo(reward_clip=4.0)),
}

# With other strategies and settings.
THOMPSON, RANDOMISED = estimators.Thompson(), estimators.Randomised()
UNIFORM = estimators.Randomised(distribution=estimators.DiscreteUniform(points=5))
TRUNCATED = estimators.Randomised(distribution=estimators.DiscreteGaussian(points=9))

# Clips are roomy, as above, so that scores seldom tie; combinations of outputs are drawn in Se2 and Se3.
VARIANTS: dict[str, Callable[[], Any]] = {
    "unconstrained-thompson": lambda: jaxbandit.Unconstrained(estimator=THOMPSON),
    "unconstrained-randomised": lambda: jaxbandit.Unconstrained(estimator=RANDOMISED),
    "rpol-randomised": lambda: jaxbandit.Rpol(estimator=TRUNCATED),
    "cbo-thompson": lambda: jaxbandit.Cbo(estimator=THOMPSON, reward_clip=4.0),
    "cbo-uniform": lambda: jaxbandit.Cbo(estimator=UNIFORM, reward_clip=8.0, cost_clip=8.0),
    "epbo-thompson": lambda: jaxbandit.Epbo(estimator=THOMPSON),
    "config-randomised": lambda: jaxbandit.Config(estimator=RANDOMISED),
    "scgp-2-thompson": lambda: jaxbandit.Scgp(estimator=THOMPSON, reward_clip=6.0, schedule=2),
    "se2-polynomial-restart": lambda: jaxbandit.Se2(psi=penalties.Polynomial(c=0.5), epoch=3, restart=True),
    "se2-thompson": lambda: jaxbandit.Se2(estimator=THOMPSON, epoch=2),
    "se3-randomised": lambda: jaxbandit.Se3(estimator=RANDOMISED, epoch=3),
    "bpe": lambda: jaxbandit.Bpe(width=0.5),
    "bpe-code": lambda: jaxbandit.Bpe(lengths="code", ties="random"),
    "anytime-cbo-keep": lambda: jaxbandit.Anytime(algorithm=jaxbandit.Cbo(reward_clip=4.0), keep_data=True),
    "se3-no-restart": lambda: jaxbandit.Se3(epoch=3),
    "anytime-se3-keep": lambda: jaxbandit.Anytime(algorithm=jaxbandit.Se3(epoch=3), keep_data=True),
}

# Baselines: with safe sets, expected improvement, dual variables alone, or without learning.
BASELINES: dict[str, Callable[[], Any]] = {
    "primal-dual": jaxbandit.PrimalDual,
    "cei": jaxbandit.Cei,
    "cei-observed": lambda: jaxbandit.Cei(incumbent="observed", improvement=0.1),
    "cei-augmented": lambda: jaxbandit.Cei(augmented=True),
    "constrained-thompson": jaxbandit.ConstrainedThompson,
    "safeopt": lambda: jaxbandit.SafeOpt(estimator=estimators.Bounds(reward_width=1.0, cost_width=0.5), count=3),
    "safeopt-lipschitz": lambda: jaxbandit.SafeOpt(seeds=np.array([3, 7]), lipschitz=2.0),
    "stageopt": lambda: jaxbandit.StageOpt(estimator=estimators.Bounds(reward_width=1.0, cost_width=0.5), count=3, exploration=5.0),
    "sgp-ucb": lambda: jaxbandit.SgpUcb(estimator=estimators.Bounds(reward_width=1.0, cost_width=0.5), count=3, warm_up=4.0),
    "random-search": jaxbandit.RandomSearch,
    "oracle": lambda: jaxbandit.Oracle(index=7),
}

# Algorithms that take a model of ``jaxbandit.ranged``.
ON_RANGED_MODELS: dict[str, Callable[[], Any]] = {
    "refitted-rpol": lambda: jaxbandit.Refitted(algorithm=jaxbandit.Rpol(), first=4, points=9, steps=4)
}

# Algorithms that are compared with their references in files of their own.
SEPARATE: dict[str, Callable[[], Any]] = {
    "admmbo": jaxbandit.Admmbo,
    "cobar": jaxbandit.Cobar,
    "msafeopt": jaxbandit.MSafeOpt,
    "oco": jaxbandit.Oco,
    "scbo": jaxbandit.Scbo,
    "ucbd": jaxbandit.UcbD,
}

# An algorithm of the registry that no line above makes takes part with its defaults, a safe one with three seeds. It needs a reference.
_MADE = {type(make()) for make in (DEFAULTS | VARIANTS | BASELINES | ON_RANGED_MODELS | SEPARATE).values()}
REGISTERED: dict[str, Callable[[], Any]] = {
    kind.name: functools.partial(kind, count=3) if issubclass(kind, Safe) else kind
    for kind in jaxbandit.ALGORITHMS.values()
    if kind not in _MADE
}

# These algorithms learn by `arena.learn`, in one program.
TABLES = {"defaults": DEFAULTS, "variants": VARIANTS, "baselines": BASELINES}
BASELINES = BASELINES | SEPARATE | REGISTERED | ON_RANGED_MODELS
ALGORITHMS = DEFAULTS | VARIANTS | BASELINES
assert len(ALGORITHMS) == len(DEFAULTS) + len(VARIANTS) + len(BASELINES), "every name is used once"

# They stand for all others where the engine is concerned: bounds and multipliers, draws and epochs, loops and flags, a wrapper.
REPRESENTATIVES = ("rpol", "se2-thompson", "safeopt", "anytime-cbo-keep")
