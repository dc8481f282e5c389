"""Quantities of sessions, and figures of them."""

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.contour import ContourSet

import jaxbandit
from jaxbandit import InvalidArgument, RandomSearch, delays, domains, kernels
from jaxbandit.host.figures import Ground, figure_of, logarithmic_ticks
from jaxbandit.report.session import session_page
from jaxbandit.session import Model, Session
from jaxbandit.session.axes import Axis, Space
from jaxbandit.session.figures import NEAR, belief_figure, nearness
from jaxbandit.session.quantities import Constraint, Objective, Outputs, Standard, is_arithmetic, told_values
from jaxbandit.session.specification import read_toml

OUTPUTS = Outputs.read("minimise loss", ["cost <= 2.5", "purity >= 0.9", "pH = 7 +- 0.2"])


def test_outputs_are_read_and_written() -> None:
    assert [OUTPUTS.objective.name, OUTPUTS.objective.sign] == ["loss", -1]
    assert OUTPUTS.names == ("loss", "cost", "purity", "pH")
    assert [name for name, *_ in OUTPUTS.functions] == ["loss", "cost", "purity", "pH", "pH"]
    again = Outputs.read(str(OUTPUTS.objective), [str(constraint) for constraint in OUTPUTS.constraints])
    assert again == OUTPUTS
    assert Constraint.read("energy used per day>=-1.5e3") == Constraint("energy used per day", ">=", -1500.0)
    assert Objective.read(" maximise  yield of product ") == Objective("yield of product", 1)


def test_values_are_turned_into_rewards_and_costs() -> None:
    """A constraint holds where all of its costs are at most 0."""
    inward = OUTPUTS.inward({"loss": 0.4, "cost": 3.0, "purity": 0.95, "pH": 6.9})
    np.testing.assert_allclose([inward[row] for row in range(5)], [-0.4, 0.5, -0.05, -0.3, -0.1], atol=1e-12)
    assert OUTPUTS.inward({"pH": 7.3})[3] > 0 > OUTPUTS.inward({"pH": 7.3})[4]
    np.testing.assert_allclose(OUTPUTS.constraints[2].violation(np.array([6.5, 7.0, 7.3, np.nan])), [0.3, 0, 0.1, np.nan], atol=1e-12)
    np.testing.assert_allclose(OUTPUTS.constraints[1].violation(0.8), 0.1)


def test_beliefs_are_turned_back() -> None:
    rng = np.random.default_rng(0)
    values = {"loss": rng.normal(size=4), "cost": rng.normal(size=4), "purity": rng.normal(size=4), "pH": rng.normal(size=4)}
    inward = [OUTPUTS.inward({name: float(column[n]) for name, column in values.items()}) for n in range(4)]
    mean = np.array([[own[row] for own in inward] for row in range(5)])
    sd = np.array([[1.0], [2.0], [3.0], [4.0], [4.0]]) * np.ones((1, 4))
    back, deviation = OUTPUTS.outward(mean, sd, None)
    np.testing.assert_allclose(back, np.stack(list(values.values())), atol=1e-12)
    np.testing.assert_array_equal(deviation[:, 0], [1, 2, 3, 4])


def test_the_probability_of_feasibility_is_that_of_draws() -> None:
    """The standard error of a million draws is at most 0.0005."""
    mean, sd = np.array([[0.0], [2.0], [1.0], [7.1]]), np.array([[1.0], [0.5], [0.1], [0.15]])
    draws = mean + sd * np.random.default_rng(0).normal(size=(4, 1_000_000))
    holds = np.all([constraint.violation(row) == 0 for constraint, row in zip(OUTPUTS.constraints, draws[1:], strict=True)], axis=0)
    assert abs(OUTPUTS.probability_of_feasibility(mean, sd)[0] - holds.mean()) < 0.0025
    assert OUTPUTS.probability_of_feasibility(mean, np.zeros((4, 1)))[0] == 1


def test_two_limits_of_an_output_are_one_constraint() -> None:
    outputs = Outputs.read("maximise gain", ["pH <= 8.3", "cost <= 2", "pH >= 6.1"])
    limits, cost = outputs.constraints
    assert outputs.names == ("gain", "pH", "cost") and limits.sides == ((1, 8.3), (-1, -6.1)) and str(cost) == "cost <= 2"
    assert str(limits) == "pH >= 6.1, pH <= 8.3" and limits.written == ("pH >= 6.1", "pH <= 8.3")
    np.testing.assert_allclose(limits.violation(np.array([6.0, 6.1, 7.0, 8.3, 9.0, np.nan])), [0.1, 0, 0, 0, 0.7, np.nan], atol=1e-12)
    assert Outputs.read("maximise gain", [text for one in outputs.constraints for text in one.written]) == outputs
    mean, sd = np.array([[0.0], [6.5], [1.0]]), np.array([[1.0], [0.5], [1e-9]])
    draws = mean[1] + sd[1] * np.random.default_rng(0).normal(size=1_000_000)
    assert abs(outputs.probability_of_feasibility(mean, sd)[0] - np.mean((draws >= 6.1) & (draws <= 8.3))) < 0.0025


AXES = ("a", "b", "c", "flow rate", "T (K)", "temperature")
ARITHMETIC = """a + b + c; a+b; 2 * a; 2a; 2 a; a/b; sum(a, b); sum (a, b); f(a); -a; a - b; a-b; a-1; 1-a; |a - b|; a^2; a²; a**2;
max(a, b); (a); a*b; 2*cost; cost + profit; cost^2; log(a); a + cost; 2 flow rate + a; flow rate / T (K); 1/a; 3a-2b; 2a+3cost; a, b; a·b;
cost / yield; lambda * 2; sin(2 * temperature)"""
NAMES = """CO2 (ppm); CO2(ppm); yield-2; yield (%); signal/noise; R&D; x_1; x1; a1; T (°C); cost [EUR/kg]; purity %; R+/t; C++; w/w %;
f1-score; temperature (outlet); temperature-outlet; temperature outlet; max temperature; temperature [C]; Tank 1 - pH; 2-propanol; 1st run;
lambda; f1 score (macro); NOx (mg/m3); time to peak (s); top-5 accuracy; a-team; energy used per day; error: a; temperature 2"""


def test_names_that_are_arithmetic_are_told_from_others() -> None:
    assert [name for name in map(str.strip, ARITHMETIC.split(";")) if not is_arithmetic(name, AXES)] == []
    assert [name for name in map(str.strip, NAMES.split(";")) if is_arithmetic(name, AXES)] == []


def test_a_session_with_two_limits_of_an_output(tmp_path: Path) -> None:
    """It is told once, and everything that shows constraints shows both limits."""
    parts: dict[str, Any] = {"key": 0, "objective": "maximise gain", "constraints": ["pH >= 6", "pH <= 8"], "standardise": False}
    model = Model(prior_mean=[0.0, 7.0], noise_variance=1e-4)
    with Session.create(tmp_path / "s", [Axis.between("dose", 0, 4, 9)], RandomSearch(), model, **parts) as session:
        for _ in range(5):
            ticket = session.ask()
            session.tell(ticket, {"gain": ticket.point["dose"], "pH": 5 + ticket.point["dose"]})
        found = session.recommend()
        assert 1 <= found.point["dose"] <= 3 and found.feasible and list(found.mean) == ["gain", "pH"]
        history = session.history()
        pH = history["pH"].values
        np.testing.assert_allclose(history["violation of pH"], np.cumsum(np.maximum(np.maximum(6 - pH, pH - 8), 0)))
        lines = {line.get_label() for axes in session.plot().axes for line in axes.lines}
        assert "pH >= 6, pH <= 8" in lines
    with Session.open(tmp_path / "s") as again:
        assert again.recommend() == found and next(iter(again.told.values())) == ["gain", "pH"]
    goals, rest = (
        'objective = "maximise gain"\nconstraints = ["pH >= 6", "pH <= 8"]',
        '[axis.dose]\nlow = 0\nhigh = 4\n[algorithm]\ntype = "cei"',
    )
    (tmp_path / "e.toml").write_text(f"{goals}\n{rest}\n")
    assert read_toml(tmp_path / "e.toml").outputs == session.specification.outputs


def test_a_value_that_is_told_twice_is_refused() -> None:
    three = [None, 0.9, None]
    assert told_values(OUTPUTS, {"cost": 2}, 1.0, three, 1e9) == {"cost": 2.0, "loss": 1.0, "purity": 0.9}
    for named, reward, name in (({"loss": 1}, 2.0, "loss"), ({"purity": 0.9}, None, "purity")):
        with pytest.raises(InvalidArgument, match=f"^values: {name} is told twice"):
            told_values(OUTPUTS, named, reward, three, 1e9)


def test_axes_are_scaled() -> None:
    rate, width = Axis.between("rate", 1e-4, 1e-1, 4, "logarithmic"), Axis("width", (4, 8, 20))
    np.testing.assert_allclose(rate.values, [1e-4, 1e-3, 1e-2, 1e-1])
    np.testing.assert_allclose(rate.scaled, [0, 1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(width.scaled, [0, 0.25, 1])
    space = Space.of([rate, width])
    assert space.domain.grid_shape == (4, 3) and space.names == ("rate", "width")
    for index in range(12):
        point = space.point(index)
        assert [*point.values()] == [space.columns["rate"][index], space.columns["width"][index]]
    np.testing.assert_equal(Space.from_table(space.table()).columns, space.columns)


@given(low=st.integers(-50, 50), steps=st.integers(1, 60), decimals=st.integers(0, 6), step=st.integers(1, 9))
def test_evenly_spaced_values_are_the_decimals_that_a_user_writes(low: int, steps: int, decimals: int, step: int) -> None:
    wanted = [(low + step * n) / 10**decimals for n in range(steps + 1)]
    assert [repr(value) for value in Axis.between("x", wanted[0], wanted[-1], steps + 1).values] == list(map(repr, wanted))
    whole = Axis.between("x", low, low + step * steps, steps + 1).values
    assert list(map(repr, whole)) == [str(low + step * n) for n in range(steps + 1)]


def test_points_have_the_numbers_of_their_axes() -> None:
    powers = Axis.between("batch", 1, 1000, 4, "logarithmic")
    assert list(map(repr, powers.values)) == ["1", "10", "100", "1000"]
    assert list(map(repr, Axis.between("rate", 1e-4, 1e-1, 4, "logarithmic").values)) == ["0.0001", "0.001", "0.01", "0.1"]
    assert list(map(repr, Axis("x", np.float32([0.3, 0.7])).values)) == ["0.3", "0.7"]  # type: ignore[arg-type]
    assert repr(Axis.between("x", 0, 1, 3).values) == "(0.0, 0.5, 1.0)" and repr(Axis("x", (1, 2.5)).values) == "(1.0, 2.5)"
    space = Space.of([powers, Axis.between("dose", 0, 1, 11), Axis("width", np.array([4, 8]))])  # type: ignore[arg-type]
    assert repr(space.point(7)) == "{'batch': 1, 'dose': 0.3, 'width': 8}" and space.columns["batch"].dtype.kind == "i"
    assert repr(Space.from_table(json.loads(json.dumps(space.table()))).point(7)) == repr(space.point(7))
    for domain in (domains.grid([0.0], [1.0], 11), domains.points(np.linspace(0, 1, 11, dtype=np.float32)[:, None])):
        assert [Space.of(domain).point(index) for index in range(11)] == [{"x1": index / 10} for index in range(11)]


def test_units_are_said_with_names(tmp_path: Path) -> None:
    heat = Axis.between("heat", 20, 80, 4, unit="°C")
    assert heat.label == "heat (°C)" and repr(heat) == "Axis('heat': 20, 40, 60, 80 °C; linear)"
    assert Axis.read("heat", {"low": 20, "high": 80, "points": 4, "unit": "°C"}, "axis.heat") == heat
    parts = {"objective": "maximise yield", "constraints": ["pH = 7 +- 0.2"], "units": {"yield": "%"}, "key": jax.random.key(0)}
    with Session.create(tmp_path / "s", [heat, Axis("time", (1, 2))], jaxbandit.RandomSearch(), Model(), **parts) as session:
        ticket = session.ask()
        session.tell(ticket, {"yield": 40.0, "pH": 7.0})
        history = session.history()
    assert {name: held.attrs for name, held in history.variables.items() if held.attrs} == {
        "heat": {"units": "°C"},
        "yield": {"units": "%"},
    }
    with Session.open(tmp_path / "s", read_only=True) as again:
        space, outputs = again.specification.space, again.specification.outputs
        assert [*map(space.label, space.names), *map(outputs.label, outputs.names)] == ["heat (°C)", "time", "yield (%)", "pH"]
        assert again.belief()["heat"].attrs == {"units": "°C"} and repr(again.history()["heat"].values[0]) == repr(
            np.int64(ticket.point["heat"])
        )


def test_axes_of_categories_are_told_by_their_labels() -> None:
    axes = [Axis("dose", (1, 2, 4)), Axis.read("metal", {"categories": ["Pd", "Ni"]}, "axis.metal")]
    assert axes[1] == Axis.of_categories("metal", ["Pd", "Ni"])
    space = Space.of(axes)
    assert space.point(3) == {"dose": 2.0, "metal": "Ni"}
    np.testing.assert_allclose(space.domain.points[3], [1 / 3, 1.0])
    assert space.domain.is_categorical(1) and space.domain.label(5) == "dose=1, metal=Ni"
    assert space.columns["metal"][[0, 3]].tolist() == ["Pd", "Ni"] and space.columns["dose"][4] == 4.0
    again = Space.from_table(json.loads(json.dumps(space.table())))
    assert again.axes == space.axes and again.domain.categories == space.domain.categories
    for domain in (
        space.domain,
        jaxbandit.replace(domains.points(space.domain.points[:3]), names=("a", "b"), categories=((), ("Pd", "Ni"))),
    ):
        own = Space.of(domain)
        again = Space.from_table(json.loads(json.dumps(own.table())))
        assert own.point(1)[own.names[1]] == "Ni" and again.point(1) == own.point(1) and again.names == own.names == domain.names


def test_a_session_with_an_axis_of_categories(tmp_path: Path) -> None:
    kernel = {"type": "OnAxes", "axes": [0], "kernel": {"type": "SquaredExponential", "length_scale": 0.5}}
    both = {"type": "Product", "left": kernel, "right": {"type": "OnAxes", "axes": [1], "kernel": {"type": "Categorical"}}}
    axes = [Axis("dose", (1, 2, 4)), Axis.of_categories("metal", ["Pd", "Ni"])]
    session = Session.create(
        tmp_path / "s", axes, jaxbandit.Unconstrained(), Model(kernel=both, noise_variance=0.1), horizon=5, key=jax.random.key(0),
        objective="maximise yield", constraints=[], delay=jaxbandit.delays.NoDelay(),
    )  # fmt: skip
    with session:
        ticket = session.ask()
        assert ticket.point["metal"] in ("Pd", "Ni") and ticket.point["dose"] in (1.0, 2.0, 4.0)
        session.tell(ticket, {"yield": 1.0})
        assert session.history()["metal"].values.tolist() == [ticket.point["metal"]]
        assert session.belief()["metal"].values.tolist() == ["Pd", "Ni"] * 3
        panel = session.plot().axes[0]
        assert [label.get_text() for label in panel.get_yticklabels()] == ["Pd", "Ni"]
        assert f"<td>{ticket.point['metal']}</td>" in session_page(session)
    with Session.open(tmp_path / "s", read_only=True) as again:
        assert again.history()["metal"].values.tolist() == [ticket.point["metal"]]


@pytest.mark.parametrize("domain", [domains.grid([0.0, 1.0], [1.0, 3.0], 3), domains.points([[0.3, 1.0], [0.1, 2.0]]), domains.arms(4)])
def test_domains_are_spaces(domain: Any) -> None:
    space = Space.of(domain)
    again = Space.from_table(space.table())
    assert again.names == space.names == tuple(f"x{n + 1}" for n in range(domain.dimension))
    np.testing.assert_array_equal(again.domain.points, domain.points)
    assert again.domain.grid_shape == domain.grid_shape and [*space.point(1).values()] == np.asarray(domain.points[1], float).tolist()


def test_maps_show_bounds_and_the_probability_of_feasibility() -> None:
    """Beliefs are given by hand."""
    space = Space.of([Axis.between("dose", 1, 5, 9), Axis("rate", (0.001, 0.01, 0.1), "logarithmic")])
    outputs = Outputs.read("maximise yield", ("cost <= 1.2",))
    mean = np.stack([np.sin(space.columns["dose"]), space.columns["dose"] / 3])
    sd = np.full_like(mean, 0.2)
    fields = {"mean": mean, "sd": sd, "lower": mean - sd, "upper": mean + sd}
    belief = xr.Dataset({name: (("output", "point"), table) for name, table in fields.items()})
    belief["probability_of_feasibility"] = "point", outputs.probability_of_feasibility(mean, sd)
    history = xr.Dataset({"yield": ("ticket", [0.3, np.nan]), "cost": ("ticket", [1.0, 2.0]), "index": ("ticket", [3, 8])})
    history["state"] = "ticket", ["complete", "partial"]
    figure = belief_figure(space, outputs, belief, history, 5, feasibility=True)
    maps = {axis.get_title(): axis for axis in figure.axes if axis.get_title()}
    assert set(maps) == {f"{name}: {what}" for name in ("yield", "cost") for what in ("posterior mean", "standard deviation")} | {
        "probability of feasibility"
    }
    assert all((axis.get_xlabel(), axis.get_ylabel(), axis.get_yscale()) == ("dose", "rate", "log") for axis in maps.values())
    assert maps["probability of feasibility"].collections[0].get_clim() == (0.0, 1.0)
    (edge,) = (found for found in maps["cost: posterior mean"].collections if isinstance(found, ContourSet))
    # There dose / 3 = 1.2.
    np.testing.assert_allclose(edge.get_paths()[0].vertices[:, 0], 3.6)
    assert not any(isinstance(found, ContourSet) for found in maps["yield: posterior mean"].collections)
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["measured", "recommended", "mean at the bounds of cost"]


def test_standardised_functions_keep_their_bounds_and_are_turned_back() -> None:
    standard = Standard(location=(50.0, 3.0, 0.8, 6.9), scale=(10.0, 2.0, 0.1, 0.3))
    shift, scale = OUTPUTS.units(standard)
    at_bound = OUTPUTS.inward({"loss": 70.0, **{one.name: one.sides[0][0] * one.sides[0][1] for one in OUTPUTS.constraints}})
    seen = [(value - shift[row]) / scale[row] for row, value in at_bound.items()]
    assert seen[0] == -2.0 and seen[1:4] == [0.0, 0.0, 0.0]
    mean, sd = np.asarray(seen)[:, None], np.ones((len(seen), 1))
    back, deviation = OUTPUTS.outward(mean, sd, standard)
    assert back[0, 0] == 70.0 and back[1, 0] == OUTPUTS.constraints[0].bound and deviation[:, 0].tolist() == list(standard.scale)


def test_a_bend_keeps_the_order_and_is_undone() -> None:
    """Values above the knee stay, and those far below lose four units."""
    bent = Standard(location=(0.0,), scale=(1.0,), bend=(2.0, 0.5))
    rewards = np.concatenate([-np.logspace(6, -2, 40), np.linspace(0.0, 4.0, 41)])
    counted = bent.bent(rewards)
    assert np.all(np.diff(counted) > 0) and np.array_equal(counted[rewards >= 2], rewards[rewards >= 2]) and counted[0] > 2 - 4 * 0.5
    np.testing.assert_allclose(bent.straightened(counted), rewards, rtol=1e-6, atol=1e-9)
    near = rewards[(rewards > -50) & (np.abs(rewards - 2) > 1e-3)]
    slopes = (bent.bent(near + 1e-5) - bent.bent(near - 1e-5)) / 2e-5
    np.testing.assert_allclose(bent.log_slope(near), np.log(slopes), atol=1e-6)
    outputs = Outputs.read("minimise loss", ["cost <= 1"])
    standard = Standard(location=(-1.0, 1.0), scale=(2.0, 3.0), bend=(2.0, 0.5))
    seen = outputs.seen(standard, 0, -7.0), outputs.seen(standard, 1, 2.0)
    assert seen == ((float(bent.bent(np.asarray(-7.0))) - 1.0) / 2.0, 2.0 / 3.0)
    mean, sd = outputs.outward(np.asarray([[seen[0]], [seen[1]]]), np.full((2, 1), 0.1), standard)
    assert mean[:, 0] == pytest.approx([7.0, 3.0]) and sd[1, 0] == pytest.approx(0.3)
    ends = [float(bent.straightened(np.asarray(1.0 + 2.0 * (seen[0] + away)))) for away in (-0.1, 0.1)]
    assert sd[0, 0] == pytest.approx((ends[1] - ends[0]) / 2)
    for wrong in ((1.0,), (0.0, -1.0), (np.nan, 1.0)):
        with pytest.raises(InvalidArgument, match="bend"):
            Standard((0.0,), (1.0,), wrong)  # type: ignore[arg-type]


SCALES = {
    "powers of two": (np.asarray([16.0, 32, 64, 128, 256, 512]), [16, 32, 64, 128, 256, 512]),
    "between 20 and 900": (np.geomspace(20, 900, 30), [20, 50, 100, 200, 500]),
    "less than a decade": (np.linspace(40, 55, 31), [40, 45, 50, 55]),
    "three decades": (np.geomspace(1e-4, 1e-1, 40), [1e-4, 1e-3, 1e-2, 1e-1]),
    "twelve decades": (np.geomspace(1e-6, 1e6, 40), [1e-6, 1e-3, 1, 1e3, 1e6]),
    "two values": (np.asarray([1.0, 10.0]), [1, 10]),
}


@pytest.mark.parametrize("case", SCALES)
def test_ticks_of_logarithmic_axes_can_be_read(case: str) -> None:
    """Labels of the smallest panel neither meet nor stand between ticks."""
    values, ticks = SCALES[case]
    np.testing.assert_allclose(logarithmic_ticks(values), ticks)
    space = Space.of([Axis("rate", tuple(values.tolist()), "logarithmic")])
    figure, [[axis]] = figure_of(1, 1, (3.2, 2.7))
    axis.plot(values, values)
    Ground(space.domain, values[:, None], ("rate",), (0,)).dress(axis, 0)
    figure.draw_without_rendering()
    low, high = axis.get_xlim()
    labels = [label.get_window_extent() for label in axis.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert len(labels) == len(ticks) and all(one.x1 + 2 < other.x0 for one, other in itertools.pairwise(labels))
    assert not any(label.get_text() for label in axis.get_xticklabels(minor=True))


@pytest.mark.full(but=("grid", "box"))
@pytest.mark.parametrize(
    "axes",
    [
        [Axis.between("x", 1e-6, 1, 7, "logarithmic"), Axis("y", (0, 1))],
        [Axis.between("x", 1e-6, 1, scale="logarithmic")],
        {"x": domains.log(1e-6, 1.0)},
        {"y": (0.0, 1.0), "x": domains.log(1e-6, 1.0)},
    ],
    ids=["grid", "continuous", "box", "plane"],
)
def test_logarithmic_axes_are_drawn_so(axes: Any) -> None:
    model = Model(noise_variance=0.1)
    with Session.create(None, axes, jaxbandit.RandomSearch(), model, key=0, delay=delays.NoDelay()) as session:
        session.tell(session.ask(), reward=1.0)
        scales = {(axis.get_xlabel(), axis.get_xscale()) for axis in session.plot().axes if axis.get_xlabel()}
        scales |= {(axis.get_ylabel(), axis.get_yscale()) for axis in session.plot().axes if axis.get_ylabel() in ("x", "y")}
    assert ("x", "log") in scales and scales <= {("x", "log"), ("y", "linear")}


def test_slices_show_what_was_measured_near_them(tmp_path: Path) -> None:
    """Other coordinates differ by at most a fifth of the axes' ranges."""
    axes = [Axis.between("heat", 0, 100, 21, unit="K"), Axis.between("rate", 0.01, 1.0, 21, "logarithmic")]
    axes += [Axis.of_categories("metal", ["Pd", "Ni"])]
    options: Any = {"key": jax.random.key(0), "objective": "maximise yield", "units": {"yield": "%"}}
    numbers = kernels.OnAxes(kernel=kernels.SquaredExponential(), axes=(0, 1))
    model = Model(kernel=numbers * kernels.OnAxes(kernel=kernels.Categorical(), axes=(2,)))
    options["initial"] = jaxbandit.InitialDesign(random=20)
    with Session.create(tmp_path, axes, jaxbandit.RandomSearch(), model, **options) as session:
        points = np.stack([session.specification.space.domain.points[session.ask().index] for _ in range(20)])
        for number in range(20):
            session.tell(number + 1, {"yield": float(number)})
        space, figure = session.specification.space, session.plot()
        best = space.domain.points[session.recommend().index]
    near = np.abs(points - best) < [NEAR + 1e-9, NEAR + 1e-9, 0.5]
    assert figure.get_suptitle().startswith("Slices through heat (K) = ")
    assert [axis.get_xlabel() for axis in figure.axes] == ["heat (K)", "rate", "metal"] and figure.axes[0].get_ylabel() == "yield (%)"
    for number, axis in enumerate(figure.axes):
        [dots] = [line for line in axis.lines if line.get_label() == nearness(space)]
        wanted = np.flatnonzero(np.delete(near, number, axis=1).all(axis=1))
        assert sorted(np.asarray(dots.get_ydata()).tolist()) == wanted.tolist()
    assert 0 < max(len(np.asarray(axis.lines[1].get_xdata())) for axis in figure.axes) < 10
