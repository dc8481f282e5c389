"""The papers' data sets and their synthetic stand-ins.

``JAXBANDIT_DATA`` names a directory with ``iw_data_all.mat`` and ``fin.csv``.
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.io import savemat

import jaxbandit
from jaxbandit import InvalidArgument, canonicalise, problems


@pytest.fixture(autouse=True)
def no_files_in_the_environment(monkeypatch):
    monkeypatch.delenv("JAXBANDIT_LIGHT", raising=False)
    monkeypatch.delenv("JAXBANDIT_STOCKS", raising=False)


def real(name):
    folder = os.environ.get("JAXBANDIT_DATA")
    if not folder:
        pytest.skip("JAXBANDIT_DATA is not set: no directory with the papers' data")
    file = Path(folder) / name
    if not file.is_file():
        pytest.skip(f"JAXBANDIT_DATA has no {name}")
    return file


def facts(data):
    return int(np.sum(np.asarray(data.problem.means)[1] <= 0)), float(np.sqrt(np.mean(np.square(data.problem.noise.table))))


def test_light_facts():
    data = problems.light(real("iw_data_all.mat"))
    feasible, sd = facts(data)
    assert data.problem.domain.size == 41 and data.problem.noise.table.shape == (192, 41)
    assert data.bound == pytest.approx(945.54, abs=0.01) and data.threshold == data.bound / 2
    assert feasible == 19 and sd == pytest.approx(288.0, abs=0.1)
    values = np.linalg.eigvalsh(data.gram)
    np.testing.assert_allclose(np.diag(data.gram), 1)
    np.testing.assert_allclose(values[[0, -1]], [5.665e-5, 26.913], rtol=1e-3)
    assert data.problem.name == "light" and "synthetic" not in data.source
    data.kernel.check_axes(1)


def test_stocks_facts(monkeypatch):
    file = real("fin.csv")
    monkeypatch.setenv("JAXBANDIT_STOCKS", str(file))
    data = problems.stocks_or_synthetic()
    feasible, _ = facts(data)
    assert data.problem.noise.table.shape == (823, 29) and data.labels[:2] == ("AAPL", "AXP")
    assert data.bound == pytest.approx(237.33, abs=0.01) and data.threshold == 100 and feasible == 15
    assert data.problem.name == "stocks" and "synthetic" not in data.source


@pytest.mark.parametrize("make", [problems.light_synthetic, problems.stocks_synthetic])
def test_synthetic_stand_ins_are_labelled_and_like_the_data(make):
    data = make()
    data.problem.validate()
    data.kernel.check_axes(1)
    assert "synthetic" in data.problem.name and "synthetic" in data.source and all("synthetic" in label for label in data.labels)
    feasible, _ = facts(data)
    assert 1 <= feasible < data.problem.domain.size and len(data.labels) == data.problem.domain.size
    np.testing.assert_array_equal(data.problem.means, make().problem.means)
    assert np.any(data.problem.means != make(seed=1).problem.means)
    np.testing.assert_allclose(np.asarray(data.problem.means).sum(0), data.threshold)
    np.testing.assert_allclose(np.asarray(data.problem.noise.table).mean(0), 0, atol=1e-9)
    assert data.noise_bound == np.abs(data.problem.noise.table).max() and data.bound == np.max(data.problem.means[0])


def test_stand_in_stocks_are_heavy_tailed():
    table = np.asarray(problems.stocks_synthetic().problem.noise.table)
    assert np.mean(table**4) / np.mean(table**2) ** 2 > 5


def test_scale_divides_everything():
    raw, small = problems.light_synthetic(), problems.light_synthetic(scale=10.0)
    np.testing.assert_allclose(np.asarray(small.problem.means) * 10, raw.problem.means)
    np.testing.assert_allclose(np.asarray(small.problem.noise.table) * 10, raw.problem.noise.table)
    assert small.bound * 10 == pytest.approx(raw.bound) and small.threshold * 10 == pytest.approx(raw.threshold)
    np.testing.assert_array_equal(small.gram, raw.gram)


def test_one_reading_gives_reward_and_cost():
    problem = canonicalise(problems.stocks_synthetic().problem)
    keys = jax.random.split(jax.random.key(0), 2000)
    values = np.asarray(jax.vmap(lambda key: problem.observe(jnp.int32(5), problem.draw(key)))(keys), np.float64)
    assert np.corrcoef(values.T)[0, 1] < -0.999
    error = values.std(0) / np.sqrt(2000)
    assert np.all(np.abs(values.mean(0) - np.asarray(problem.means)[:, 5]) < 5 * error)


@pytest.mark.full
def test_arms_run_in_simulate():
    data = problems.stocks_synthetic(scale=100.0)
    model = jaxbandit.surrogate(data.problem.domain, data.kernel, noise_variance=0.1)
    run = jaxbandit.simulate(data.problem, jaxbandit.Config(), model, horizon=5, trials=2, key=jax.random.key(0), block=1)
    assert np.all(np.isfinite(run.values)) and np.asarray(run.indices).max() < 29


@pytest.mark.parametrize("name", ["light", "stocks"])
def test_without_a_file_the_error_tells_what_to_do(name, monkeypatch, tmp_path):
    load, either = getattr(problems, name), getattr(problems, f"{name}_or_synthetic")
    variable = f"JAXBANDIT_{name.upper()}"
    with pytest.raises(InvalidArgument, match=f"{variable}.*{name}_synthetic"):
        load()
    assert "synthetic" in either(scale=2.0).source
    monkeypatch.setenv(variable, str(tmp_path / "absent"))
    with pytest.raises(InvalidArgument, match=f"{variable}.*absent.*not a file"):
        either()
    with pytest.raises(InvalidArgument, match=r"path = .*not a file"):
        load(tmp_path)


def table(tmp_path, text):
    file = tmp_path / "prices.csv"
    file.write_text(text)
    return file


GOOD = "Date,AA,BB\n1,10,20.5\n2,12,20\n3,11,23\n"


def test_any_price_table(tmp_path):
    data = problems.stocks(table(tmp_path, GOOD), threshold=None)
    assert data.labels == ("AA", "BB") and (data.problem.name, data.source) == ("stocks", "prices.csv")
    np.testing.assert_allclose(data.problem.means[0], [11, 63.5 / 3])
    assert data.threshold == pytest.approx(63.5 / 6)
    np.testing.assert_allclose(data.gram, np.corrcoef([[10, 12, 11], [20.5, 20, 23]]))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("Date,AA,BB\n1,10,20.5\n2,,20\n3,11,23\n", r"prices.csv.*'AA'.*row 2"),
        ("Date,AA,BB\n1,10,20.5\n2,11,nan\n", r"prices.csv.*'BB'.*row 2"),
        ("Date,AA,BB\n1,10,n/a\n2,11,3\n", r"prices.csv.*'BB'.*n/a.*row 1"),
        ("Date,AA,BB\n1,10\n2,11,3\n", r"prices.csv.*row 1 .*must have 3 columns"),
        ("Date,AA,AA\n1,10,1\n2,11,3\n", "different names"),
        ("Date,AA,BB\n1,10,5\n2,11,5\n", r"prices.csv.*'BB' is constant"),
        ("Date\n1\n", "one column per stock"),
        ("", "at least one row"),
    ],
)
def test_bad_tables_name_file_and_column(tmp_path, text, match):
    with pytest.raises(InvalidArgument, match=match):
        problems.stocks(table(tmp_path, text))


def sensors(tmp_path, train, test, field="sensordata"):
    file = tmp_path / "sensors.mat"
    savemat(file, {"data": {"train": {field: train}, "test": {field: test}}})
    return file


def test_other_sensors(tmp_path):
    rng = np.random.default_rng(0)
    train, test = rng.uniform(1, 9, (20, 3)), rng.uniform(1, 9, (10, 3))
    data = problems.light(sensors(tmp_path, train, test), threshold=4.0)
    np.testing.assert_allclose(data.problem.means[0], test.mean(0))
    np.testing.assert_allclose(data.problem.means[1], 4 - test.mean(0))
    np.testing.assert_allclose(data.gram, np.corrcoef(train.T))
    assert data.problem.name == "light"


def test_bad_sensor_files_name_file_and_field(tmp_path):
    good = np.random.default_rng(0).uniform(1, 9, (5, 3))
    hole, flat = good.copy(), good.copy()
    hole[2, 1], flat[:, 2] = np.nan, 1.0
    for train, test, match in (
        (good, hole, r"sensors.mat.*data.test.sensordata: 1 of 15 values"),
        (hole, good, r"sensors.mat.*data.train.sensordata: 1 of 15 values"),
        (good, good[:, :2], "got 3 of training and 2 of test"),
        (flat, good, r"sensors.mat.*'sensor 3' is constant"),
        (good, np.zeros((0, 3)), "data.test.sensordata"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            problems.light(sensors(tmp_path, train, test))
    with pytest.raises(InvalidArgument, match=r"data.train.sensordata.*KeyError: 'sensordata'"):
        problems.light(sensors(tmp_path, good, good, field="other"))
    savemat(tmp_path / "sensors.mat", {"other": good})
    with pytest.raises(InvalidArgument, match=r"KeyError: 'data'"):
        problems.light(tmp_path / "sensors.mat")
    (tmp_path / "sensors.mat").write_text("not a mat file at all, only text " * 10)
    with pytest.raises(InvalidArgument, match="must be a MATLAB file"):
        problems.light(tmp_path / "sensors.mat")
