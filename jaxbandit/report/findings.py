"""Sentences that say in plain words what the numbers of a study's results show; one or two stand above each section of a report."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from jaxbandit.report.statistics import (
    elapsed,
    final_values,
    growth_exponent,
    holm,
    over_trials,
    paired_differences,
    paired_final_values,
    problem_groups,
)
from jaxbandit.report.sweeps import families, sweeps_of
from jaxbandit.report.traces import delay_groups

LEVEL = 0.05  # probability of any error among the comparisons of one measure on one problem
# Measures that sentences speak of, with their name and what an algorithm of a smaller value does.
VERBS = {"hard_violation": ("violation", "violates less than"), "regret": ("regret", "has less regret than")}


def summary(dataset: xr.Dataset) -> list[str]:
    """Return the algorithm with the least mean violation and that with the least mean regret, on each problem."""
    found = []
    for part, note, name in _compared(dataset):
        last = over_trials(part, name, averaged=True, levels=()).isel(round=-1)
        means = last["mean"].values
        if np.nansum(np.abs(means)) > 0:  # without constraints nothing is violated
            best = int(np.nanargmin(means))
            value = in_words(means[best], float(last.high[best]) - means[best])
            found.append(f"Least {VERBS[name][0]} per round{note}: {part.algorithm.values[best]}, {value}.")
    return found + shared_start(dataset)


def shared_start(dataset: xr.Dataset) -> list[str]:
    """Return whose trials all begin at one point, as far as the points or the measures of round 1 are there to show it."""
    names = ["index"] if "index" in dataset else [name for name in VERBS if name in dataset and "regret" in dataset]
    over = "played" if names and "played" in dataset[names[0]].dims else "round"
    if not names or 1 not in dataset[over] or dataset.sizes["trial"] < 2:
        return []
    first = [dataset[name].sel({over: 1}).transpose("algorithm", "trial").values for name in names]
    shared = np.all([values == values[:, :1] for values in first], axis=(0, 2))
    if not shared.any():
        return []
    whose = "every algorithm" if shared.all() and len(shared) > 1 else ", ".join(map(str, dataset.algorithm.values[shared]))
    advice = "so that intervals over trials leave out what another one would change; an initial design of random points draws one for each"
    return [f"All trials of {whose} begin at one point, {advice}."]


def curves(dataset: xr.Dataset) -> list[str]:
    """Return how far the violation per round falls between a tenth of the run and its end."""
    name = "hard_violation"
    at = int(np.searchsorted(elapsed(dataset), elapsed(dataset)[-1] / 10))
    if name not in dataset or len(elapsed(dataset)) < 2 or at == len(elapsed(dataset)) - 1:
        return []
    mean = over_trials(dataset, name, averaged=True, levels=())["mean"]
    early, late = mean.values[:, at], mean.values[:, -1]
    known = np.isfinite(early) & np.isfinite(late)
    if not known.any():
        return []
    if not np.any(early[known] > 0) and not np.any(late[known] > 0):
        return ["No algorithm violates a constraint in the mean."]
    share = np.where(known & (early > 0), late / np.where(early > 0, early, 1), np.inf)
    fallen = int(np.argmin(share))
    first, last = (f"{int(elapsed(dataset)[i]):,}" for i in (at, -1))
    if share[fallen] >= 1:
        return [f"No algorithm's violation per round falls between rounds {first} and {last}."]
    label = dataset.algorithm.values[fallen]
    return [f"Violation per round falls most for {label}: from {early[fallen]:.3g} at round {first} to {late[fallen]:.3g} at round {last}."]


def spread(dataset: xr.Dataset) -> list[str]:
    """Return the algorithm whose violation differs most between trials."""
    name = "hard_violation"
    if name not in dataset or dataset.sizes["trial"] < 4:
        return []
    ranges = {}
    for label in map(str, dataset.algorithm.values):
        values = final_values(dataset.sel(algorithm=label), name, averaged=True)
        if len(values) > 3 and np.isfinite(values).all():
            ranges[label] = np.quantile(values, [0.05, 0.95])
    if not ranges:
        return []
    widest = max(ranges, key=lambda label: float(np.ptp(ranges[label])))
    low, high = ranges[widest]
    most = "Violation per round differs most between trials of" if len(ranges) > 1 else "Violation per round differs between trials of"
    return [f"{most} {widest}: nine tenths of them lie between {low:.3g} and {high:.3g}."]


def sweep(dataset: xr.Dataset) -> list[str]:
    """Return the swept value of the least mean violation and that of the least mean regret, for each swept algorithm."""
    found = []
    for parameters, part in sweeps_of(dataset):
        for family, members in families(part, *parameters):
            for name in _present(members):
                last = over_trials(members, name, averaged=True, levels=()).isel(round=-1)
                means = last["mean"].values
                if len(means) > 1 and np.isfinite(means).all() and np.ptp(means) > 0:
                    least = int(np.argmin(means))
                    where = ", ".join(f"{parameter} {float(members[parameter][least]):g}" for parameter in parameters)
                    value = in_words(means[least], float(last.high[least]) - means[least])
                    found.append(f"{family}: least {VERBS[name][0]} per round at {where}, {value}.".lstrip(": "))
    return found


def delays(dataset: xr.Dataset) -> list[str]:
    """Return how late the values were, for each delay model."""
    found = []
    for words, labels in delay_groups(dataset) if "arrival" in dataset else ():
        part = dataset.sel(algorithm=labels[0])
        late = part.arrival.transpose("trial", "played", "output").values - part.played.values[None, :, None]
        here = part.arrival.transpose("trial", "played", "output").values <= part.played.values[-1]
        if here.any():
            middle, most = np.quantile(late[here], [0.5, 0.95])
            missing = f"; {1 - here.mean():.1%} had not arrived at the end" if not here.all() else ""
            found.append(f"{words}: half of the values that arrived came within {middle:.0f} rounds, 95% within {most:.0f}{missing}.")
    return found


def differences(dataset: xr.Dataset, seed: int) -> list[str]:
    """Return how many pairs of algorithms differ in each measure once corrected for the number of pairs."""
    found = []
    for part, note, name in _compared(dataset):
        pairs = paired_differences(part, name, seed=seed, averaged=True, resamples=1)
        p = pairs.p.values[np.triu_indices(part.sizes["algorithm"], 1)]
        known = np.count_nonzero(~np.isnan(p))
        if known:
            sure = np.count_nonzero(holm(p) <= LEVEL)
            differ = "pair differs" if known == 1 else "pairs differ"
            found.append(f"{sure} of {known} {differ} in {VERBS[name][0]}{note} at the {LEVEL:.0%} level, corrected by Holm's method.")
    return found


def wins(dataset: xr.Dataset) -> list[str]:
    """Return the pair of algorithms of which one has less violation in most trials, and likewise regret."""
    found = []
    for part, note, name in _compared(dataset):
        final, labels = paired_final_values(part, name), part.algorithm.values
        if not final.shape[1] or not np.isfinite(final).all():
            continue
        less = np.stack([np.count_nonzero(row < final, axis=1) for row in final])  # [a, b] trials in which a is below b
        a, b = np.unravel_index(np.argmax(less), less.shape)
        if less[a, b]:
            found.append(f"{labels[a]} {VERBS[name][1]} {labels[b]} in {less[a, b]} of {final.shape[1]} trials{note}.")
    return found


def growth(dataset: xr.Dataset, seed: int) -> list[str]:
    """Return the algorithm whose violation grows slowest, if its exponent is known to be below 1, and who cannot be told from linear."""
    name = "hard_violation"
    if name not in dataset:
        return []
    fits = growth_exponent(dataset, name, seed=seed)
    labels, known = dataset.algorithm.values, np.isfinite(fits.high.values)
    if not known.any():
        return []
    sublinear = known & (fits.high.values < 1)
    best = int(np.nanargmin(np.where(known, fits.exponent.values, np.nan)))
    counted = f"Violation grows slower than linearly for {np.count_nonzero(sublinear)} of {np.count_nonzero(known)} algorithms"
    return [f"{counted}; slowest for {labels[best]}, as t^{float(fits.exponent[best]):.2f}."]


def _compared(dataset: xr.Dataset) -> Iterator[tuple[xr.Dataset, str, str]]:
    """Yield for each measure of sentences the algorithms on one problem, at least two, and a note on it where there are several."""
    groups = problem_groups(dataset)
    for labels in groups:
        part = dataset.sel(algorithm=labels)
        note = f" on {part['problem'].values[0]}" if len(groups) > 1 else ""
        yield from ((part, note, name) for name in _present(part) if len(labels) > 1)


def _present(dataset: xr.Dataset) -> list[str]:
    """Return the measures that sentences speak of, as far as a dataset holds them and they are not NaN throughout."""
    return [name for name in VERBS if name in dataset and np.isfinite(dataset[name].values).any()]


def in_words(mean: float, half: float) -> str:
    """Return a mean with the half-width of its 95% interval as text."""
    return (f"{mean:.3g}" + (f" ± {half:.2g}" if np.isfinite(half) else "")) if np.isfinite(mean) else "undefined"
