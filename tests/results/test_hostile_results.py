"""Results that are damaged, of something else or of another version are refused in one line by ``report`` and ``rerun``."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from jaxbandit import InitialDesign, InvalidArgument, RandomSearch
from jaxbandit.report import html
from jaxbandit.study import rerun, run_study
from tests.support import synthetic_results
from tests.support.small_study import in_python

BROKEN: list[Any] = [
    "",
    "{",
    "[]",
    "{}",
    "3",
    "null",
    '"x"',
    "[1]",
    '[["a"]]',
    '{"a": 1}',
    "[[0, 0, 0, 0]]",
    "[[12, 1, 20, 24], [12, 1, 20, 12]]",
    "[[1, 1]]",
    3,
    -1.5,
    np.arange(3),
]


@functools.cache
def whole() -> xr.Dataset:
    """Undamaged results of three runs."""
    algorithms = {name: RandomSearch() for name in "abc"}
    return run_study(in_python(algorithms=algorithms, delays=None, initial=InitialDesign(), horizon=3, trials=2))


@pytest.mark.full
@pytest.mark.parametrize("name", ["table", "fingerprint", "batches"])
def test_broken_attributes_in_a_rerun(name: str) -> None:
    for value in [None, *BROKEN]:
        attributes = {key: held for key, held in whole().attrs.items() if key != name}
        damaged = whole().copy()
        damaged.attrs = attributes if value is None else attributes | {name: value}
        with pytest.raises(InvalidArgument) as caught:
            rerun(damaged, 0)
        assert "\n" not in str(caught.value) and str(caught.value).startswith(("results: ", "study: "))


@pytest.mark.full
def test_results_of_another_version_are_said_to_be_so() -> None:
    old = whole().copy()
    old.attrs = old.attrs | {"versions": json.dumps({"jaxbandit": "0.0.1"}), "fingerprint": "of old"}
    with pytest.raises(InvalidArgument, match=r"written by another version of jaxbandit \(0\.0\.1, this is"):
        rerun(old, 0)
    old.attrs = old.attrs | {"table": json.dumps(json.loads(old.attrs["table"]) | {"rounds": 3})}
    with pytest.raises(InvalidArgument, match=r"rounds: unknown field.*another version of jaxbandit \(0\.0\.1"):
        rerun(old, 0)


def good() -> xr.Dataset:
    return synthetic_results.results(labels=("a", "b"), trials=3, rounds=8)


def with_attribute(name: str, value: Any) -> Callable[[xr.Dataset], xr.Dataset]:
    return lambda dataset: dataset.assign_attrs({name: value})


DAMAGE: dict[str, Callable[[xr.Dataset], xr.Dataset]] = {
    "no rounds": lambda d: d.isel(round=slice(0, 0)),
    "no trials": lambda d: d.isel(trial=slice(0, 0)),
    "no status": lambda d: d.drop_vars("status"),
    "no labels": lambda d: d.drop_vars("algorithm"),
    "no numbers of rounds": lambda d: d.drop_vars("round"),
    "equal labels": lambda d: d.assign_coords(algorithm=["a", "a"]),
    "rounds in words": lambda d: d.assign_coords(round=list("abcdefgh")),
    "status in words": lambda d: d.assign(status=(("algorithm", "trial"), np.full((2, 3), "ok"))),
    "status of trials": lambda d: d.assign(status=d.status.isel(algorithm=0, drop=True)),
    "regret in words": lambda d: d.assign(regret=(("algorithm", "trial", "round"), np.full((2, 3, 8), "x"))),
    "regret of all runs": lambda d: d.assign(regret=d.regret.isel(algorithm=0, drop=True)),
    "problem of each trial": lambda d: d.assign_coords(problem=("trial", list("xyz"))),
    "arrivals without outputs": lambda d: d.assign(arrival=(("algorithm", "trial"), np.ones((2, 3), int))),
    **{f"counted_before {v!r}": with_attribute("counted_before", v) for v in ("x", [1, 2])},
    **{f"swept {v!r}": with_attribute("swept", v) for v in ("[", 3)},
}


@pytest.mark.full
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_report_of_damaged_results(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that what was damaged is named before anything is drawn."""
    monkeypatch.setattr(html, "read_results", lambda folder: DAMAGE[damage](good()))
    with pytest.raises(InvalidArgument) as caught:
        html.write_report(tmp_path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("directory: ")
    assert not list(tmp_path.iterdir())


def test_what_was_not_foreseen_in_results_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "read_results", lambda folder: good())
    monkeypatch.setattr(html, "curve_pictures", lambda dataset: dataset["unheard of"])
    with pytest.raises(InvalidArgument, match=r"of versions .*0\.1.*, cannot be shown by .* they are damaged or of another version"):
        html.write_report(tmp_path)
