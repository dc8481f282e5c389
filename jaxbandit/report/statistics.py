"""Statistics of a study's trials: averages, paired differences, growth rates.

All functions read a results dataset with dimensions ``algorithm, trial, round`` (:func:`jaxbandit.study.run_study`), whose rounds may be
thinned. They leave out failed trials; ``count`` is the number of the other trials. If a measure is NaN in a trial that did not fail,
such as regret on an instance without a feasible point, the statistics are NaN too, and ``undefined`` is the number of such trials.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, TypeAlias

import numpy as np
import xarray as xr
from scipy.special import stdtr

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import KeyOrSeed, T, checked
from jaxbandit.core.fields import Check, numbers, whole
from jaxbandit.core.status import healthy
from jaxbandit.engine import Trajectory
from jaxbandit.host.memory import check_fits
from jaxbandit.numerics.intervals import half_width, standard_deviation
from jaxbandit.problems import AbstractProblem
from jaxbandit.problems.base import Seed
from jaxbandit.results.dataset import OneResult, Results, dataset_of_one, results_dataset
from jaxbandit.results.summary import results_of

__all__ = [
    "elapsed", "final_values", "growth_exponent", "half_width", "healthy_trials", "healthy_values", "holm", "over_trials",
    "paired_differences", "paired_final_values", "problem_groups", "resampling", "win_matrix",
]  # fmt: skip
__dir__ = __all__.copy


any_results = Check(
    "what simulate returns, a mapping from labels to such, or a dataset of results", lambda value: isinstance(value, Trajectory | Mapping)
)
AnyResults: TypeAlias = Annotated[Trajectory | Mapping[str, Trajectory] | xr.Dataset, any_results]
"""A trajectory from ``simulate``, a mapping from labels to trajectories, or a study's dataset."""

Resamples: TypeAlias = Annotated[int, whole(1, 10**6)]

PAIRS = ("algorithm", "versus")


def trajectories_of(results: object) -> dict[str, Trajectory] | None:
    """Return runs by their labels, or None if ``results`` are not runs."""
    if isinstance(results, Trajectory):
        return {results.label: results}
    if isinstance(results, Mapping) and not isinstance(results, xr.Dataset):
        if results and all(isinstance(label, str) and isinstance(run, Trajectory) for label, run in results.items()):
            return dict(results)
        raise InvalidArgument(f"results: a mapping must have labels and what simulate returns, got {short(results)}")
    return None


def results_at_hand(results: AnyResults, problem: AbstractProblem | None = None, *, key: KeyOrSeed | None = None) -> xr.Dataset:
    """Return a dataset of results, computing it from trajectories."""
    runs = trajectories_of(results)
    if runs is None:
        if isinstance(results, xr.Dataset) and "algorithm" not in results.dims and "trial" in results.dims:
            dataset_of_one("results", results)
            labels = [name for name, value in results.coords.items() if value.ndim == 0 and name != "algorithm"]
            return results.expand_dims("algorithm").assign_coords({name: ("algorithm", [results[name].item()]) for name in labels})
        results_dataset("results", results)
        return results  # type: ignore[return-value]
    return results_of({label: run.played() for label, run in runs.items()}, problem, key=key)


@checked
def elapsed(dataset: Results) -> np.ndarray:
    """Return the number of rounds, counting initial points, behind each value."""
    rounds = dataset["round"].values
    # A dataset without attributes has every round, and numbers the counted points before round 1 as 0, -1, ...
    return rounds + int(dataset.attrs.get("counted_before", max(0, 1 - int(rounds[0]))))


@checked
def healthy_trials(dataset: Results) -> np.ndarray:
    """Return booleans ``[..., trial]``, true for trials that did not fail."""
    return healthy(dataset.status.transpose(..., "trial").values)


def check_measure(argument: str, dataset: xr.Dataset, measure: str) -> None:
    """Raise ``InvalidArgument`` unless a dataset has a measure per trial and round."""
    of_round = ({"trial", "round"}, {"algorithm", "trial", "round"})
    known = [str(name) for name, variable in dataset.data_vars.items() if set(variable.dims) in of_round]
    checks.one_of(argument, measure, known)


@checked
def healthy_values(part: OneResult, measure: str, *, averaged: bool = False) -> np.ndarray:
    """Return a measure of healthy trials ``[trials, rounds]``, ``averaged`` over elapsed rounds.

    Raises:
      InvalidArgument: when the dataset has no such measure per trial and round.
    """
    check_measure("measure", part, measure)
    values = part[measure].transpose("trial", "round").values[healthy_trials(part)].astype(np.float64)
    return values / elapsed(part) if averaged else values


@checked
def final_values(part: OneResult, measure: str, *, averaged: bool = False) -> np.ndarray:
    """Return the last column of :func:`healthy_values`, ``[trials]``."""
    return healthy_values(part, measure, averaged=averaged)[:, -1]


@checked
def paired_final_values(dataset: Results, measure: str) -> np.ndarray:
    """Return final values ``[algorithm, trials]`` in trials that failed for no algorithm.

    Trials share random numbers across algorithms, so that differences between rows have less variance than the values.

    Raises:
      InvalidArgument: when the dataset has no such measure.
    """
    check_measure("measure", dataset, measure)
    last = dataset[measure].isel(round=-1).transpose("algorithm", "trial").values.astype(np.float64)
    return last[:, healthy_trials(dataset).all(axis=0)]


@checked
def over_trials(dataset: Results, measure: str, *, averaged: bool = False) -> xr.Dataset:
    """Summarise a measure over trials for every algorithm and round.

    Args:
      dataset: results of a study.
      measure: variable of the dataset, such as ``regret``.
      averaged: divide by the number of elapsed rounds.

    Returns:
      ``mean``, ``sd``, ``low`` and ``high`` (95% confidence of the mean) with dimensions ``algorithm, round``, ``count [algorithm]`` and
      ``undefined [algorithm]``. Without trials all statistics are NaN; with one trial ``sd``, ``low`` and ``high`` are NaN.

    Raises:
      InvalidArgument: when the dataset has no such measure.
    """
    parts = [healthy_values(dataset.isel(algorithm=a), measure, averaged=averaged) for a in range(dataset.sizes["algorithm"])]
    mean = np.stack([part.mean(axis=0) if len(part) else np.full(dataset.sizes["round"], np.nan) for part in parts])
    half = np.stack([half_width(part) for part in parts])
    per_round = {"mean": mean, "sd": np.stack([standard_deviation(part) for part in parts]), "low": mean - half, "high": mean + half}
    per_run = {"count": [len(part) for part in parts], "undefined": [np.isnan(part).any(axis=1).sum() for part in parts]}
    return xr.Dataset(
        {name: (("algorithm", "round"), values) for name, values in per_round.items()}
        | {name: ("algorithm", values) for name, values in per_run.items()},
        coords={"algorithm": dataset.algorithm.values, "round": dataset["round"].values},
    )


@checked
def paired_differences(dataset: Results, measure: str, *, seed: Seed, averaged: bool = False, resamples: Resamples = 2000) -> xr.Dataset:
    """Compare algorithms after the last round, trial by trial.

    Args:
      dataset, measure, averaged: as for :func:`over_trials`.
      seed: seed of the bootstrap over trials.
      resamples: number of the bootstrap's resamples.

    Returns:
      ``mean``, ``low`` and ``high`` (a 95% percentile interval) of the row's value minus the column's, ``p`` (two-sided, of Student's
      paired t test that the mean difference is 0), ``count`` (trials in which neither algorithm failed) and ``undefined``, with dimensions
      ``algorithm, versus``. Intervals come from resampled trials, the same trials for all pairs of equal count; they and ``p`` are NaN
      with fewer than two trials. For algorithms run on different problems ``comparable`` is false and the statistics are NaN. Nothing is
      corrected for the number of pairs, see :func:`holm`.

    Raises:
      InvalidArgument: when the dataset has no such measure, or ``resamples`` is out of range.
    """
    shape = (dataset.sizes["algorithm"],) * 2
    mean, low, high, p = np.full((4, *shape), np.nan)
    count, undefined, comparable = np.zeros(shape, int), np.zeros(shape, int), np.zeros(shape, bool)
    weights = functools.cache(lambda trials: resampling(trials, resamples, seed))
    for a, b, differences in _differences_of_pairs(dataset, measure, averaged):
        comparable[a, b] = comparable[b, a] = True
        count[a, b] = count[b, a] = n = len(differences)
        undefined[a, b] = undefined[b, a] = np.count_nonzero(np.isnan(differences))
        if n:
            mean[a, b] = differences.mean()
            # Subtract from 0 to avoid -0.0.
            mean[b, a] = 0 - mean[a, b]
        if n > 1 and not undefined[a, b]:
            low[a, b], high[a, b] = np.quantile(weights(n) @ differences, (0.025, 0.975))
            low[b, a], high[b, a] = 0 - high[a, b], 0 - low[a, b]
            error = standard_deviation(differences) / np.sqrt(n)
            p[a, b] = p[b, a] = 2 * stdtr(n - 1, -abs(mean[a, b] / error)) if error else mean[a, b] == 0
    tables = {"mean": mean, "low": low, "high": high, "p": p, "count": count, "undefined": undefined, "comparable": comparable}
    return xr.Dataset({name: (PAIRS, table) for name, table in tables.items()}, coords=dict.fromkeys(PAIRS, dataset.algorithm.values))


def _differences_of_pairs(dataset: xr.Dataset, measure: str, averaged: bool = False) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield pairs of algorithms on one problem with their differences."""
    check_measure("measure", dataset, measure)
    ok, keys = healthy_trials(dataset), _problem_keys(dataset)
    final = dataset[measure].isel(round=-1).transpose("algorithm", "trial").values.astype(np.float64)
    final = final / (elapsed(dataset)[-1] if averaged else 1)
    for a, b in itertools.combinations_with_replacement(range(len(keys)), 2):
        if keys[a] == keys[b]:
            both = ok[a] & ok[b]
            yield a, b, final[a, both] - final[b, both]


@checked
def holm(p: Annotated[Sequence[float] | np.ndarray, numbers]) -> np.ndarray:
    """Return p-values ``[...]`` corrected for their number, without counting NaN.

    Rejecting the hypotheses with corrected p-values up to 0.05 rejects any true hypothesis with probability 0.05 at most, however the tests
    depend on each other (Holm 1979, *A Simple Sequentially Rejective Multiple Test Procedure*). NaN stays NaN.

    Raises:
      InvalidArgument: when a number is below 0 or above 1.
    """
    values = np.asarray(p, np.float64)
    if np.any((values < 0) | (values > 1)):
        raise InvalidArgument(f"p: must lie in [0, 1] or be NaN, got {short(p)}")
    corrected = np.full(values.size, np.nan)
    order = np.argsort(values, axis=None, kind="stable")[: np.count_nonzero(~np.isnan(values))]
    steps = values.ravel()[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected.reshape(values.shape)


@checked
def win_matrix(dataset: Results, measure: str) -> xr.DataArray:
    """Return the share of trials that the row wins ``[algorithm, versus]``.

    A trial is won by the lower value after the last round, a tie counts as half. The matrix and its transpose sum to one. It is NaN for
    algorithms run on different problems, for pairs without a common trial, and for pairs with a value that is NaN.

    Raises:
      InvalidArgument: when the dataset has no such measure.
    """
    share = np.full((dataset.sizes["algorithm"],) * 2, np.nan)
    for a, b, differences in _differences_of_pairs(dataset, measure):
        if len(differences):
            share[a, b] = np.mean((1 - np.sign(differences)) / 2)
            share[b, a] = 1 - share[a, b]
    return xr.DataArray(share, dims=PAIRS, coords=dict.fromkeys(PAIRS, dataset.algorithm.values))


@checked
def growth_exponent(dataset: Results, measure: str, *, seed: Seed, resamples: Resamples = 1000) -> xr.Dataset:
    """Fit the growth exponent of a cumulative measure's mean.

    The exponent is the least-squares slope of ``log mean`` over ``log t`` after the first quarter of the rounds. One half is the papers'
    rate for smooth kernels, up to logarithms; one is linear growth.

    Args:
      dataset, measure: as for :func:`over_trials`; the measure is a sum over rounds, such as ``regret`` or ``hard_violation``.
      seed: seed of the bootstrap over trials.
      resamples: number of the bootstrap's resamples.

    Returns:
      ``exponent``, ``low``, ``high`` (a 95% percentile interval), ``count`` and ``reason``, with dimension ``algorithm``. ``reason`` is
      empty, or explains why numbers are NaN: a mean that is not positive has no logarithm, and an interval needs two trials and positive
      means in every resample.

    Raises:
      InvalidArgument: when the dataset has no such measure, or an argument is out of range.
    """
    t = elapsed(dataset)
    first = int(np.searchsorted(t, max(0.25 * t[-1], 1)))
    # The fit is to 64 rounds, equally spaced in log t.
    wanted = np.geomspace(max(t[first], 1), t[-1], 64)
    above = np.searchsorted(t, wanted).clip(first, len(t) - 1)
    below = (above - 1).clip(first)
    at = np.unique(np.where(wanted - t[below] < t[above] - wanted, below, above))
    log_t = np.log(t[at])
    parts = [healthy_values(dataset.isel(algorithm=a), measure)[:, at] for a in range(dataset.sizes["algorithm"])]
    weights = {count: resampling(count, resamples, seed) for count in {len(part) for part in parts}}
    fits = [(*_fitted_growth(log_t, part, weights[len(part)]), len(part)) for part in parts]
    exponent, low, high, reason, count = zip(*fits, strict=True)
    columns = {"exponent": exponent, "low": low, "high": high, "count": count, "reason": np.asarray(reason, object)}
    return xr.Dataset(
        {name: ("algorithm", np.asarray(column)) for name, column in columns.items()},
        coords={"algorithm": dataset.algorithm.values},
        attrs={"measure": measure, "first_round": int(t[at[0]]), "last_round": int(t[at[-1]])},
    )


@checked
def problem_groups(dataset: Results) -> list[list[str]]:
    """Group the labels of algorithms by their problem."""
    return [[str(dataset.algorithm.values[number]) for number in numbers] for numbers in grouped(_problem_keys(dataset)).values()]


def grouped(keys: Iterable[T]) -> dict[T, list[int]]:
    """Return the positions of each key, in the order of first occurrence."""
    numbers: dict[T, list[int]] = {}
    for number, key in enumerate(keys):
        numbers.setdefault(key, []).append(number)
    return numbers


def shared_start(dataset: xr.Dataset) -> list[str]:
    """Return a finding if all trials of an algorithm start alike."""
    measures = [name for name in ("hard_violation", "regret") if name in dataset and "regret" in dataset]
    names = next(([name] for name in ("index", "point") if name in dataset), measures)
    over = "played" if names and "played" in dataset[names[0]].dims else "round"
    if not names or 1 not in dataset[over] or dataset.sizes["trial"] < 2:
        return []
    first = [dataset[name].sel({over: 1}).transpose("algorithm", "trial", ...).values for name in names]
    alike = [(values == values[:, :1]) | (values != values) for values in first]
    shared = np.all([same.reshape(same.shape[0], -1).all(axis=1) for same in alike], axis=0)
    if not shared.any():
        return []
    whose = "every algorithm" if shared.all() and len(shared) > 1 else ", ".join(map(str, dataset.algorithm.values[shared]))
    advice = "so that intervals over trials leave out what another one would change; an initial design of random points draws one for each"
    return [f"All trials of {whose} begin at one point, {advice}."]


@checked
def resampling(count: Annotated[int, whole(0, 10**9)], resamples: Resamples, seed: Seed) -> np.ndarray:
    """Return the bootstrap's weights ``[resamples, count]``, shares of draws."""
    if count == 0:
        return np.zeros((resamples, 0))
    check_fits("count, resamples", 2 * 8 * resamples * count, f"{resamples:,} resamples of {count:,} trials", "take fewer")
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples) / count


def _problem_keys(dataset: xr.Dataset) -> list[str]:
    """Return the problem name of each algorithm, empty without a coordinate ``problem``."""
    if "problem" in dataset.coords:
        return [str(name) for name in np.broadcast_to(dataset["problem"].values, dataset.sizes["algorithm"])]
    return [""] * dataset.sizes["algorithm"]


def _fitted_growth(log_t: np.ndarray, trials: np.ndarray, weights: np.ndarray) -> tuple[float, float, float, str]:
    """Return exponent, interval and reason from ``trials [count, marks]``."""
    exponent = low = high = float("nan")
    centred = log_t - log_t.mean()
    slope = centred / (centred @ centred)
    if len(trials) == 0:
        reason = "no trial without failure"
    elif bad := np.isnan(trials).any(axis=1).sum():
        reason = f"undefined in {bad} of {len(trials)} trials"
    elif len(log_t) < 3:
        reason = f"only {len(log_t)} rounds to fit to, at least 3 are needed"
    elif not ((mean := trials.mean(axis=0)) > 0).all():
        reason = f"the mean is not positive (first seen at round {np.rint(np.exp(log_t[np.argmin(mean > 0)])):.0f})"
    else:
        exponent, resampled = float(np.log(mean) @ slope), weights @ trials  # [resamples, marks]
        if len(trials) == 1:
            reason = "no interval: a single trial"
        elif bad := np.count_nonzero((resampled <= 0).any(axis=1)):
            reason = f"no interval: the mean is not positive in {bad / len(resampled):.1%} of the resamples"
        else:
            reason = ""
            low, high = np.quantile(np.log(resampled) @ slope, (0.025, 0.975)).tolist()
    return exponent, low, high, reason
