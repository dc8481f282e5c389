"""The cost of not knowing the kernel.

RPOL, CBO and CONFIG play with the right length-scale, with wrong ones, and with fitted ones.

Reward and constraint are drawn from a Gaussian process with length-scale 1 on [0, 6]^2; the learners' models have it, half of it, or twice
as much, or start from one of the wrong ones and fit length-scale, variance and noise variance by maximum posterior after 8, 16, 32, ...
rounds, for the reward and for the constraint (``Refitted``). All models of an algorithm but the fitted ones are one program.

The papers' bounds on regret and violation hold for functions in the RKHS of a kernel that is known. A length-scale that is too short
keeps them: functions of a longer one lie in its RKHS, too, with a norm up to ``2^(d/2)`` times as large for half of it (Bull 2011,
*Convergence rates of efficient global optimization algorithms*, Lemma 4), but there is more to learn, so regret is larger and still
sublinear. One that is too long breaks them: the function is in no such space, intervals are too narrow, and a learner can be sure of a
wrong point for good. Of fitted ones the papers say nothing (Berkenkamp, Schoellig and Krause 2019 bound the regret of a length-scale
that shrinks by plan, not of one that is fitted).

Measured 2026-11-28 by ``python -m experiments misspecified --trials 480``:
What we get (25x25, T = 300; differences to the right length-scale, trial by trial, with half of their 95% intervals):
- too short: RPOL and CONFIG R+(T) +86 +- 2, V(T) +23 +- 1; CBO +88 +- 2 and +23 +- 2, beside the right one.
  Curves flatten: it costs exploration, of unsafe points too.
- too long: positive regret is less in 59 to 68% of the trials, and far more in the others. In 30% of the trials no point within 0.05 of
  the optimum was found by the end (with the right one in less than 1%, CBO's 3%), and the mean goes on growing in proportion to t: RPOL
  and CONFIG +20 +- 7 by T = 300, CBO +8 +- 6. Few trials make it, so that 48 of them, the default, say little. Violation
  is lower (RPOL -5.6 +- 0.7), for little is explored.
- fitted from too short: nearly as good as the right one, R+(T) +9.7 +- 1.4 and V(T) +0.7 +- 0.4; CBO +6.4 +- 1.3 and -2.1 +- 1.6. In 1% of
  the trials (CBO 5%) no such point was found. A fit knows neither the mean nor the noise, which the right model has.
- fitted from too long: R+(T) +7.7 +- 1.9, CBO +5.4 +- 1.8. The first rounds were played with a model that is too sure, and in 2% of the
  trials (CBO 5%) no such point was found.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, spelling, study
from jaxbandit import checks
from jaxbandit.report import plots
from jaxbandit.report.statistics import half_width, paired_final_values
from jaxbandit.rules.estimators import Bounds
from jaxbandit.study import Run, Study

LENGTH_SCALE, NOISE_VARIANCE, SIDE = 1.0, 0.05, 6.0
# Number of random points before round 1.
FIRST = 5
MODELS = ("right", "too short", "too long", "fitted, from too short", "fitted, from too long")
MEASURES = {"positive_regret": "R+(T)", "hard_violation": "V(T)"}


MEASURED = (("positive_regret", "positive regret $R^+(t)$"), ("hard_violation", "violation $V(t)$"))


def algorithms() -> dict[str, jb.Algorithm]:
    """Return the algorithms by their labels."""
    bounds = Bounds(reward_width=3.0, cost_width=3.0)
    return {
        "RPOL-UCB": jb.Rpol(estimator=bounds),
        "CBO-UCB": jb.Cbo(estimator=bounds, reward_clip=4.0, cost_clip=4.0, dual_cap=10.0),
        "CONFIG": jb.Config(estimator=bounds),
    }


def build(options: Options) -> Study:
    """Return the study of every algorithm with every model."""
    factor = options.extra["factor"]
    checks.within("--factor", factor, 1.0, 4.0)
    domain = jb.domains.grid([0.0, 0.0], [SIDE, SIDE], options.points_per_axis)
    kernel = jb.kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    problem = jb.problems.gp_draws(domain=domain, kernel=kernel, noise=jb.problems.Gaussian(variance=NOISE_VARIANCE))
    ends = {"right": LENGTH_SCALE, "too short": LENGTH_SCALE / factor, "too long": LENGTH_SCALE * factor}
    model = jb.ranged(
        domain, kernel, low=ends["too short"], high=ends["too long"], noise_variance=NOISE_VARIANCE, horizon=options.horizon + FIRST
    )
    # There is a fit for the reward, and one for the constraint.
    apart = model.separate()
    runs = []
    played = tuple(options.extra["algorithms"])
    for name in played:
        checks.one_of("--algorithms", name, tuple(algorithms()))
        algorithm = algorithms()[name]
        for words in MODELS:
            of, fitted = words.removeprefix("fitted, from "), words.startswith("fitted")
            runs.append(
                Run(
                    f"{name}, {words}",
                    problem,
                    jb.Refitted(algorithm=algorithm) if fitted else algorithm,
                    jb.replace(apart if fitted else model, length_scale=ends[of]),
                    initial=jb.InitialDesign(random=FIRST),
                )
            )
    return study("misspecified", runs, options, {"points_per_axis": options.points_per_axis, "factor": factor, "algorithms": played})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this experiment to a parser."""
    extra = parser.get_default("option_defaults").extra
    words = "factor by which wrong length-scales are too short or too long (default %(default)s)"
    parser.add_argument("--factor", type=float, default=extra["factor"], metavar="F", help=words)
    words = f"some of {', '.join(algorithms())} (default {', '.join(extra['algorithms'])})"
    parser.add_argument("--algorithms", type=spelling(algorithms()), nargs="+", default=extra["algorithms"], metavar="NAME", help=words)


def notes(dataset: Any) -> list[str]:
    """Return each algorithm's paired differences from the right model."""
    known = json.loads(dataset.attrs["parameters"])
    lines = [
        f"length-scale {LENGTH_SCALE:g}; too short and too long by a factor of {known['factor']:g}; +-: half of a 95% interval over trials",
        "the papers' bounds hold with the right kernel only: a length-scale that is too long makes intervals too narrow",
    ]
    final = {name: paired_final_values(dataset, name) for name in MEASURES}
    for place, name in enumerate(known["algorithms"]):
        parts = []
        for number, words in enumerate(MODELS[1:], start=1):
            above = {measure: values[place * len(MODELS) + number] - values[place * len(MODELS)] for measure, values in final.items()}
            shown = (f"{MEASURES[measure]} {each.mean():+.1f} +- {half_width(each):.1f}" for measure, each in above.items())
            parts.append(f"{words} {', '.join(shown)}")
        lines.append(f"{name} above the right length-scale: {'; '.join(parts)}")
    if known["set"] != "recommended":
        lines.append("there is one set of parameters, recommended: --parameters has no effect here")
    return lines


def draw(dataset: Any) -> Any:
    """Draw cumulative positive regret and violation of each algorithm under all models."""
    names = json.loads(dataset.attrs["parameters"])["algorithms"]

    def panel(ax: Any, name: str, measure: str, words: str) -> None:
        lines = {words: f"{name}, {words}" for words in MODELS}
        plots.cumulative(dataset, measure, lines, heading=name, ylabel=words, ax=ax)
        # One legend for all panels stands below them.
        ax.get_legend().remove()

    panels = [partial(panel, measure=measure, words=words) for measure, words in MEASURED]
    rows = (
        [[partial(each, name=name) for name in names] for each in panels]
        if len(names) > 1
        else [[partial(each, name=names[0]) for each in panels]]
    )
    title = "Length-scales right, wrong and fitted: means with 95% intervals (thin: medians)"
    figure = plots.compose(title, rows, one_scale=len(names) > 1)
    plots.legend_below(figure)
    return figure


EXPERIMENT = Experiment(
    module=__name__,
    title="What a wrong or a fitted length-scale costs RPOL, CBO and CONFIG",
    position=31,
    defaults=Options(trials=48, horizon=300, points_per_axis=25, extra={"factor": 2.0, "algorithms": tuple(algorithms())}),
    quick=Options(trials=6, horizon=48, points_per_axis=12, extra={"factor": 2.0, "algorithms": ("RPOL-UCB",)}),
    build=build,
    notes=notes,
    draw=draw,
    add_arguments=add_arguments,
)
