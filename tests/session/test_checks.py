"""Checks of sessions against dense formulas, and every alarm."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import null_space
from scipy.special import logsumexp

from jaxbandit.kernels import Matern32, Matern52, Scale
from jaxbandit.session import Axis, Model, Session, SessionError
from jaxbandit.session.mistakes import FACTORS, NAMED, SHAPE, Column, logarithmic, misstated, of_stated, unchanged
from tests.oracles.gaussian_process import matern32, matern52

AXES = [Axis.between("a", 0, 1), Axis.between("b", 0, 10)]
Values = tuple[np.ndarray, np.ndarray]


def session_of(change: Callable[[np.ndarray, np.ndarray], Values] = lambda y, g: (y, g), *, count: int = 30, **options: Any) -> Session:
    """Return a session of a smooth yield and cost, after a change."""
    rng = np.random.default_rng(0)
    x = stats.qmc.Sobol(2, seed=1).random(32)[:count]
    y = 50 + 10 * np.sin(5 * x[:, 0]) * np.cos(3 * x[:, 1]) + 0.3 * rng.standard_normal(count)
    g = np.cos(4 * x[:, 0] + 2 * x[:, 1]) + 0.03 * rng.standard_normal(count)
    y, g = change(y, g)
    session = Session.create(None, AXES, key=0, objective="maximise yield", constraints=["cost <= 0.5"], **options)
    session.tell_all({"a": x[:, 0], "b": 10 * x[:, 1], "yield": y, "cost": g})
    return session


def test_left_out_values_are_predicted_as_by_a_refit_to_the_others() -> None:
    """Dense posteriors of all models are averaged.

    The third run is told twice, and one of its values is left out at a time.
    """
    with Session.create(None, AXES[:1], key=0, objective="minimise loss", constraints=["cost >= 0"]) as session:
        x = np.asarray([0.0, 0.2, 0.35, 0.35, 0.5, 0.7, 0.9, 1.0])
        loss, cost = np.sin(6 * x) + np.asarray([0, 0.1, -0.2, 0.2, 0, 0.1, -0.1, 0]), 3 - x**2
        session.tell_all({"a": x, "loss": loss, "cost": cost})
        found = session.check()
        shown = session._state.believed
    for name, told, average, location, scale in zip(
        ("loss", "cost"), (loss, cost), shown.averages, shown.standard.location, shown.standard.scale, strict=True
    ):
        assert len(average.models) > 5
        means, variances, below = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for kernel, noise in average.models:
            form: Any = {Matern52: matern52, Matern32: matern32}[type(kernel.kernel)]
            matrix = float(kernel.variance) * form(x[:, None], x[:, None], np.asarray(kernel.kernel.length_scale)) + average.data.constant
            seen, mean, variance = (told - location) / scale, np.empty(8), np.empty(8)
            for out in range(8):
                kept = np.arange(8) != out
                solved = np.linalg.solve(matrix[np.ix_(kept, kept)] + noise * np.eye(7), np.stack([seen[kept], matrix[kept, out]], axis=1))
                mean[out] = matrix[out, kept] @ solved[:, 0]
                variance[out] = matrix[out, out] + noise - matrix[out, kept] @ solved[:, 1]
            means.append(location + scale * mean)
            variances.append(scale**2 * variance)
            below.append(stats.norm.cdf(told, means[-1], np.sqrt(variances[-1])))
        mean = average.weights @ np.asarray(means)
        sd = np.sqrt(average.weights @ (np.asarray(variances) + (np.asarray(means) - mean) ** 2))
        row = found.table.sel(output=name)
        np.testing.assert_allclose(row["value"], told)
        np.testing.assert_allclose(row["mean"], mean, rtol=1e-5, atol=1e-6 * scale)
        np.testing.assert_allclose(row["sd"], sd, rtol=1e-5)
        np.testing.assert_allclose(row["residual"], (told - mean) / sd, rtol=1e-4, atol=1e-5)
        probability = average.weights @ np.asarray(below)
        np.testing.assert_allclose(row["probability"], probability, atol=1e-5)
        shares = [np.mean(np.abs(probability - 0.5) <= level / 2) for level in (0.8, 0.95)]
        assert found.inside[name] == pytest.approx(shares)


def column_of(values: np.ndarray, location: float | None, transforms: Any = (unchanged,)) -> tuple[Column, list[np.ndarray]]:
    """Return a column with two weighted models, and its covariances."""
    points = np.linspace(0, 1, len(values))[:, None]
    models = [(Scale(kernel=Matern52(length_scale=0.4), variance=2.0), 0.1, 0.25), (Matern32(length_scale=0.8), 0.02, 0.75)]
    dense = [2 * matern52(points, points, 0.4) + 0.1 * np.eye(len(points)), matern32(points, points, 0.8) + 0.02 * np.eye(len(points))]
    return Column.of(points, values, models, location, transforms), dense


def log_density(values: np.ndarray, covariances: list[np.ndarray], location: float | None) -> float:
    """Return the log density of values but for its constant.

    With unknown location and scale it is that of contrasts, with scales summed at densities ``1 / s``.
    """
    logs = []
    for weight, covariance in zip((0.25, 0.75), covariances, strict=True):
        if location is not None:
            density = stats.multivariate_normal.logpdf(values, np.full(len(values), location), covariance)
            logs.append(np.log(weight) + density + len(values) / 2 * np.log(2 * np.pi))
            continue
        contrasts = null_space(np.ones((1, len(values))))
        seen, spread = contrasts.T @ values, contrasts.T @ covariance @ contrasts
        steps = np.linspace(np.log(1e-4), np.log(1e5), 20_001)
        each = -np.exp(-2 * steps) * (seen @ np.linalg.solve(spread, seen)) / 2 - len(seen) * steps - np.linalg.slogdet(spread)[1] / 2
        logs.append(np.log(weight) + logsumexp(each) + np.log(steps[1] - steps[0]))
    return float(logsumexp(logs))


VALUES = np.asarray([1.2, 0.9, 14.0, 1.5, 0.3, 0.8])


@pytest.mark.parametrize("location", [0.7, None])
def test_evidence_of_another_unit_is_that_of_all_blocks_and_factors(location: float | None) -> None:
    column, covariances = column_of(VALUES, location)
    healthy, logs = log_density(VALUES, covariances, location), dict[tuple[int, int, float], float]()
    for first in range(6):
        for last in range(first, 6):
            prior = 0.5 / 6 if first == last else 0.5 / 15
            for factor in FACTORS:
                values = VALUES.copy()
                values[first : last + 1] /= factor
                if location is None and last - first == 5:
                    continue
                density = log_density(values, covariances, location) - (last - first + 1) * np.log(abs(factor))
                logs[first, last, factor] = density + np.log(prior / len(FACTORS))
    found = column.wrong_unit()
    assert found.evidence == pytest.approx(logsumexp(list(logs.values())) - healthy, abs=1e-5)
    assert (found.first, found.last, found.factor) == max(logs, key=lambda block: logs[block]) == (2, 2, 10.0)


def test_evidence_of_exchanged_columns_is_that_of_all_blocks() -> None:
    others = np.asarray([15.0, 14.5, 1.1, 16.0, 15.0, 14.8])
    (one, covariances), (other, _) = column_of(VALUES, 0.7), column_of(others, 14.0)
    logs = {}
    for first in range(6):
        for last in range(first, 6):
            values, swapped = VALUES.copy(), others.copy()
            values[first : last + 1], swapped[first : last + 1] = others[first : last + 1], VALUES[first : last + 1]
            density = log_density(values, covariances, 0.7) + log_density(swapped, covariances, 14.0)
            logs[first, last] = density + np.log(0.5 / 6 if first == last else 0.5 / 15)
    found = one.exchanged(other)
    healthy = log_density(VALUES, covariances, 0.7) + log_density(others, covariances, 14.0)
    assert found.evidence == pytest.approx(logsumexp(list(logs.values())) - healthy, abs=1e-6)
    assert (found.first, found.last) == max(logs, key=lambda block: logs[block]) == (2, 2)


@pytest.mark.parametrize("location", [0.7, None])
def test_evidence_of_a_drift_is_that_of_a_linear_term(location: float | None) -> None:
    values = np.asarray([1.2, 0.9, 1.4, 1.5, 1.9, 2.2])
    column, covariances = column_of(values, location)
    ramp = np.linspace(-0.5, 0.5, 6)
    more = [covariance + variance * np.outer(ramp, ramp) for covariance, variance in zip(covariances, (2.0, 1.0), strict=True)]
    evidence, size = column.drift()
    assert evidence == pytest.approx(log_density(values, more, location) - log_density(values, covariances, location), abs=1e-5)
    if location is not None:
        weights = [
            np.log(w) + stats.multivariate_normal.logpdf(values, np.full(6, location), m) for w, m in zip((0.25, 0.75), more, strict=False)
        ]
        sizes = [v * ramp @ np.linalg.solve(m, values - location) for v, m in zip((2.0, 1.0), more, strict=True)]
        assert size == pytest.approx(np.exp(weights - logsumexp(weights)) @ sizes, rel=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_transform_has_the_density_of_what_it_makes_of_values(sign: float) -> None:
    column, covariances = column_of(sign * VALUES, 0.7, (unchanged, logarithmic(sign)))
    logs = [log_density(sign * VALUES, covariances, 0.7), log_density(np.log(VALUES), covariances, 0.7) - np.sum(np.log(VALUES))]
    assert column.healthy() == pytest.approx(logsumexp(logs) - np.log(2), abs=1e-8)
    table = column.changed(-sign * VALUES)
    values = sign * VALUES
    values[1:3] *= -1
    assert table[1, 2] == pytest.approx(log_density(values, covariances, 0.7) - np.log(2), abs=1e-8), "no logarithm of a negative value"
    assert np.all(np.isneginf(table[np.tril_indices(6, -1)]))


def test_evidence_of_a_wrong_model_is_that_of_other_length_scales_and_noise() -> None:
    points, values = np.linspace(0, 1, 6)[:, None], np.asarray([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])

    def density(length: float, noise: float) -> float:
        return float(stats.multivariate_normal.logpdf(values, None, matern52(points, points, length) + noise * np.eye(6)))

    others = {(part, f): density(0.5 * f, 0.01) if part == "length_scale" else density(0.5, 0.01 * f) for part, f in NAMED}
    evidence, part, factor = misstated(of_stated(points, values, Matern52(length_scale=0.5), 0.01, 0.0))
    assert evidence == pytest.approx(logsumexp(list(others.values())) - np.log(len(others)) - density(0.5, 0.01), abs=1e-8)
    assert (part, factor) == max(others, key=lambda name: others[name])


def test_evidence_of_a_wrong_model_counts_the_likely_scales_of_values_in_a_unit() -> None:
    """Integrate the scale by hand, from the density of contrasts."""
    points, values, unit = np.linspace(0, 1, 6)[:, None], np.asarray([3.0, 2.0, 3.2, 1.9, 3.1, 2.2]), 0.4
    contrasts = np.linalg.svd(np.ones((6, 1)))[0][:, 1:]
    seen, squares = contrasts.T @ values, np.exp(np.linspace(-12, 12, 20001))

    def density(length: float, noise: float) -> float:
        matrix = contrasts.T @ (matern52(points, points, length) + noise * np.eye(6)) @ contrasts
        each = -seen @ np.linalg.solve(matrix, seen) / (2 * squares) - 2.5 * np.log(squares) - np.linalg.slogdet(matrix)[1] / 2
        return float(logsumexp(each + stats.invgamma.logpdf(squares, SHAPE, scale=SHAPE * unit**2) + np.log(squares)))

    others = [density(0.5 * f, 0.01) if part == "length_scale" else density(0.5, 0.01 * f) for part, f in NAMED]
    logs = of_stated(points, values, Matern52(length_scale=0.5), 0.01, None, unit)
    assert logs[1:] - logs[0] == pytest.approx(np.asarray(others) - density(0.5, 0.01), abs=1e-6)


def multiplied(output: int, rows: slice, factor: float) -> Callable[[np.ndarray, np.ndarray], Values]:
    def change(*values: np.ndarray) -> Values:
        values[output][rows] *= factor
        return values[0], values[1]

    return change


def swapped(rows: slice) -> Callable[[np.ndarray, np.ndarray], Values]:
    def change(y: np.ndarray, g: np.ndarray) -> Values:
        y[rows], g[rows] = g[rows].copy(), y[rows].copy()
        return y, g

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            multiplied(1, slice(3, 4), 1000), "cost of ticket 4 seems to have a value 1000 times too large", marks=pytest.mark.full
        ),
        (multiplied(0, slice(20, 25), 0.1), "yield of tickets 21 to 25 seem to have values 10 times too small"),
        (multiplied(1, slice(4, 5), -1), "cost of ticket 5 seems to have the wrong sign"),
        pytest.param(swapped(slice(7, 8)), "yield and cost of ticket 8 seem to be exchanged", marks=pytest.mark.full),
        (swapped(slice(7, 12)), "yield and cost of tickets 8 to 12 seem to be exchanged"),
        (lambda y, g: (y - np.linspace(0, 10, 30), g), "Values of yield at equal points fall by about"),
    ],
)
def test_a_mistake_is_flagged_by_its_tickets(change: Callable[[np.ndarray, np.ndarray], Values], words: str) -> None:
    found = session_of(change).check()
    [flag] = found.flags
    assert flag.startswith(words) and flag.endswith(".")
    assert str(found).startswith(f"- {flag}\n") and words in found._repr_html_()


@pytest.mark.full
def test_several_mistakes_are_flagged_one_by_one() -> None:
    found = session_of(lambda y, g: multiplied(1, slice(20, 21), 100)(*swapped(slice(7, 8))(y, g))).check()
    assert [flag.split(" seem")[0] for flag in sorted(found.flags)] == ["cost of ticket 21", "yield and cost of ticket 8"]


@pytest.mark.full(but=("True",))
@pytest.mark.parametrize(("length", "noise", "words"), [(1.2, 0.01, "shorter length-scales"), (0.4, 1e-3, "more noise")])
@pytest.mark.parametrize("standardise", [True, False])
def test_a_stated_model_that_does_not_fit_is_flagged(length: float, noise: float, words: str, standardise: bool) -> None:
    rng = np.random.default_rng(3)
    x = stats.qmc.Sobol(2, seed=2).random(32)[:30]
    y = rng.multivariate_normal(np.zeros(30), matern52(x, x, 0.4) + (0.01 if length > 1 else 0.1) * np.eye(30))

    def flags(length: float, noise: float) -> tuple[str, ...]:
        model = Model(kernel=Matern52(length_scale=length), noise_variance=noise)
        with Session.create(None, AXES, model=model, key=0, objective="maximise y", standardise=standardise) as session:
            session.tell_all({"a": x[:, 0], "b": 10 * x[:, 1], "y": y})
            return session.check().flags

    [flag] = flags(length, noise)
    assert flag.startswith("The model does not fit the values of y, which") and words in flag
    assert flags(0.4, 0.01 if length > 1 else 0.1) == ()


@pytest.mark.full(but=("3",))
@pytest.mark.parametrize(("sessions", "most"), [(3, 1), (20, 4)])
def test_nothing_is_flagged_in_most_sessions_without_mistakes(sessions: int, most: int) -> None:
    """At a rate of 5%, five of 20 alarms have probability 0.25%.

    Two of 3 have 0.7%.
    """
    alarms = 0
    for seed in range(sessions):
        rng = np.random.default_rng(seed)
        x = stats.qmc.Sobol(2, seed=seed).random(32)[:20]
        y, g = rng.multivariate_normal(np.zeros(20), matern52(x, x, 0.4) + 0.01 * np.eye(20), size=2)
        with Session.create(None, AXES, key=0, objective="maximise y", constraints=["g <= 0.5"]) as session:
            session.tell_all({"a": x[:, 0], "b": 10 * x[:, 1], "y": 20 + y, "g": g})
            alarms += bool(session.check().flags)
    assert alarms <= most


def test_a_check_shows_itself_as_text_table_and_figure() -> None:
    session = session_of(swapped(slice(7, 8)))
    session.tell(session.ask(), {"yield": 51.0})
    found = session.check()
    assert "yield       31" in str(found) and "cost        30" in str(found)
    assert found.least_expected[0] == 8 and len(set(found.least_expected)) == 3
    assert f"Least expected runs: tickets {', '.join(map(str, found.least_expected))}" in found._repr_html_()
    rows = found.to_dataframe()
    assert len(rows) == 61 and list(rows.columns) == ["output", "ticket", "value", "mean", "sd", "residual", "probability"]
    figure = found.plot()
    assert [axis.get_xlabel() for axis in figure.axes] == [
        *("yield predicted from the other runs", "ticket"),
        *("cost predicted from the other runs", "ticket"),
    ]
    residuals = next(line for line in figure.axes[1].lines if len(np.asarray(line.get_xdata())) == 31)
    np.testing.assert_array_equal(residuals.get_ydata(), found.table["residual"].sel(output="yield"))


def test_what_cannot_be_checked_is_refused_in_one_line() -> None:
    with pytest.raises(SessionError, match="check: needs at least 5 values of an output, and 0 have been told"):
        Session.create(None, AXES, key=0).check()
    with pytest.raises(SessionError, match="and 4 have been told; tell more of them first"):
        session_of(count=4).check()
    grid = [Axis.between("a", 0, 1, 6)]
    with (
        Session.create(
            None, grid, key=0, model=Model(noise_variance=[0.1] * 6), history={"a": [0, 0.2, 0.4, 0.6, 1], "reward": [1, 2, 1, 3, 2]}
        ) as session,
        pytest.raises(SessionError, match="check: needs noise that is the same at all points"),
    ):
        session.check()


def test_equal_values_categories_and_few_rows_are_checked() -> None:
    axes = [Axis.between("a", 0, 1, 11), Axis.of_categories("metal", ["Pd", "Ni"])]
    with Session.create(None, axes, key=0, constraints=["g <= 1"]) as session:
        session.tell_all({"a": np.arange(8) / 10, "metal": ["Pd", "Ni"] * 4, "reward": np.arange(8.0), "g": [0.0] * 8})
        found = session.check()
    assert found.flags == (), "a trend along an axis is none in time"
    assert found.drift["g"] == 0
    assert np.isfinite(found.table["mean"]).all() and (found.table["sd"] > 0).all()
