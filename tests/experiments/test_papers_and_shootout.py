"""Baselines in the papers' studies, and the shoot-out: what they are told, where their curves end, the page that is written."""

import csv
import dataclasses

import jax
import numpy as np
import pytest
import xarray as xr

import jaxbandit
from experiments.__main__ import main, parser
from experiments.common.experiment import options_from
from experiments.shi_eryilmaz_2022 import shared as se22
from experiments.shootout import arenas, contestants, page, shootout
from experiments.vakili_2023 import bpe_delays
from experiments.xu_2023 import config_gp, config_p
from experiments.xu_2023 import shared as xu
from experiments.zhou_ji_2022 import shared as zhou_ji
from experiments.zhou_ji_2022 import zj22
from jaxbandit import InvalidArgument, domains, kernels, problems
from jaxbandit.report import tables
from jaxbandit.study import Run, Study, run_study


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
    assert ours["SafeOpt"].informed == jaxbandit.informed.SafestSeeds() and ours["CEI"].informed is None
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
    """Without delay, too; the last one cut to the horizon."""
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
    assert "P6 Thompson" in ours and "P6 Thompson" not in code  # rows have no joint draws
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
    assert int(jax.jit(zhou_ji.typical_safe_point)(unsafe)) == 1  # where nothing is feasible, the safest


@pytest.fixture(scope="module")
def stopped():
    """ADMMBO that stops within the run, beside random search, which never does."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 7)
    x = np.asarray(domain.points)
    problem = problems.from_tables(domain, x.sum(axis=1), x[:, 0] - 0.5, noise=problems.Gaussian(variance=0.01))
    kernel = kernels.SquaredExponential(length_scale=0.5)
    surrogate = jaxbandit.surrogate(domain, kernel, noise_variance=0.01, form="features")
    short = jaxbandit.Admmbo(reward_budget=(2, 1), cost_budget=(3, 1), outer_iterations=2)
    runs = [Run(a.name, problem, a, surrogate) for a in (short, jaxbandit.RandomSearch())]
    return run_study(Study(name="s", runs=runs, horizon=12, trials=3, parameters={"set": "recommended"}).keeping_everything())


@pytest.mark.full
def test_results_say_when_an_algorithm_stopped(stopped):
    ends = stopped.evaluations.values
    assert ends[0].max() <= 7 and ends[0].min() >= 5 and (ends[1] == 12).all()
    assert (stopped.status.values[0] & int(jaxbandit.Status.STOPPED)).all()
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
    study = Study(name="s", runs=[Run("oracle", arena.problem, jaxbandit.Oracle(), arena.model(1))], horizon=1, trials=3, seed=5)
    np.testing.assert_allclose(study.instances(tables).means, study.instances(arena.problem).means, rtol=1e-4, atol=1e-5)
    assert np.isnan(jax.jit(tables.sample)(jax.random.key(99)).means).all()


@pytest.mark.full
def test_features_of_zeros_change_nothing():
    arena = arenas.PROBLEMS["GP draws"](10)
    padded = arena.model(20)
    bare = jaxbandit.surrogate(arena.problem.domain, arena.kernel, noise_variance=arena.noise_variance, form="features")
    assert padded.forms[0].rank == 32 > bare.forms[0].rank

    @jax.jit
    def belief(model):
        posterior = model.init()
        for index, value in ((3, 1.0), (50, -0.5), (4, 0.8)):
            posterior = model.condition(posterior, jax.numpy.int32(index), jax.numpy.full((2,), value))
        return model.predict(posterior)

    posteriors = belief(padded), belief(bare)
    np.testing.assert_allclose(posteriors[0].mean, posteriors[1].mean, atol=1e-4)
    np.testing.assert_allclose(posteriors[0].sd, posteriors[1].sd, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithms", "nobody"], "--algorithms"),
        (["--problems", "nothing"], "--problems"),
        (["--algorithms", "OCO", "--problems", "queueing"], "none of these algorithms fits"),
    ],
)
def test_shootout_names_what_it_does_not_know(arguments, words, tmp_path, capsys):
    assert main(["shootout", "--quick", *arguments, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error:") and words in printed


def test_every_algorithm_has_a_place_in_the_shootout():
    """All that the library has, but wrappers; a new one must be entered, or said here to be left out."""
    classes = [getattr(jaxbandit.algorithms, name) for name in jaxbandit.algorithms.__all__]
    known = {cls for cls in classes if isinstance(cls, type) and issubclass(cls, jaxbandit.Algorithm) and cls.name}
    known -= {jaxbandit.Anytime, jaxbandit.Refitted}
    assert {type(who.algorithm) for who in contestants.contestants().values()} == known


def test_ranks_share_and_skip():
    table = np.array([[1.0, np.nan], [3.0, 5.0], [1.0001, np.nan], [2.0, -1.0]])
    np.testing.assert_allclose(page.ranks(table), [[1 / 6, np.nan], [1.0, 1.0], [1 / 6, np.nan], [2 / 3, 0.0]])
    assert [page.short(v) for v in (0.0, 0.00123, 0.123, -12.34, 1234.4, 45678.0, np.nan)] == [
        "0.00", "1e-03", "0.12", "-12.3", "1234", "46k", "",
    ]  # fmt: skip
    assert page.markdown_table([["", "a"], ["x", "1"]]) == "|  | a |\n| --- | ---: |\n| x | 1 |"
