"""Studies that fit hyper-parameters: to data of a file before round 1, to each trial's initial design, and on the way.

Every fit is recomputed in NumPy from what the results hold: the rows of the study's table and the trajectory of a trial, whose choices
follow from the fits in force.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.study import Model, grid, run_study
from jaxbandit.study.study import from_table
from tests.oracles import bandit, hyper_parameters, policies
from tests.oracles import gaussian_process as gp

LOW, HIGH, NOISE, SPAN = 0.5, 20.0, 0.05, 30.0
DESIGN, FIRST, HORIZON, TRIALS = 6, 10, 6, 2
TOML = f"""
name = "fits"
trials = {TRIALS}
horizon = {HORIZON}
trajectories = true
initial = {{random = {DESIGN}}}

[model]
kernel = {{type = "Scale", variance = 1.0, kernel = {{type = "SquaredExponential", length_scale = 1.0}}}}
length_scale_range = [{LOW}, {HIGH}]
noise_variance = {NOISE}
precision = "float64"
fit_to = "FILE"

[problem.sine]
type = "sine"
points_per_axis = 7

[algorithm.rpol]
type = "Refitted"
algorithm = {{type = "Rpol"}}
at_start = true
first = {FIRST}
points = {DESIGN + FIRST}
steps = 60
span = {SPAN}
"""


def rows() -> np.ndarray:
    """Points and both values ``[n, 4]`` of smooth functions with a little noise."""
    rng = np.random.default_rng(5)
    points = rng.uniform(0, 6, (14, 2))
    values = np.stack([np.sin(points[:, 0]) + np.cos(points[:, 1]), np.cos(points[:, 0] - points[:, 1])], axis=1)
    return np.concatenate([points, values + 0.2 * rng.standard_normal(values.shape)], axis=1).round(6)


def fitted(start: Any, low: Any, high: Any, points: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """Length-scale, variance and noise variance of largest posterior density inside the bounds, from ``start`` and other length-scales."""
    sides = np.ptp(np.asarray(jb.problems.sine(7).domain.points), axis=0)
    start, low, high = map(np.asarray, (start, low, high))
    starts = [start, *([length, *start[1:]] for length in np.geomspace(low[0], high[0], 5))]
    return min((hyper_parameters.fit(own, low, high, points, values, sides, scale) for own in starts), key=lambda found: found[1])[0]


def refitted(points: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The fit to ``values [n, 2]`` less their means, in units of their deviation, about constants; and these constants, in own units."""
    unit, centres = np.sqrt(values.var(axis=0).mean()), values.mean(axis=0)
    sides = np.ptp(np.asarray(jb.problems.sine(7).domain.points), axis=0)
    low, high = (np.asarray([end, factor, noise]) for end, factor, noise in ((LOW, 1 / SPAN, 1e-7), (HIGH, SPAN, 10.0)))
    seen = points, (values - centres) / unit, sides, 1.0, 1.0, gp.squared_exponential, hyper_parameters.LEARNING
    starts = [np.asarray([length, 1.0, noise]) for length in np.geomspace(LOW, HIGH, 6) for noise in (1e-4, 1e-1)]
    length, variance, noise = min((hyper_parameters.fit(start, low, high, *seen) for start in starts), key=lambda found: found[1])[0]
    together = variance * gp.squared_exponential(points, points, length) + noise * np.eye(len(points)) + 1
    constants = np.ones(len(points)) @ np.linalg.solve(together, seen[1])
    return np.asarray([length, variance * unit**2, noise * unit**2]), centres + unit * constants


def score_gaps(fit: np.ndarray, means: np.ndarray, record: bandit.Record, points: np.ndarray) -> np.ndarray:
    """How far the points of every round fall short of RPOL's best under some length-scale, variance and noise variance, ``[T]``."""
    length_scale, variance, noise = fit
    grams = np.stack([variance * gp.squared_exponential(points, points, length_scale)] * 2)
    model = bandit.Model(grams, np.full(2, noise), means, lambda t, gain: np.full(2, 3.0))
    return bandit.score_gaps(policies.rpol(model, record, strategy="bounds").scores, record.indices)


@pytest.mark.full
def test_fits_are_those_of_the_data_that_results_hold(tmp_path: Path) -> None:
    file = tmp_path / "earlier.csv"
    np.savetxt(file, rows(), delimiter=",", header="x1,x2,reward,constraint", comments="", fmt="%.6f")
    study = from_table(tomllib.loads(TOML.replace("FILE", file.as_posix())))
    file.unlink()  # read at once; what is written of the study holds its rows
    assert from_table(study.table()).fingerprint() == study.fingerprint()

    # Before the study, the same for all trials: recorded as the kernel and the noise variance of the run.
    points, values = rows()[:, :2], rows()[:, 2:]
    start = np.asarray([1.0, 1.0, NOISE])
    before = fitted(start, [LOW, 1e-3, NOISE / 1e3], [HIGH, 1e3, NOISE * 1e3], points, values, float(np.mean(values**2)))
    results = run_study(study, tmp_path, results=tmp_path / "results.nc")  # whose groups of outputs have no coordinate
    recorded = json.loads(results.attrs["kernels"])["rpol"]
    assert recorded[0] == recorded[1] and LOW < before[0] < HIGH
    own = [recorded[0]["kernel"]["length_scale"], recorded[0]["variance"], json.loads(results.attrs["noise_variance_of_model"])["rpol"][0]]
    np.testing.assert_allclose(own, before, rtol=1e-3)

    # Of each trial: before round 1 from its design, by which it plays four rounds, and then from all that it has seen, ten values of each
    # output. Random search with the same seed tells the design, for noise is common.
    kernel, grid_of = jb.kernels.SquaredExponential(), study.runs[0].problem.domain
    model = jb.surrogate(grid_of, kernel, noise_variance=NOISE, precision="float64")
    designs = study.trajectory(dataclasses.replace(study.runs[0], algorithm=jb.RandomSearch(), model=model), trials=TRIALS)
    domain, ends = np.asarray(grid_of.points), []
    for trial in range(TRIALS):
        own = results.isel(algorithm=0, trial=trial)
        record = bandit.Record(own["index"].values, own.observed.values, designs.initial_indices[trial], designs.initial_values[trial])
        seen, told = (np.concatenate(parts) for parts in ((record.initial_indices, record.indices), (record.initial_values, record.values)))
        first, second = (refitted(domain[seen[:number]], told[:number]) for number in (DESIGN, FIRST))
        np.testing.assert_allclose(own.fitted_length_scales, second[0][0], rtol=1e-2)
        rounds = FIRST - DESIGN
        by_none, by_first, by_second = (score_gaps(*fit, record, domain) for fit in ((before, np.zeros(2)), first, second))
        assert max(by_first[:rounds].max(), by_second[rounds:].max()) < 1e-3, "to which fits agree"
        assert min(by_none[:rounds].max(), by_first[rounds:].max(), by_second[:rounds].max()) > 0.1, "and by no other fit"
        ends += [first[0][0], second[0][0]]
    assert len(set(np.round([before[0], *ends], 3))) >= 4, "fits differ"


REFUSED = [
    (np.ones((3, 5)), {}, r"^model: fit_to: must have 4 columns, 2 coordinates of a point and the values of 2 outputs, got 5"),
    (np.ones(4), {}, r"^model\.fit_to: must be rows of numbers"),
    (np.full((3, 4), np.nan), {}, r"^model\.fit_to: "),
    ("nowhere.csv", {}, r"^model\.fit_to: path: cannot read 'nowhere\.csv'"),
    (rows(), {"length_scale": 1.0, "length_scale_range": (0.5, 2.0)}, r"^model\.length_scale: is fitted"),
]


@pytest.mark.parametrize(("data", "changes", "message"), REFUSED)
def test_other_data_are_refused(data: Any, changes: dict[str, Any], message: str) -> None:
    problems, algorithms = {"sine": {"type": "sine", "points_per_axis": 7}}, {"rpol": jb.Rpol()}
    with pytest.raises(jb.InvalidArgument, match=message):
        grid(problems=problems, algorithms=algorithms, model=Model(fit_to=data, **changes), horizon=2)


def test_a_file_with_text_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("x1,x2,reward,constraint\n1,2,3,4\n1,2,high,4\n")
    with pytest.raises(jb.InvalidArgument, match=r"^model\.fit_to: columns\['reward'\]: must hold finite numbers, got 'high' in row 2"):
        Model(fit_to=tmp_path / "some.csv")


def test_a_session_says_how_it_fits(tmp_path: Path) -> None:
    session = {"domain": jb.problems.sine(5).domain, "algorithm": jb.Rpol(), "constraints": ["g <= 0"], "key": jax.random.key(0)}
    with pytest.raises(jb.InvalidArgument, match=r"^model\.fit_to: a session fits .* by fit_every; give earlier data as its history"):
        jb.Session.create(tmp_path / "session", model=dataclasses.replace(Model(), fit_to=rows()), **session)
