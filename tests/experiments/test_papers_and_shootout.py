"""Experiments by themselves: papers, shoot-out, boxes, sweeps of delays, derivatives and hyper-parameters."""

import csv
import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import jaxbandit as jb
from experiments import boxes, delay_sweep
from experiments.__main__ import main, parser
from experiments.common.experiment import Experiment, Options, options_from
from experiments.common.running import pick_run, run_experiment
from experiments.differentiable import measurements
from experiments.differentiable.settings import Knots
from experiments.shi_eryilmaz_2022 import digits, hyperparameters
from experiments.shi_eryilmaz_2022 import shared as se22
from experiments.shi_eryilmaz_2022.digits import Trained
from experiments.shi_eryilmaz_2022.hyperparameters import BUDGET, FIRST, WORKERS, best_feasible, play, played
from experiments.shootout import arenas, contestants, page, shootout
from experiments.vakili_2023 import bpe_delays
from experiments.xu_2023 import config_gp, config_p
from experiments.xu_2023 import shared as xu
from experiments.zhou_ji_2022 import shared as zhou_ji
from experiments.zhou_ji_2022 import zj22
from jaxbandit import InvalidArgument, domains, kernels, problems
from jaxbandit.core.status import healthy
from jaxbandit.gradients import SmoothedLoss, regret
from jaxbandit.report import tables
from jaxbandit.study import Run, Study, make_plan, run_study
from tests.support.toy_losses import SPACING, Follow, toy


def small(experiment, **changes):
    return dataclasses.replace(experiment.EXPERIMENT.quick, trials=2, horizon=10, **changes)


def by_label(study):
    return {run.label: run for run in study.runs}


@pytest.mark.full
def test_baselines_of_config_are_told_what_the_scripts_tell():
    whole = small(config_gp, points_per_axis=21, extra=xu.ALL)
    ours, code = (by_label(config_gp.build(dataclasses.replace(whole, parameters=p))) for p in ("recommended", "code"))
    fewer = by_label(config_gp.build(small(config_gp, points_per_axis=21)))
    assert set(fewer) == set(xu.FEWER["algorithms"]) < set(ours) & set(code), "those of the reduced size are in every set"
    with pytest.raises(InvalidArgument, match=r"^--algorithms: must be one of CONFIG, CEI, .*; got 'nobody'"):
        config_gp.build(dataclasses.replace(whole, extra={"algorithms": ["CEI", "nobody"]}))
    assert set(code) - set(ours) == {"EPBO-0.2", "EPBO-3"} and set(ours) - set(code) == {"EPBO-20"}
    assert ours["SafeOpt"].informed == jb.informed.SafestSeeds() and ours["CEI"].informed is None
    assert code["Primal-dual"].informed is None and code["CEI"].informed is xu.prior_mean_at_start
    assert code["SafeOpt"].informed is None and not np.any(code["SafeOpt"].model.prior_mean)
    noisier = config_gp.build(dataclasses.replace(whole, parameters="code", extra=xu.ALL | {"noise": 1e-4})).runs[0].model
    np.testing.assert_allclose([noisier.noise_variance, code["CEI"].model.noise_variance], [[2e-4], [2e-6]], rtol=1e-6)
    family = problems.gp_draws("code", domain=domains.grid([-10.0], [10.0], 21))
    assert list(code["SafeOpt"].algorithm.seeds) == [family.start]
    assert float(code["SafeOpt"].algorithm.threshold) == 0.1 and float(code["SafeOpt"].algorithm.estimator.cost_width) == 2.0
    drawn = [label for lines in xu.panels(list(ours)).values() for label in lines]
    assert sorted(drawn) == sorted([*ours, "CONFIG"]) and max(map(len, xu.panels(list(code)).values())) <= 7


def test_stages_of_bpe_are_those_of_the_scripts():
    """The horizon cuts the last stage."""
    study = bpe_delays.build(dataclasses.replace(small(bpe_delays, parameters="code"), horizon=1000))
    for function in ("f1", "f2"):
        for mean, lengths in ((0, [48, 199, 447, 306]), (25, [73, 225, 472, 230]), (50, [98, 250, 497, 155])):
            run = by_label(study)[f"{function} BPE-Delay {mean}"]
            told = run.algorithm.with_delays(run.delay_in_force, run.policy_in_force)
            assert [rounds for rounds, _ in told.stage_lengths(1000)] == lengths
    plain = by_label(bpe_delays.build(small(bpe_delays)))["f1 BPE-Delay 0"].algorithm
    assert not plain.aware, "in the paper BPE-Delay is BPE without delay"


@pytest.mark.full
def test_config_p_starts_safeopt_at_the_safest_point_and_primal_dual_without_prior_mean():
    options = small(config_p, points_per_axis=10, extra={"problem": "P6", **xu.ALL})
    ours, code = (by_label(config_p.build(dataclasses.replace(options, parameters=p))) for p in ("recommended", "code"))
    safeopt = ours["P6 SafeOpt"]
    safest = int(np.argmin(safeopt.problem.means[1]))
    assert list(safeopt.algorithm.seeds) == [safest] and list(safeopt.initial.indices) == [safest] and safeopt.initial.counted
    # Rows have no joint draws.
    assert "P6 Thompson" in ours and "P6 Thompson" not in code
    assert not np.any(code["P6 Primal-dual"].model.prior_mean) and np.all(code["P6 CEI"].model.prior_mean)
    assert list(code["P6 SafeOpt"].algorithm.seeds) == list(code["P6 SafeOpt"].initial.indices)


@pytest.mark.full
def test_safe_algorithms_of_zj22_are_told_a_safe_point_that_is_not_the_best():
    options = small(zj22, points_per_axis=40)
    runs = by_label(zj22.build(options))
    assert {label.split(",")[0] for label in runs} == {"CBO-UCB", "CBO-TS", "CBO-Rand", "StageOpt", "SGP-UCB"}
    stage, literal = runs["StageOpt, h = B/2"], by_label(zj22.build(dataclasses.replace(options, parameters="paper")))["StageOpt, h = B/2"]

    @jax.jit
    def instance_and_told(key):
        instance = stage.problem.sample(key)
        return instance, *(run.informed(instance, run.algorithm, run.model)[0] for run in (stage, literal))

    instance, told, literally = jax.tree.map(np.asarray, instance_and_told(jax.random.key(3)))
    reward, cost = instance.means
    feasible = np.sort(cost[cost <= 0])
    assert cost[int(told.seeds[0])] == feasible[(len(feasible) - 1) // 2] and int(told.seeds[0]) != int(np.argmax(reward))
    steps = np.abs(np.diff(cost)) / np.diff(np.asarray(instance.domain.points)[:, 0])
    np.testing.assert_allclose(told.lipschitz, steps.max(), rtol=1e-5)
    np.testing.assert_allclose(literally.estimator.reward_width.norm_bound, np.abs(reward).max())
    unsafe = problems.from_tables(domains.arms(3), np.ones(3), np.array([2.0, 1.0, 3.0]))
    # The safest point counts where no point is feasible.
    assert int(jax.jit(zhou_ji.typical_safe_point)(unsafe)) == 1


@pytest.fixture(scope="module")
def stopped():
    """Return ADMMBO that stops within the run, beside random search."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 7)
    x = np.asarray(domain.points)
    problem = problems.from_tables(domain, x.sum(axis=1), x[:, 0] - 0.5, noise=problems.Gaussian(variance=0.01))
    kernel = kernels.SquaredExponential(length_scale=0.5)
    surrogate = jb.surrogate(domain, kernel, noise_variance=0.01, form="features")
    short = jb.Admmbo(reward_budget=(2, 1), cost_budget=(3, 1), outer_iterations=2)
    runs = [Run(a.name, problem, a, surrogate) for a in (short, jb.RandomSearch())]
    return run_study(Study(name="s", runs=runs, horizon=12, trials=3, parameters={"set": "recommended"}).keeping_everything())


@pytest.mark.full
def test_results_say_when_an_algorithm_stopped(stopped):
    ends = stopped.evaluations.values
    assert ends[0].max() <= 7 and ends[0].min() >= 5 and (ends[1] == 12).all()
    assert (stopped.status.values[0] & int(jb.Status.STOPPED)).all()
    indices = stopped["index"].values[0]
    assert all((trial[end:] == trial[end]).all() for trial, end in zip(indices, ends[0], strict=True))


@pytest.mark.full
def test_averages_are_held_from_where_an_algorithm_stopped(stopped, tmp_path):
    held, elapsed = se22.until_stopped(stopped), np.arange(1, 13)
    for trial, end in enumerate(stopped.evaluations.values[0]):
        want = stopped.regret.values[0, trial] / elapsed
        want[end:] = want[end - 1]
        np.testing.assert_allclose(held.regret.values[0, trial] / elapsed, want, rtol=1e-5)
    np.testing.assert_allclose(held.regret.values[1], stopped.regret.values[1], rtol=1e-5)
    lines = se22.violation_notes(stopped)
    assert "admmbo: stopped by itself after" in lines[1] and "randomsearch: V(t)/t" in lines[2]
    se22.boxes(stopped, title="t", panels=[se22.REGRET]).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_quick_changes_defaults_only():
    full, quick, mixed = (["rpol", *more] for more in ([], ["--quick"], ["--quick", "--trials", "3"]))
    assert options_from(parser().parse_args(full)).trials == 100
    assert options_from(parser(quick=True).parse_args(quick)).trials == 10
    assert options_from(parser(quick=True).parse_args(mixed)).trials == 3
    problems = [options_from(parser(quick=quick).parse_args(["config-p"])).extra["problem"] for quick in (False, True)]
    assert problems == ["all", "P6"], "an experiment's own options, too"


def test_experiments_keep_compiled_programs_unless_told_otherwise(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr("experiments.__main__.enable_cache", lambda *given: kept.append(given))
    monkeypatch.setattr("experiments.__main__.run_experiment", lambda *given, **options: None)
    for options in ([], ["--cache", str(tmp_path)], ["--no-cache"]):
        assert main(["rpol", *options]) == 0 and main(["all", *options]) == 0
    assert kept == [(), (), (tmp_path,), (tmp_path,)]


@pytest.fixture(scope="module")
def tiny_shootout(tmp_path_factory):
    out = tmp_path_factory.mktemp("shootout")
    chosen = ["--algorithms", "CONFIG", "Random", "--problems", "P5", "P6"]
    size = ["--trials", "2", "--horizon", "8", "--points-per-axis", "11"]
    assert main(["shootout", "--quick", *chosen, *size, "--out", str(out / "shootout")]) == 0
    return out / "shootout"


@pytest.mark.full
def test_shootout_writes_one_page(tiny_shootout):
    assert {"figure.png", "results.nc", "results.nc.sha256", "shootout.csv", "shootout.md", "summary.csv"} == {
        p.name for p in tiny_shootout.iterdir()
    }
    with (tiny_shootout / "shootout.csv").open() as file:
        rows = list(csv.DictReader(file))
    pairs = {(row["problem"], row["algorithm"]) for row in rows}
    assert pairs == {(p, a) for p in ("P5", "P6") for a in ("CONFIG", "Random")}
    assert all(float(row[shootout.SPEED]) > 0 and np.isfinite(float(row["N"])) for row in rows)
    text = (tiny_shootout / "shootout.md").read_text()
    assert all(f"## {words[0].upper()}{words[1:]}" in text for words in shootout.MEASURES.values())
    assert text.count("| CONFIG |") == len(shootout.MEASURES)
    with xr.open_dataset(tiny_shootout / "results.nc", engine="h5netcdf") as data:
        data.load()
    # Common random numbers: the same noise whatever is chosen.
    pair = data.sel(algorithm=["P6: CONFIG", "P6: Random"])
    means = np.asarray(arenas.PROBLEMS["P6"](11).problem.means)
    noise = pair.observed.transpose("algorithm", "trial", "played", "output").values
    noise = noise - np.moveaxis(means[:, pair["index"].transpose("algorithm", "trial", "round").values], 0, -1)
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-5)
    # Where there is no constraint nothing is said of violation.
    free = data.assign(slater_slack=data.slater_slack * np.inf)
    page_rows = shootout.page_rows(free, tables.summary_rows(free))
    assert all(np.isnan(row[name]) for row in page_rows for name in shootout.OF_VIOLATION)
    assert all(np.isfinite(row["R/t"]) for row in page_rows)


@pytest.mark.full
def test_tabulated_instances_are_those_of_the_family():
    options = dataclasses.replace(shootout.EXPERIMENT.quick, trials=3, seed=5)
    arena = arenas.PROBLEMS["RKHS"](10)
    tables = arena.tabulated(options).problem
    study = Study(name="s", runs=[Run("oracle", arena.problem, jb.Oracle(), arena.model(1))], horizon=1, trials=3, seed=5)
    np.testing.assert_allclose(study.instances(tables).means, study.instances(arena.problem).means, rtol=1e-4, atol=1e-5)
    assert np.isnan(jax.jit(tables.sample)(jax.random.key(99)).means).all()


@pytest.mark.full
def test_features_of_zeros_change_nothing():
    arena = arenas.PROBLEMS["GP draws"](10)
    padded = arena.model(20)
    bare = jb.surrogate(arena.problem.domain, arena.kernel, noise_variance=arena.noise_variance, form="features")
    assert padded.forms[0].rank == 32 > bare.forms[0].rank

    @jax.jit
    def belief(model):
        posterior = model.init()
        for index, value in ((3, 1.0), (50, -0.5), (4, 0.8)):
            posterior = model.condition(posterior, jax.numpy.int32(index), jax.numpy.full((2,), value))
        return model.belief(posterior).prediction

    posteriors = belief(padded), belief(bare)
    np.testing.assert_allclose(posteriors[0].mean, posteriors[1].mean, atol=1e-4)
    np.testing.assert_allclose(posteriors[0].sd, posteriors[1].sd, atol=1e-4)


def test_shootout_says_when_nothing_fits(tmp_path, capsys):
    assert main(["shootout", "--quick", "--algorithms", "OCO", "--problems", "queueing", "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error:") and "none of these algorithms fits" in printed


def test_every_algorithm_has_a_place_in_the_shootout():
    """A new algorithm must be entered, or left out by name."""
    classes = [getattr(jb.algorithms, name) for name in jb.algorithms.__all__]
    known = {cls for cls in classes if isinstance(cls, type) and issubclass(cls, jb.Algorithm) and cls.name}
    known -= {jb.Anytime, jb.Refitted}
    assert {type(who.algorithm) for who in contestants.contestants().values()} == known


def test_ranks_share_and_skip():
    table = np.array([[1.0, np.nan], [3.0, 5.0], [1.0001, np.nan], [2.0, -1.0]])
    np.testing.assert_allclose(page.ranks(table), [[1 / 6, np.nan], [1.0, 1.0], [1 / 6, np.nan], [2 / 3, 0.0]])
    assert [page.short(v) for v in (0.0, 0.00123, 0.123, -12.34, 1234.4, 45678.0, np.nan)] == [
        "0.00", "1e-03", "0.12", "-12.3", "1234", "46k", "",
    ]  # fmt: skip
    assert page.markdown_table([["", "a"], ["x", "1"]]) == "|  | a |\n| --- | ---: |\n| x | 1 |"


OPTIONS = dataclasses.replace(boxes.EXPERIMENT.quick, trials=3, horizon=2, extra={"algorithms": ("Random",), "problems": ("Gramacy",)})


def test_trials_without_a_feasible_point_are_the_worst():
    values = np.array([[np.nan, 1.0], [np.nan, 2.0], [np.nan, 3.0], [5.0, 5.0]])
    np.testing.assert_array_equal(boxes.quartiles(values), [[np.nan, 1.0], [np.nan, 2.0], [np.nan, 3.0]])
    np.testing.assert_array_equal(boxes.quartiles(values[3:]), np.full((3, 2), 5.0))


def test_boxes_in_words():
    words = {name: boxes.described(make()) for name, (make, _) in boxes.PROBLEMS.items()}
    assert words["Ackley-10"] == "x1 -5 to 10 .. x10 -5 to 10" and words["Gramacy"] == "x1 0 to 1, x2 0 to 1"
    assert words["pressure vessel"].startswith("shell 1 to 99 (integers), head 1 to 99 (integers), radius 10 to 200")


@pytest.mark.full
def test_the_table_is_of_the_points_played(tmp_path):
    dataset = run_study(boxes.build(OPTIONS))
    (row,) = boxes.rows(dataset)
    evaluations = boxes.FIRST + OPTIONS.horizon
    assert row["problem"] == "Gramacy" and row["algorithm"] == "Random" and row["evaluations"] == str(evaluations)
    values = dataset.observed.values[0]  # [trials, rounds, outputs], without noise, of the rounds after the first points
    after = dataset.best_feasible_value.values[0]
    allowed = np.where(np.all(values[..., 1:] <= 0, axis=-1), values[..., 0], -np.inf)
    before = after[:, boxes.FIRST - 1]
    best = np.maximum(np.where(np.isnan(before), -np.inf, before), allowed.max(axis=1))
    assert float(row["best feasible, median"]) == pytest.approx(np.sort(best)[1], rel=1e-5)
    assert row["feasible found"] == f"{np.mean(np.isfinite(best)):.0%}" and row["trials"] == "3"
    notes = boxes.notes(dataset)
    assert notes[0] == "Gramacy: x1 0 to 1, x2 0 to 1; optimum -0.5998 (Gramacy et al. 2016)" and "milliseconds" in notes[1]
    assert re.search(r"cores: Random \d", notes[1]), notes[1]
    assert boxes.notes(dataset.assign(playing_seconds=dataset.playing_seconds * np.nan))[1].endswith("unknown of a run that was resumed")
    boxes.files(dataset, [row])["boxes.md"](tmp_path / "boxes.md")
    assert (tmp_path / "boxes.md").read_text().count("| Gramacy |") == 1
    boxes.draw(dataset).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


MEANS = (8.0, 0.0, 3.0)
SMALL = ["--trials", "4", "--horizon", "30", "--points-per-axis", "10", "--means", *map(str, MEANS)]


@functools.cache
def study():
    options = dataclasses.replace(delay_sweep.EXPERIMENT.quick, trials=4, horizon=30, points_per_axis=10)
    return delay_sweep.build(dataclasses.replace(options, extra={**options.extra, "means": MEANS}))


@functools.cache
def straight():
    return run_study(study())


@pytest.mark.full
def test_delay_sweep_runs_delays_together():
    # Without delay there is no buffer.
    assert [len(cell.runs) for cell in make_plan(study()).cells] == [1, 2]
    data = straight()
    assert (np.diff(data.hard_violation.values, axis=-1) >= 0).all()
    own = np.arange(1, 31)[:, None]
    late = data.arrival.values - own
    # Means of 240 Poisson numbers lie within 6 standard errors or more.
    assert not late[0].any() and 2 < late[1].mean() < 4 and 6 < late[2].mean() < 10
    assert json.loads(data.attrs["delays"])["E[tau] = 3"]["mean"] == 3.0
    assert json.loads(data.attrs["feedback"])["E[tau] = 3"]["type"] == "Wait"
    # The slopes, against least squares in each trial, and what is reported of them.
    above = (data.positive_regret.values[1:, :, -1] - data.positive_regret.values[0, :, -1]).T.astype(np.float64)
    want = np.array([np.linalg.lstsq(np.array([[3.0], [8.0]]), trial, rcond=None)[0][0] for trial in above])
    np.testing.assert_allclose(delay_sweep.slopes(np.array([0.0, 3.0, 8.0]), delay_sweep.excess(data, "positive_regret")), want)
    half = 1.96 * want.std(ddof=1) / 2
    assert any(f"{want.mean():.2f} +- {half:.2f}" in note and "R+(T)" in note for note in delay_sweep.notes(data))


@pytest.mark.full
@pytest.mark.parametrize("name", ["rpol-censored", "gp-ucb-sdf", "gp-ts-sdf"])
def test_algorithms_that_censor_are_played_without_delay_too(name):
    extra = {"algorithm": name, "feedback": None, "means": (0.0, 2.0)}
    options = dataclasses.replace(delay_sweep.EXPERIMENT.quick, trials=2, horizon=3, points_per_axis=10, extra=extra)
    data = run_study(delay_sweep.build(options))
    assert data.sizes["algorithm"] == 2 and healthy(data.status.values).all()


class Stop(Exception):
    """An interruption."""


@pytest.mark.full
def test_an_experiment_goes_on(tmp_path, capsys):
    def report(progress):
        raise Stop

    with pytest.raises(Stop):
        run_study(study(), tmp_path, report=report)
    command = ["delay-sweep", *SMALL, "--out", str(tmp_path), "--resume"]
    assert main(command) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"figure.png", "results.nc", "results.nc.sha256", "summary.csv"}
    data = xr.load_dataset(tmp_path / "results.nc", engine="h5netcdf")
    for name in set(straight().data_vars) - {"run_seconds", "playing_seconds"}:
        np.testing.assert_array_equal(data[name].values, straight()[name].values, err_msg=name)
    assert np.isnan(data.playing_seconds.values).tolist() == [True, False, False]
    assert main(command) == 0 and "--force runs again" in capsys.readouterr().out
    (tmp_path / "results.nc").unlink()
    assert main(command) == 2
    assert "holds no run" in capsys.readouterr().err


def test_trace_of_a_delay_sweep_names_its_algorithm():
    args = parser().parse_args(["trace", "delay-sweep", "--algorithm", "config", "--means", "4", "--out", "trace.npz"])
    study = delay_sweep.build(options_from(args))
    run = pick_run(study, args.algorithm)
    assert isinstance(run.algorithm, jb.Config) and run.delay.mean == 4.0


@pytest.mark.parametrize("arguments", [["--algorithm", "nope"], ["--means", "-1"]])
def test_bad_arguments_of_a_delay_sweep_are_named(arguments, tmp_path, capsys):
    assert main(["delay-sweep", *arguments, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error:") and arguments[0] in printed


def test_a_schedule_is_linear_in_the_logarithm_of_the_round():
    width = Knots(values=np.array([1.0, 3.0, 4.0]), horizon=100)
    found = [float(width(jnp.float32(t), jnp.zeros(2))[0]) for t in (1, 10, 10**1.5, 100, 1000)]
    np.testing.assert_allclose(found, [1.0, 3.0, 3.5, 4.0, 4.0], rtol=1e-5)


def test_errors_of_gradients_fall_as_the_root_of_their_number():
    gradients = 2 + np.random.default_rng(0).standard_normal((4096, 3))
    one, four = (measurements._relative_error(gradients, count) for count in (1, 4))
    # The ratio is sqrt(3) over 2 sqrt(3), in 4,096 and 1,024 groups.
    np.testing.assert_allclose([one, four], [0.5, 0.25], rtol=0.05)


@pytest.mark.full
def test_losses_and_random_search_are_those_of_the_trials():
    problem, model = toy()

    def build(params):
        return Follow(place=params["x"][0] ** 2 + params["x"][1] ** 2 - 0.5, spread=0.0), model

    loss = SmoothedLoss(problem, build, horizon=2, pairs=4, measure=regret)
    places = np.array([[0.1, 0.0], [0.3, 0.2], [0.0, 0.0]])
    found = measurements.losses_of(loss, {"x": jnp.asarray(places)}, 3, jax.random.key(0))
    np.testing.assert_allclose(found, np.repeat(0.5 + (places**2).sum(axis=1)[:, None], 3, axis=1), atol=SPACING)
    start = {"x": jnp.asarray([0.4, -0.4])}
    best = measurements.random_search(loss, (start, build), 240, 3, 3, jax.random.key(0))
    # It is the best of 80 points, and the next has 0.11.
    assert float(jnp.sum(best["x"] ** 2)) < 0.01
    assert isinstance(build(best)[0], jb.Algorithm)


class Recording:
    """Tuner that records trials under way, and asks for random widths."""

    def __init__(self) -> None:
        self.under_way: set[int] = set()
        self.most, self.order, self.asked = 0, [], 0  # type: ignore[var-annotated]
        self.rng = np.random.default_rng(0)

    def ask(self) -> tuple[Any, dict[str, float]]:
        assert self.asked != FIRST or not self.under_way, "the design has ended"
        self.under_way.add(self.asked)
        self.most, self.asked = max(self.most, len(self.under_way)), self.asked + 1
        return self.asked - 1, {"learning rate": 0.01, "weight decay": 0.001, "width": float(self.rng.integers(4, 128))}

    def tell(self, ticket: int, found: Trained) -> None:
        self.under_way.remove(ticket)
        self.order.append((ticket, found.work))


def test_trainings_come_back_after_as_long_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperparameters, "train", lambda rate, decay, width, seed: Trained(0.9, 0.9, width / 10, seed))
    tuner = Recording()
    found = list(played(tuner, FIRST + 20, seed=7))
    assert tuner.most == WORKERS and not tuner.under_way and len(found) == FIRST + 20
    tickets = [ticket for ticket, _ in tuner.order]
    assert tickets != sorted(tickets) and sorted(tickets) == list(range(FIRST + 20))
    assert max(tickets[:FIRST]) == FIRST - 1 and [one.epochs for one in found] == [7 + ticket for ticket in tickets]


def test_the_best_is_chosen_by_validation_and_judged_by_the_test() -> None:
    columns = {
        "accuracy": [0.5, 0.9, 0.7, 0.95, 0.8],
        "test_accuracy": [0.51, 0.91, 0.71, 0.96, 0.81],
        "work": np.array([0.5, 2.0, 0.9, 1.1, 0.1]) * BUDGET,
    }
    dataset = xr.Dataset({name: (("algorithm", "trial", "training"), np.reshape(column, (1, 1, 5))) for name, column in columns.items()})
    np.testing.assert_array_equal(best_feasible(dataset)[0, 0], [0.51, 0.51, 0.71, 0.71, 0.81])
    none = dataset.assign(work=dataset["work"] + 2 * BUDGET)
    assert np.isnan(best_feasible(none)).all()


def test_what_is_no_study_is_written_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its dataset has a form of its own, without flags and rounds."""
    dataset, plays = xr.Dataset({"work": ("training", [1.0, 2.0])}), list[Path]()
    options = Options(trials=1, horizon=2)
    experiment = Experiment(
        module="none",
        title="No study",
        defaults=options,
        quick=options,
        build=None,
        play=lambda options, directory: plays.append(directory) or dataset.copy(),
        rows=lambda dataset: [{"algorithm": "a", "trials": 1}],
        notes=lambda dataset: [f"work {float(dataset['work'].sum()):g}"],
        draw=lambda dataset: plt.figure(),
        position=1,
    )
    for force, count, ending in ((False, 1, "written in"), (False, 1, "made 20"), (True, 2, "written in")):
        run_experiment(experiment, experiment.defaults, tmp_path / "out", force=force)
        xr.testing.assert_equal(xr.load_dataset(tmp_path / "out" / "results.nc", engine="h5netcdf"), dataset)
        printed = " ".join(capsys.readouterr().out.split())
        assert len(plays) == count and "- work 3" in printed and f"figure.png: {ending}" in printed
    with pytest.raises(InvalidArgument, match="not empty"):
        run_experiment(experiment, dataclasses.replace(experiment.defaults, seed=1), tmp_path / "out", force=False)


def test_sessions_of_a_run_that_is_replaced_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sessions" / "old").mkdir(parents=True)
    monkeypatch.setattr(hyperparameters, "labels", list)
    play(Options(trials=1, horizon=2), tmp_path)
    assert not (tmp_path / "sessions").exists()


@pytest.mark.full
def test_a_training_repeats_and_its_cost_is_counted_work() -> None:
    # Optax needs it.
    with jax.numpy_dtype_promotion("standard"):
        found, again, other, narrow = (digits.train(0.01, 1e-3, *own) for own in ((16, 3), (16, 3), (16, 4), (4, 3)))
    assert found == again != other
    assert found.accuracy > 0.9 and found.test_accuracy > 0.85 and narrow.accuracy < found.accuracy
    assert found.work == pytest.approx(found.epochs * digits.TRAINING * (65 * 16 + 17 * 10) / digits.UNIT)
