"""Experiments about defaults."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
import xarray as xr

from experiments.__main__ import main
from experiments.defaults import default, forecasts, functions, players, rivals, similar
from jaxbandit import InvalidArgument
from jaxbandit.problems import Gaussian

BY_NAME = {function.name: function for make in functions.LISTS.values() for function in make()}
# Where the least values are, from the literature.
LEAST_AT = {
    "Branin": [np.pi, 2.275],
    "Hartmann-3": [0.114614, 0.555649, 0.852547],
    "Rosenbrock-4": [1] * 4,
    "Ackley-5": [0] * 5,
    "Michalewicz-5": [2.202906, 1.570796, 1.284992, 1.923058, 1.720470],
    "Styblinski-Tang-5": [-2.903534] * 5,
    "Hartmann-6": [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573],
    "Griewank-6": [0] * 6,
    "Levy-8": [1] * 8,
    "six-hump camel": [0.0898, -0.7126],
    "Goldstein-Price": [0, -1],
    "Schwefel-3": [420.968746] * 3,
    "Shekel-4": [4.000747, 4.000593, 3.999663, 3.999510],
    "Hartmann-4": [0.18744, 0.19415, 0.55792, 0.26478],
    "Rastrigin-4": [0] * 4,
    "Zakharov-5": [0] * 5,
    "Dixon-Price-6": [2 ** -(1 - 2.0 ** (1 - n)) for n in range(1, 7)],
    "Trid-6": [n * (7 - n) for n in range(1, 7)],
    "Powell-8": [0] * 8,
    "cosine mixture-8, noisy": [0] * 8,
}


@pytest.mark.parametrize("name", [function.name for make in (functions.standard, functions.held_out) for function in make()])
def test_no_value_of_a_function_is_below_its_least(name):
    function = BY_NAME[name]
    span, sd = function.spread
    assert span > sd > 0
    looked_at = np.asarray(function.box.sobol(functions.LOOKED_AT, 0).points, np.float64)
    assert min(function.values(point)[0] for point in looked_at) >= function.least
    if name in LEAST_AT:
        assert function.values(np.array(LEAST_AT[name], float)) == pytest.approx([function.least], abs=1e-5 * max(1, abs(function.least)))
    assert function.with_noise(0.5).noise == pytest.approx(0.5 * sd) and len(function.values(looked_at[0])) == 1


def test_functions_of_few_axes_ignore_the_others():
    point = np.full(20, 0.9)
    point[functions.ACTIVE] = LEAST_AT["Hartmann-6"]
    wells = np.full(20, 9.0)
    wells[functions.ACTIVE[:4]] = LEAST_AT["Shekel-4"]
    for name, at in (("Hartmann-6 in 20", point), ("Shekel-4 in 20", wells)):
        assert BY_NAME[name].values(at) == pytest.approx([BY_NAME[name].least], abs=1e-5)
    assert BY_NAME["Hartmann-6 x 1e6 + 3e8"].values(point[functions.ACTIVE]) == pytest.approx([3e8 - 3.32236801e6], abs=1)


@pytest.mark.parametrize("name", [function.name for function in functions.constrained()])
def test_constrained_functions_are_minus_the_benchmarks_rewards(name):
    function, problem = BY_NAME[name], functions.PROBLEMS[name.removesuffix(", constrained")][0]()
    value, *costs = function.values(np.asarray(problem.best.point, np.float64))
    assert value == pytest.approx(-float(problem.best.value), rel=1e-6, abs=1e-9) and max(costs) < 1e-6
    assert len(costs) == function.constraints == problem.constraints and function.least == pytest.approx(value, rel=1e-6, abs=1e-9)


OPTIONS = dataclasses.replace(rivals.EXPERIMENT.quick, trials=2, horizon=8)


def asked(**extra):
    return dataclasses.replace(OPTIONS, extra=rivals.ALL | {"players": ("random",), "functions": ("Branin",)} | extra)


def test_names_and_missing_libraries_are_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(InvalidArgument, match=r"^--functions: must be one of .*; got 'nobody'"):
        rivals.play(asked(functions=["nobody"]), tmp_path)
    with pytest.raises(InvalidArgument, match=r"^--noise: must lie in .* got -1"):
        rivals.play(asked(noise=-1.0), tmp_path)
    monkeypatch.setitem(sys.modules, "botorch", None)
    assert main(["rivals", "--no-cache", "--players", "botorch", "--out", str(tmp_path / "out")]) == 2
    assert 'BoTorch needs botorch, which is not installed: pip install "jaxbandit[rivals]"' in " ".join(capsys.readouterr().err.split())


def test_noise_is_a_share_of_functions_without_their_own():
    quiet, noisy = rivals.chosen(["Branin", "Hartmann-6, noisy"], 0.1)
    assert (quiet.noise, noisy.noise) == (pytest.approx(0.1 * BY_NAME["Branin"].spread[1]), 0.33)
    assert [function.name for function in rivals.chosen(["Branin", "standard", "Branin"], 0.0)] == [f.name for f in functions.standard()]
    assert rivals.chosen(["Branin"], 0.0)[0].noise == 0


def test_a_run_is_judged_by_true_values(monkeypatch):
    points = [[np.pi, 2.275], [0.0, 0.0], [5.0, 5.0]]

    def play(function, evaluate, evaluations, seed):
        seen = [evaluate(np.array(point)) for point in points]
        assert evaluations == 3 and seed == 7 and all(value.shape == (1,) for value in seen)
        assert all(abs(value[0] - function.values(np.array(point))[0]) > 1e-6 for value, point in zip(seen, points, strict=True))
        return np.array(points[1])

    monkeypatch.setitem(players.PLAYERS, "random", (play, ()))
    branin = BY_NAME["Branin"].with_noise(0.3)
    outcome = rivals.played(branin, "random", 3, 7)
    assert outcome["best"] == pytest.approx(0, abs=1e-5) and outcome["cpu"] >= 0
    assert outcome["recommended"] == pytest.approx(branin.values(np.zeros(2))[0] - branin.least)
    monkeypatch.setitem(players.PLAYERS, "random", (lambda *given: 1 / 0, ()))
    assert rivals.played(branin, "random", 3, 7) == {"error": "ZeroDivisionError: division by zero"}


def test_only_feasible_points_count():
    gramacy, at = BY_NAME["Gramacy, constrained"], [[0.0, 0.0], [1.0, 1.0], [0.2, 0.9]]
    feasible = [np.max(gramacy.values(np.array(point))[1:]) <= 0 for point in at]
    assert feasible == [False, False, True]

    def play(function, evaluate, evaluations, seed):
        for point in at[:evaluations]:
            evaluate(np.array(point))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(players.PLAYERS, "random", (play, ()))
        assert rivals.played(gramacy, "random", 3, 0)["best"] == pytest.approx(1.1 - gramacy.least, rel=1e-6)
        assert rivals.played(gramacy, "random", 2, 0)["best"] == np.inf
        assert np.isnan(rivals.played(gramacy, "random", 2, 0)["recommended"])


def test_runs_that_a_file_has_are_not_played_again(tmp_path, monkeypatch):
    file = tmp_path / "runs.jsonl"
    first = rivals.play(asked(runs=str(file)), tmp_path)
    lines = file.read_text().splitlines()
    assert len(lines) == 2 and json.loads(lines[0])["of"] == ["Branin", 0.0, "random", 8, 0]
    monkeypatch.setitem(players.PLAYERS, "random", (lambda *given: 1 / 0, ()))
    xr.testing.assert_equal(rivals.play(asked(runs=str(file)), tmp_path), first)
    more = rivals.play(dataclasses.replace(asked(runs=str(file)), trials=3), tmp_path)
    assert len(file.read_text().splitlines()) == 3 and "ZeroDivisionError" in rivals.notes(more)[-1]
    np.testing.assert_array_equal(more["best"].values[..., :2], first["best"].values)
    file.write_text("no run\n")
    with pytest.raises(InvalidArgument, match=r"^--runs: .* has a line that is no run"):
        rivals.play(asked(runs=str(file)), tmp_path)


def test_random_points_and_tpe_are_played_as_their_libraries_do():
    optuna = pytest.importorskip("optuna")
    branin = BY_NAME["Branin"]
    for player, seen in (("random", []), ("TPESampler", [])):
        chosen = players.PLAYERS[player][0](branin, lambda x, seen=seen: seen.append(x) or np.array(branin.values(x)), 15, 3)
        assert len(seen) == 15 and any(np.array_equal(chosen, point) for point in seen)
        assert branin.values(chosen)[0] == min(branin.values(point)[0] for point in seen)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=3))
    study.optimize(lambda trial: branin.values(np.array([trial.suggest_float("x1", -5, 10), trial.suggest_float("x2", 0, 15)]))[0], 15)
    np.testing.assert_array_equal(np.stack(seen), [list(trial.params.values()) for trial in study.trials])


def made(best, recommended, noise=0.0, names=("jaxbandit", "GPSampler", "TPESampler", "random")):
    shape = ("function", "player", "seed")
    columns = {"best": best, "recommended": recommended, "cpu": np.ones_like(best)}
    count = len(best)
    facts = {"range": [1.0] * count, "noise": [noise] * count, "dimension": [2] * count}
    return xr.Dataset(
        {name: (shape, np.asarray(column, float)) for name, column in columns.items()}
        | {name: ("function", f) for name, f in facts.items()},
        coords={"function": [f"f{n}" for n in range(count)], "player": list(names), "seed": range(np.shape(best)[2])},
        attrs={"evaluations": 60, "errors": "[]", "versions": "{}"},
    )


def test_ratios_are_to_the_best_peer():
    best = np.array([[[0.1, 0.3, 0.2], [0.4, 0.5, 0.3], [0.8, 0.8, 0.9], [0.05, 0.05, 0.05]], [[0, 0, 1e-9], [1e-4] * 3, [1] * 3, [1] * 3]])
    dataset = made(best, best * 2)
    np.testing.assert_allclose(rivals.ratios(dataset), [0.5, 0.01])
    assert [row["ratio"] for row in rivals.rows(dataset)] == ["0.5", "0.01"] and rivals.rows(dataset)[0]["jaxbandit"] == "0.2"
    words = " ".join(rivals.notes(dataset))
    assert "geometric mean 0.071; above 1.2 and 0.001 of the range: none" in words
    assert "behind random: f0" in words and "behind TPESampler: nowhere" in words and "a worse point than it evaluated: 3" in words
    noisy = made(best, best[:, ::-1], noise=0.1)
    np.testing.assert_allclose(rivals.judged(noisy), np.median(best, axis=2)[:, ::-1])
    assert "above 1.2 and 0.001 of the range: f1" in " ".join(rivals.notes(noisy))
    assert np.isnan(rivals.ratios(dataset.sel(player=["jaxbandit", "random"]))).all()
    none = made(np.full((1, 4, 2), np.inf), np.full((1, 4, 2), np.nan))
    assert rivals.rows(none)[0]["GPSampler"] == "-" and rivals.rows(none)[0]["ratio"] == "-"


@pytest.mark.full
def test_rivals_plays_optimise(tmp_path, capsys):
    given = [
        "--no-cache",
        "--seeds",
        "1",
        "--evaluations",
        "9",
        "--functions",
        "Branin",
        "--noise",
        "0.1",
        "--players",
        "jaxbandit",
        "random",
    ]
    assert main(["rivals", *given, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "1 trial, T = 9" in printed and "Branin" in printed and "failed" not in printed
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".sha256") == [
        "figure.png",
        "results.nc",
        "rivals.md",
        "summary.csv",
    ]
    with xr.open_dataset(tmp_path / "out" / "results.nc", engine="h5netcdf") as data:
        assert float(data["noise"][0]) == pytest.approx(0.1 * BY_NAME["Branin"].spread[1])
        assert (data["recommended"].values >= data["best"].values).all()


@pytest.mark.full
def test_settings_draw_functions_with_and_without_constraints():
    limited = default.SETTINGS["2 axes, 1 constraint"]
    free = dataclasses.replace(limited, constraints=0)
    assert {type(setting.kernel).__name__ for setting in default.SETTINGS.values()} == {
        "SquaredExponential",
        "Matern52",
        "Matern32",
        "Matern12",
    }
    keys = jax.random.split(jax.random.key(0), 16)
    before, after = (jax.jit(jax.vmap(setting.family(0.5).sample))(keys) for setting in (limited, free))
    assert before.means.shape[1] == 2 and after.means.shape[1] == 1
    np.testing.assert_array_equal(after.means[:, 0], before.means[:, 0])
    point = limited.family(0).domain.points[5]
    values = jax.jit(jax.vmap(lambda problem, at: problem.values(at), (0, None)))(after, point)
    np.testing.assert_allclose(values, after.means[:, :, 5], atol=1e-5)
    for setting in (limited, free):
        family = setting.family(0.5)
        assert family.noise == Gaussian(variance=0.25) and family.outputs == 1 + setting.constraints


def test_ranks_share_ties_and_put_trials_without_a_feasible_point_last():
    best = np.array([[[2.0001, np.nan], [1.0, 3.0], [2.0, np.nan]]])
    dataset = xr.Dataset(
        {"best": (("pair", "candidate", "trial"), best), "cpu": (("pair", "candidate"), np.ones((1, 3)))},
        coords={"setting": ("pair", ["6 axes"]), "noise": ("pair", ["none"]), "candidate": ["random", default.DEFAULT, "CEI"]},
    )
    np.testing.assert_array_equal(default.ranks(dataset), [[[1.5, 2.5], [3, 1], [1.5, 2.5]]])
    first, second, _ = default.rows(dataset)
    assert first["rank"] == "2.00" and first["minus default"].startswith("+0.00 +- ") and second["minus default"] == "0"
    assert set(first) >= {"noise none", "free", "d > 5"} and not set(first) & {"noise large", "constrained", "d < 5"}
    assert default.notes(dataset)[1] == "trials without a feasible point: random 1, CEI 1"


@pytest.mark.full
def test_the_choice_of_a_default_is_played_and_kept(tmp_path, monkeypatch):
    file = tmp_path / "runs.jsonl"
    extra = {"candidates": ("random",), "settings": ("1 axis",), "noises": ("large",), "runs": str(file)}
    options = dataclasses.replace(default.EXPERIMENT.quick, trials=3, horizon=6, extra=extra)
    dataset = default.play(options, tmp_path)
    assert dataset["best"].shape == (1, 1, 3) and np.isfinite(dataset["best"]).all() and len(file.read_text().splitlines()) == 1
    monkeypatch.setattr(default, "played", lambda *given: 1 / 0)
    xr.testing.assert_equal(default.play(options, tmp_path), dataset)
    default.draw(dataset).savefig(tmp_path / "figure.png")
    default.files(dataset, default.rows(dataset))["default.md"](tmp_path / "default.md")
    assert "| random |" in (tmp_path / "default.md").read_text()


@pytest.mark.full
def test_default_plays_the_default(tmp_path, capsys):
    """``--runs`` names a file, so its runs are shown again."""
    given = ["--quick", "--no-cache", "--trials", "1", "--settings", "1 axis", "--noises", "none", "--runs", str(tmp_path / "runs.jsonl")]
    for out in ("first", "again"):
        assert main(["default", *given, "--out", str(tmp_path / out)]) == 0
    tables = capsys.readouterr().out.split(f"{default.EXPERIMENT.title}\n")[1:]
    assert (
        len(tables) == 2
        and tables[0].partition("\n\n")[2].split(str(tmp_path))[0] == tables[1].partition("\n\n")[2].split(str(tmp_path))[0]
    )
    assert f"{default.DEFAULT}  1." in tables[0] and len((tmp_path / "runs.jsonl").read_text().splitlines()) == 2


def test_losses_of_choices_are_means_of_what_was_recommended_and_of_each_algorithm():
    losses = np.array([[[[1.0, 2.0], [3.0, 0.0]], [[0.0, 4.0], [0.0, 4.0]]]])
    dataset = xr.Dataset(
        {"said": (("space", "family", "seed"), [[[0, 1], [1, 0]]]), "loss": (("space", "family", "seed", "algorithm"), losses)},
        coords={"space": ["grid"], "family": ["a", "b"], "algorithm": ["A", "B"]},
    )
    found = {name: means.tolist() for name, means in forecasts.losses_of(dataset).items()}
    assert found == {"forecast": [[0.5, 2.0]], "hindsight": [[1.0, 0.0]], "A": [[2.0, 0.0]], "B": [[1.0, 4.0]]}
    assert forecasts.rows(dataset)[0] == {"of": "choice: forecast", "mean loss, grid": "1.250"}
    assert forecasts.notes(dataset) == ["best in hindsight, in families: A 1, B 1"] or "B 1, A 1" in forecasts.notes(dataset)[0]
    assert len(forecasts.FAMILIES) == 10


def test_gaps_of_searches_that_know_another_are_medians_in_deviations():
    gaps = np.arange(2 * 3 * 12.0).reshape(1, 2, 3, 12)
    coords = {"function": ["Branin"], "player": ["alone", "similar"], "seed": [0, 1, 2], "evaluation": np.arange(1, 13)}
    rows = similar.rows(xr.Dataset({"gap": (tuple(coords), gaps)}, coords=coords))
    assert rows == [
        {"function": "Branin", "session": "alone", "after 10": "21"},
        {"function": "Branin", "session": "similar", "after 10": "57"},
    ]
    assert set(similar.NAMES) <= set(BY_NAME)
