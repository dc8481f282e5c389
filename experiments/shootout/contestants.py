"""The algorithms of the shoot-out, and their runs.

Each fits some kinds of problems. The runs are of all pairs that fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jaxbandit as jb
from experiments.common.experiment import Options, with_defaults
from experiments.shootout.arenas import PROBLEMS, START
from experiments.zhou_ji_2022 import shared
from experiments.zhou_ji_2022.scgp import bounds_of_instance
from jaxbandit.engine.informed import BestPoint
from jaxbandit.feedback import Censor, Hallucinate
from jaxbandit.rules.estimators import Bounds, Randomised, Thompson
from jaxbandit.rules.widths import Censored
from jaxbandit.study import Run

# Window of algorithms that censor.
WINDOW = 30
# Width of unconstrained learners on interpolants of norm 10, as in ``delay-sweep``.
WIDTH_OF_DRAWS = 6.0


@dataclasses.dataclass(frozen=True)
class Contestant:
    """An algorithm with its facts, feedback policy and kinds of problems."""

    algorithm: Any
    kinds: tuple[str, ...]
    informed: jb.Informed | None = None
    feedback: Any = None
    initial: jb.InitialDesign = jb.InitialDesign()


def safe_point_of_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Give an algorithm with a safe set one safe point.

    It is not the safest, because on some problems that is the best.
    """
    return jb.replace(algorithm, seeds=shared.typical_safe_point(instance)[None]), surrogate


# Feedback is on the point chosen, on all outputs.
BANDIT = ("box", "arms", "late")
EVERYWHERE = (*BANDIT, "revealed", "late, free")


def _bounds(width: Any) -> Bounds:
    return Bounds(reward_width=width, cost_width=width)


def contestants() -> dict[str, Contestant]:
    """Return all contestants, the library's other algorithms with their defaults."""
    own = _own_entries()
    known = {type(who.algorithm) for who in own.values()}
    others = {kind.title: kind() for kind in with_defaults() if kind not in known}
    return own | {
        title: Contestant(algorithm, kinds_for(algorithm), safe_point_of_instance if algorithm.traits.certifies else None)
        for title, algorithm in others.items()
    }


def kinds_for(algorithm: jb.Algorithm) -> tuple[str, ...]:
    """Return the kinds of problems that fit an algorithm's declared roles."""
    if algorithm.traits.sees_constraints:
        return ("revealed",)
    return tuple(kind for kind in BANDIT if kind != "late" or not algorithm.traits.needs_feedback_at_once)


def _own_entries() -> dict[str, Contestant]:
    """Return the contestants with settings or kinds of their own."""

    def cautious(algorithm: Any) -> Contestant:
        return Contestant(algorithm, BANDIT, safe_point_of_instance)

    def clipped(estimator: Any) -> Contestant:
        return Contestant(jb.Cbo(estimator=estimator), BANDIT, shared.clip_to_instance)

    free = ("late, free",)
    ucb = jb.Unconstrained(estimator=_bounds(WIDTH_OF_DRAWS))
    return {
        "RPOL": Contestant(jb.Rpol(), BANDIT),
        "RPOL censored": Contestant(jb.Rpol(estimator=_bounds(Censored())), ("late",), feedback=Censor(window=WINDOW)),
        "RPOL hallucinating": Contestant(jb.Rpol(), ("late",), feedback=Hallucinate()),
        "CONFIG": Contestant(jb.Config(), BANDIT),
        "EPBO": Contestant(jb.Epbo(), BANDIT),
        "CBO-UCB": clipped(Bounds()),
        "CBO-TS": clipped(Thompson()),
        "CBO-Rand": clipped(Randomised()),
        "Primal-dual": Contestant(jb.PrimalDual(), BANDIT),
        "SE22 Alg. 2": Contestant(jb.Se2(), BANDIT),
        "SE22 Alg. 3": Contestant(jb.Se3(), BANDIT),
        "SCGP-UCB": Contestant(jb.Scgp(), ("revealed",), bounds_of_instance),
        "CEI": Contestant(jb.Cei(), BANDIT),
        "Thompson": Contestant(jb.ConstrainedThompson(), BANDIT),
        "SafeOpt": cautious(jb.SafeOpt()),
        "StageOpt": cautious(jb.StageOpt()),
        "SGP-UCB": cautious(jb.SgpUcb()),
        "M-SafeOpt": dataclasses.replace(cautious(jb.MSafeOpt()), kinds=("box", "late")),
        "ADMMBO": Contestant(jb.Admmbo(), ("box",), initial=jb.InitialDesign(random=START)),
        "OCO": Contestant(jb.Oco(), ("box",)),
        "GP-UCB": Contestant(ucb, ("box", "arms", *free)),
        "GP-TS": Contestant(jb.Unconstrained(estimator=Thompson()), free),
        "GP-BUCB": Contestant(ucb, free, feedback=Hallucinate()),
        "GP-UCB-SDF": Contestant(jb.Unconstrained(estimator=_bounds(Censored(base=WIDTH_OF_DRAWS))), free, feedback=Censor(window=WINDOW)),
        "BPE": Contestant(jb.Bpe(aware=False), free),
        "BPE-Delay": Contestant(jb.Bpe(), free),
        "Random": Contestant(jb.RandomSearch(), EVERYWHERE),
        "Oracle": Contestant(jb.Oracle(), ("box", "arms", "revealed"), BestPoint()),
    }


def runs(options: Options) -> Iterator[Run]:
    """Return the runs of every chosen algorithm on every fitting problem."""
    everybody = {name: who for name, who in contestants().items() if name in options.extra["algorithms"]}
    for name in options.extra["problems"]:
        arena = PROBLEMS[name](options.points_per_axis).tabulated(options)
        model = arena.model(options.horizon)
        for label, who in everybody.items():
            if arena.kind not in who.kinds:
                continue
            yield Run(
                label=f"{name}: {label}",
                problem=arena.shifted if isinstance(who.feedback, Censor) and arena.shifted is not None else arena.problem,
                algorithm=who.algorithm,
                model=model,
                feedback=who.feedback,
                informed=who.informed,
                initial=who.initial,
            )
