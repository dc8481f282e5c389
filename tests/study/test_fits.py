"""Studies of models that are fitted, of precision and of tuning."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import InvalidArgument, Oco, domains, kernels, metrics, problems
from jaxbandit.study import Model, Run, Study, make_plan, rerun, run_study, tune
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
    """Return points and both values ``[n, 4]`` of noisy functions."""
    rng = np.random.default_rng(5)
    points = rng.uniform(0, 6, (14, 2))
    values = np.stack([np.sin(points[:, 0]) + np.cos(points[:, 1]), np.cos(points[:, 0] - points[:, 1])], axis=1)
    return np.concatenate([points, values + 0.2 * rng.standard_normal(values.shape)], axis=1).round(6)


def fitted(start: Any, low: Any, high: Any, points: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """Return the hyper-parameters of largest posterior density within the bounds."""
    sides = np.ptp(np.asarray(jb.problems.sine(7).domain.points), axis=0)
    start, low, high = map(np.asarray, (start, low, high))
    starts = [start, *([length, *start[1:]] for length in np.geomspace(low[0], high[0], 5))]
    return min((hyper_parameters.fit(own, low, high, points, values, sides, scale) for own in starts), key=lambda found: found[1])[0]


def refitted(points: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the fit to standardised ``values [n, 2]``, and their constants."""
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
    """Return every round's loss against RPOL's best score, ``[T]``."""
    length_scale, variance, noise = fit
    grams = np.stack([variance * gp.squared_exponential(points, points, length_scale)] * 2)
    model = bandit.Model(grams, np.full(2, noise), means, lambda t, gain: np.full(2, 3.0))
    return bandit.score_gaps(policies.rpol(model, record, strategy="bounds").scores, record.indices)


@pytest.mark.full
def test_fits_are_those_of_the_data_that_results_hold(tmp_path: Path) -> None:
    file = tmp_path / "earlier.csv"
    np.savetxt(file, rows(), delimiter=",", header="x1,x2,reward,constraint", comments="", fmt="%.6f")
    study = from_table(tomllib.loads(TOML.replace("FILE", file.as_posix())))
    # The study holds the file's rows.
    file.unlink()
    assert from_table(study.table()).fingerprint() == study.fingerprint()

    # Before the study, the same for all trials: recorded as the kernel and the noise variance of the run.
    points, values = rows()[:, :2], rows()[:, 2:]
    start = np.asarray([1.0, 1.0, NOISE])
    before = fitted(start, [LOW, 1e-3, NOISE / 1e3], [HIGH, 1e3, NOISE * 1e3], points, values, float(np.mean(values**2)))
    # Groups of outputs have no coordinate.
    results = run_study(study, tmp_path, results=tmp_path / "results.nc")
    recorded = json.loads(results.attrs["kernels"])["rpol"]
    assert recorded[0] == recorded[1] and LOW < before[0] < HIGH
    own = [recorded[0]["kernel"]["length_scale"], recorded[0]["variance"], json.loads(results.attrs["noise_variance_of_model"])["rpol"][0]]
    np.testing.assert_allclose(own, before, rtol=1e-3)

    # Each trial fits before round 1 to its design, and after four rounds to ten values of each output. Random search with the same
    # seed shows the design, because the noise is common.
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


SINE: dict[str, Any] = {"sine": {"type": "sine", "points_per_axis": 7}}


def test_a_file_with_text_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("x1,x2,reward,constraint\n1,2,3,4\n1,2,high,4\n")
    with pytest.raises(jb.InvalidArgument, match=r"^model\.fit_to: columns\['reward'\]: must hold finite numbers, got 'high' in row 2"):
        Model(fit_to=tmp_path / "some.csv")


def test_a_session_says_how_it_fits(tmp_path: Path) -> None:
    session = {"domain": jb.problems.sine(5).domain, "algorithm": jb.Rpol(), "constraints": ["g <= 0"], "key": jax.random.key(0)}
    with pytest.raises(jb.InvalidArgument, match=r"^model\.fit_to: a session fits .* by fit_every; give earlier data as its history"):
        jb.Session.create(tmp_path / "session", model=dataclasses.replace(Model(), fit_to=rows()), **session)


TABLE = {
    "name": "low-noise",
    "trials": 3,
    "horizon": 4,
    "metrics": ["regret"],
    "trajectories": True,
    "model": {"kernel": {"type": "SquaredExponential", "length_scale": 1.0}, "noise_variance": 1e-6},
    "problem": {"sine": {"type": "sine", "points_per_axis": 5, "noise_variance": 1e-6}},
    "algorithm": {"low": {"type": "Rpol"}, "usual": {"type": "Rpol", "model": {"noise_variance": 0.05}}},
}


@pytest.mark.full
def test_a_study_is_in_one_precision() -> None:
    study = from_table(TABLE)
    assert [run.model.precision for run in study.runs] == ["float64", "float32"]
    assert study.precision == "float64" and not jax.config.jax_enable_x64
    results = run_study(study)
    assert results is not None
    assert results.attrs["precision"] == "float64" and results.attrs["jax_enable_x64"] == "False"
    assert results["observed"].dtype == np.float64
    again = rerun(results, 2, label="usual")
    np.testing.assert_array_equal(again["observed"].squeeze(), results["observed"].sel(algorithm="usual", trial=2).squeeze())
    np.testing.assert_array_equal(again["regret"].squeeze(), results["regret"].sel(algorithm="usual", trial=2).squeeze())


def test_the_precision_of_a_file_can_be_overruled() -> None:
    noisy = {**TABLE, "model": {**TABLE["model"], "noise_variance": 0.05, "precision": "float64"}}
    assert from_table(noisy).precision == "float64"
    assert from_table(noisy, precision="float32").precision == "float32"
    assert {run.model.precision for run in make_plan(from_table(noisy)).runs} == {"float64", "float32"}


KERNEL = kernels.SquaredExponential(length_scale=0.3)
TUNER_HORIZON = 60
VALUES = {"step": [0.01, 0.3, 3.0], "regulariser": [0.0, 1.0]}
CURVES = jax.jit(metrics.curves)


def study(problem: Any) -> tuple[Study, Run]:
    surrogate = jb.surrogate(problem.domain, KERNEL, noise_variance=0.01, form="features")
    run = Run("OCO", problem, Oco(), surrogate)
    return Study(name="tuning", runs=(run,), horizon=TUNER_HORIZON, trials=3, seed=4), run


def slope(**changes: Any) -> problems.Problem:
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 15)
    x = np.asarray(domain.points)
    return problems.from_tables(domain, x.sum(1), x[:, 0] - 0.5, noise=problems.Gaussian(variance=0.01))


@pytest.mark.full
def test_it_picks_what_separate_runs_find_best() -> None:
    tuned, run = study(slope())
    found = tune(tuned, run, VALUES, trials=4)
    chosen, table = found.best, found.candidates
    assert [row.values for row in table] == [{"step": s, "regulariser": r} for s in VALUES["step"] for r in VALUES["regulariser"]]
    separate = []
    for row in table:
        played = jb.simulate(run.problem, Oco(**row.values), run.model, horizon=TUNER_HORIZON, trials=4, key=jax.random.key(5))
        curves = CURVES(run.problem, played.indices)
        separate.append(float(np.mean(curves.positive_regret[:, -1] + curves.hard_violation[:, -1])))
    np.testing.assert_allclose([row.loss for row in table], separate, rtol=1e-4)
    best = table[int(np.argmin(separate))].values
    assert {name: pytest.approx(float(getattr(chosen.algorithm, name))) for name in best} == best
    assert len({round(score, 6) for score in separate}) >= len(VALUES["step"]) and min(separate) < separate[0]
    assert dataclasses.replace(chosen, algorithm=run.algorithm) == run
    other = tune(tuned, run, VALUES, trials=4, measure=lambda curves: -curves.regret[..., -1]).best
    assert float(other.algorithm.step) != float(chosen.algorithm.step)


@pytest.mark.full
def test_random_families_are_tuned_on_instances_of_their_own() -> None:
    tuned, run = study(problems.rkhs_1d_binding(20))
    values = {"step": [0.1, 1.0]}
    table = tune(tuned, run, values, trials=3).candidates
    both = jb.sweep(Oco(), values)
    played = jb.simulate(run.problem, both, run.model, horizon=TUNER_HORIZON, trials=3, key=jax.random.key(5)).variant(1)
    instances = dataclasses.replace(tuned, seed=5).instances(run.problem)
    curves = jax.jit(jax.vmap(metrics.curves))(instances, played.indices)
    np.testing.assert_allclose(table[1].loss, np.mean(curves.positive_regret[:, -1] + curves.hard_violation[:, -1]), rtol=1e-4)


@pytest.mark.full
def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, run = study(slope())
    with pytest.raises(InvalidArgument, match="values: must hold at least one field"):
        tune(tuned, run, {})
    with pytest.raises(InvalidArgument, match="trials: must be a whole number >= 1"):
        tune(tuned, run, {"step": [1.0]}, trials=0)
    with pytest.raises(InvalidArgument, match=r"stride: unknown field.*Oco can sweep"):
        tune(tuned, run, {"stride": [1.0]})
    # Nothing has been compiled yet.
    with monkeypatch.context() as patched:
        patched.setattr("jaxbandit.engine.simulation.play_all", None)
        for measure in (lambda curves: curves.regret, lambda curves: 0.0, lambda curves: "low", lambda curves: curves.regrets):
            with pytest.raises(InvalidArgument, match=r"^measure: must make a number of each trial, \[6, 4\]"):
                tune(tuned, run, VALUES, trials=4, measure=measure)
    with pytest.raises(InvalidArgument, match="none of the 6 combinations gave a finite measure"):
        tune(tuned, run, VALUES, trials=4, measure=lambda curves: np.nan * curves.regret[..., -1])
