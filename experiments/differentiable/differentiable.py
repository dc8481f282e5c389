"""Hyper-parameters of RPOL tuned by derivatives of simulated studies.

It measures what they cost and what they are worth.

An algorithm on a grid chooses by a maximum, so its regret is piecewise constant in every hyper-parameter and has no useful derivative.
``jaxbandit.gradients.SmoothedLoss`` has that of the loss averaged over small steps, from pairs of trials on common random numbers. The
problem is ``sine`` (Guo, Zhu and Liu 2022, Figure 1), the loss the mean over rounds of ``(f* - f)^+ + g^+``.

Measured 2026-11-28 by ``python -m experiments differentiable``:
Panels of the figure, and what we get (20x20 points, T = 100, 1,000 held-out trials):
1. The loss about the paper's width of 3, over so many trials that its steps are small; after five random points it is lower.
2. The error of the gradient of four hyper-parameters against the number of trials, by method, each about its own mean: at 64 trials 0.15
   by factorial pairs, 0.19 one coordinate at a time, 0.42 along Gaussian directions.
3. Sixteen hyper-parameters, two schedules of seven widths among them, tuned by ``descend`` and by random search with as many trials
   (7,664): 0.87 at the paper's values, 0.459 after the descent, 0.631 after random search.
4. Where it is rash: seven hyper-parameters on 50x50 points over three times the rounds, with first steps of 0.4 on 64 trials. What the
   descent sees goes up to 0.45, from 0.344 at the start, before it falls; validation on fresh trials returns 0.130, its last step has
   0.131. Screening with smaller steps, the default, gets 0.124 here and is surer.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from experiments.common.experiment import Experiment, Options, no_code_note, study
from experiments.differentiable.measurements import errors_of_gradients, failing_descent, jump, random_search
from experiments.differentiable.settings import WIDTH, four, sine, sixteen
from jaxbandit.gradients import SmoothedLoss, descend
from jaxbandit.report import plots
from jaxbandit.report.plots import COLOURS, DASHES
from jaxbandit.report.statistics import half_width
from jaxbandit.study import Run, Study

# Each purpose has random numbers of its own.
JUMP, ERRORS, TUNING, FAILURE = range(4)
# Number of trials of a point of random search.
PER_POINT = 64
# Learning rate of Adam at the first step.
RATE = 0.2
# The descent that fails has this multiple of the rounds.
LONGER = 3
EFFORT = {"steps": 50, "pairs": 64, "validate": 112, "batches": 64, "widths": 512}
# Points per axis, steps and trials of the descent that fails.
EFFORT |= {"failing": 50, "failing_steps": 24, "failing_validate": 128}
QUICK = {"steps": 12, "pairs": 32, "validate": 32, "batches": 8, "widths": 16, "failing": 10, "failing_steps": 2, "failing_validate": 16}


def build(options: Options) -> Study:
    """Return the study of all settings on held-out trials."""
    effort = options.extra
    grid, horizon, steps = options.points_per_axis, options.horizon, effort["steps"]
    keys = [jax.random.fold_in(jax.random.key(options.seed), 1 + purpose) for purpose in range(4)]
    problem, model = sine(grid, horizon)
    setting = sixteen(model, horizon)
    loss = SmoothedLoss(problem, setting[1], horizon=horizon, pairs=effort["pairs"])
    every = max(1, steps // 6)
    adam = optax.adam(optax.cosine_decay_schedule(RATE, steps, 0.1), b1=0.8, b2=0.95)

    # Points at random are far away in sixteen dimensions, and the paper's values are a start that is good enough: nothing is screened.
    found = descend(loss, setting[0], keys[TUNING], optimizer=adam, steps=steps, screen=1, validate=effort["validate"], every=every)
    trials = loss.pairs // 2 + 2 * steps * loss.pairs + (2 + len(found.candidates)) * effort["validate"]
    searched = random_search(loss, setting, trials, PER_POINT, options.seed, keys[TUNING])
    sizes = (effort["failing"], LONGER * horizon, effort["failing_steps"], effort["failing_validate"], 2 * effort["failing_validate"])
    measured = {
        "tuning": {"trials": trials, "improvement": found.improvement, "interval": list(found.interval)},
        "jump": jump(problem, model, horizon, effort["widths"], keys[JUMP]),
        "errors": errors_of_gradients(problem, four(model), horizon, effort["batches"], keys[ERRORS]),
        "failure": failing_descent(*sizes, keys[FAILURE]),
    }
    settings = {"the paper's": setting[0], "descended": found.params, "random search": searched}
    runs = [Run(label, problem, *setting[1](jax.tree.map(jax.device_get, params))) for label, params in settings.items()]
    return study("differentiable", runs, options, {"points_per_axis": grid, **measured})


def notes(dataset: Any) -> list[str]:
    """Return what the descent won, and the figures behind the panels."""
    known = json.loads(dataset.attrs["parameters"])
    tuning, errors, failure = known["tuning"], known["errors"], known["failure"]
    low, high = tuning["interval"]
    loss = (dataset["positive_regret"] + dataset["hard_violation"]).isel(round=-1) / dataset.sizes["round"]
    descended, searched = (loss.sel(algorithm=label).values for label in ("descended", "random search"))
    better, half = float(np.mean(searched - descended)), float(half_width(searched - descended))
    words = "better than" if better > half else "worse than" if better < -half else "no better and no worse than"
    lines = [
        f"on held-out trials the descent has a loss of {descended.mean():.3f} a round, random search {searched.mean():.3f}: the descent is"
        f" {words} random search, by {better:.3f} +- {half:.3f}, paired by trial",
        f"descent of 16 hyper-parameters: {tuning['improvement']:.3f} a round better than the paper's values [{low:.3f}, {high:.3f}];"
        f" random search has as many trials, {tuning['trials']:,}",
        "relative error of the gradient at "
        + " / ".join(f"{count:,}" for count in errors["trials"])
        + " trials: "
        + "; ".join(f"{name} {' / '.join(f'{error:.2f}' for error in each)}" for name, each in errors["methods"].items()),
        f"{LONGER} times the rounds, loss of a round on held-out trials: "
        + ", ".join(f"{name} {mean:.3f} +- {half:.3f}" for name, (mean, half) in failure["held out"].items()),
        "share of these trials with a loss above 3, stuck in the trap: "
        + ", ".join(f"{name} {share:.1%}" for name, share in failure["stuck"].items()),
    ]
    return lines + no_code_note(dataset)


def draw(dataset: Any) -> Any:
    """Draw the four panels that the text of the experiment describes."""
    known = json.loads(dataset.attrs["parameters"])
    panels = [
        [partial(_jump, measured=known["jump"]), partial(_errors, measured=known["errors"])],
        [partial(_tuned, dataset=dataset), partial(_failure, measured=known["failure"])],
    ]
    return plots.compose("Tuning by derivatives of simulated studies, 95% intervals", panels)


def _jump(ax: Any, measured: dict[str, Any]) -> None:
    for name, colour in zip(("as it is", "after 5 random points"), COLOURS, strict=False):
        ax.errorbar(
            measured["widths"],
            measured[name]["mean"],
            measured[name]["half"],
            color=colour,
            marker="o",
            markersize=3,
            capsize=2,
            label=name,
        )
    ax.axvline(WIDTH, color="grey", linewidth=0.8, linestyle=":")
    ax.set(xlabel="width", ylabel="mean loss of a round", title="The loss about the paper's width")
    _legend_above(ax, 0.2, fontsize=8)


def _errors(ax: Any, measured: dict[str, Any]) -> None:
    for (name, each), colour, mark in zip(measured["methods"].items(), COLOURS, "os^", strict=False):
        ax.loglog(measured["trials"], each, color=colour, marker=mark, label=name)
    ax.set(xlabel="trials", ylabel="relative error", title="The gradient of four hyper-parameters")
    ax.set_xticks(measured["trials"], [f"{count:,}" for count in measured["trials"]])
    ax.set_yticks([0.05, 0.1, 0.2, 0.5], ["0.05", "0.1", "0.2", "0.5"])
    ax.minorticks_off()
    ax.legend(loc="lower left", fontsize=8)


def _tuned(ax: Any, dataset: Any) -> None:
    loss = dataset["positive_regret"] + dataset["hard_violation"]
    for number, label in enumerate(dataset["algorithm"].values):
        each = loss.sel(algorithm=label).values / np.arange(1, dataset.sizes["round"] + 1)
        mean, half = each.mean(axis=0), half_width(each)
        rounds = np.arange(1, len(mean) + 1)
        ax.plot(rounds, mean, color=COLOURS[number], linestyle=DASHES[number], label=f"{label}: {mean[-1]:.3f}")
        ax.fill_between(rounds, mean - half, mean + half, color=COLOURS[number], alpha=0.2, linewidth=0)
    ax.set(xlabel="round $t$", ylabel="$(R^+(t) + V(t))/t$", title="Sixteen hyper-parameters, held-out trials", yscale="log")
    _few_ticks(ax)
    _legend_above(ax, 0.35)


def _failure(ax: Any, measured: dict[str, Any]) -> None:
    ax.plot(measured["value"], color="grey", linewidth=0.8, label="loss that the descent sees")
    ax.plot(*zip(*measured["validated"], strict=True), "o", color=COLOURS[1], label="iterates on validation trials")
    for (name, (mean, half)), colour, dashes in zip(measured["held out"].items(), COLOURS, DASHES, strict=False):
        ax.axhline(mean, color=colour, linestyle=dashes, linewidth=1.2, label=f"{name}: {mean:.3f} $\\pm$ {half:.3f}")
    ax.set(xlabel="step", ylabel="mean loss of a round", title=f"Seven hyper-parameters, ${LONGER}T$ rounds", yscale="log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    _few_ticks(ax)
    _legend_above(ax, 0.6, fontsize=7)


def _few_ticks(axis: Any) -> None:
    """Label 1, 2 and 5 of each decade in plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter("{x:g}")


def _legend_above(axis: Any, share: float, **options: Any) -> None:
    """Add a legend at the top, with room for it.

    The room is this share of the axis so far.
    """
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** share if axis.get_yscale() == "log" else high + share * (high - low))
    axis.legend(loc="upper right", **options)


EXPERIMENT = Experiment(
    module=__name__,
    title="Tuning by derivatives of simulated studies: what it costs and what it is worth",
    position=35,
    defaults=Options(trials=1000, horizon=100, points_per_axis=20, extra=EFFORT),
    quick=Options(trials=50, horizon=40, points_per_axis=10, extra=QUICK),
    build=build,
    notes=notes,
    draw=draw,
)
