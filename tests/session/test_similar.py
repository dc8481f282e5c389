"""Sessions that know the posterior means of similar sessions."""

import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.kernels import Matern52, PosteriorMean, Scale, Sum
from jaxbandit.report.session import write_session_report
from jaxbandit.session import Axis, Model, Session
from jaxbandit.session.similar import LEAST_NOISE
from jaxbandit.surrogates import fit
from jaxbandit.surrogates.boxes.pool import prior_draw

AXES = [Axis.between("heat", 0, 100, 21), Axis.of_categories("metal", ["Pd", "Ni"])]
GOALS: dict[str, Any] = {"objective": "maximise gain", "constraints": ["cost <= 1.6"]}


def value(heat: float, metal: str) -> dict[str, float]:
    """A hill whose top is allowed for one metal only."""
    at = heat / 100
    return {"gain": float(np.exp(-20 * (at - 0.7) ** 2)) + 0.3 * (metal == "Pd"), "cost": at + (metal == "Pd")}


def told(count: int, directory: Path | None = None, scale: float = 1.0, **options: Any) -> Session:
    """A session of ``count`` evaluations whose values are in other units."""
    session = Session.create(directory, AXES, **{"key": 0, **GOALS, **options})
    for _ in range(count):
        ticket = session.ask()
        found = value(**ticket.point)  # type: ignore[arg-type]
        session.tell(ticket, {"gain": scale * found["gain"] + 7 * (scale - 1), "cost": found["cost"]})
    return session


@pytest.fixture(scope="module")
def similar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("similar") / "old"
    told(18, directory).close()
    return directory


def test_a_mean_is_that_of_a_dense_posterior(similar: Path) -> None:
    with Session.create(None, AXES, key=1, similar=similar, **GOALS) as session, Session.open(similar, read_only=True) as old:
        [means] = session.specification.similar
        columns, space = old.columns(), session.specification.space
        at = np.asarray(
            [
                space.modelled[space.nearest({"heat": heat, "metal": metal})]
                for heat, metal in zip(columns["heat"], columns["metal"], strict=True)
            ]
        )
    assert set(means) == {"gain", "cost"}
    for name, mean in means.items():
        predicted = np.asarray(jax.jit(lambda x, mean=mean: mean.mean(x))(at))
        seen = (columns[name] - columns[name].mean()) / columns[name].std()
        # The posterior mean leaves out its constant.
        apart = predicted - seen
        assert np.std(apart) < 0.05, name
        with jax.enable_x64(True):
            matrix = np.asarray(jax.jit(lambda x, mean=mean: mean.kernel(x, x))(mean.points))
        count = np.count_nonzero(mean.weights)
        smooth = np.linalg.solve(
            matrix[:count, :count] + LEAST_NOISE * np.eye(count),
            matrix[:count, :count] @ mean.weights[:count] + LEAST_NOISE * mean.weights[:count],
        )
        np.testing.assert_allclose(smooth, mean.weights[:count], atol=1e-6)


def test_it_is_at_the_top_after_half_of_a_design_and_needs_the_other_session_no_more(similar: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(similar, moved)
    session = told(4, tmp_path / "new", scale=50.0, key=3, similar=[moved])
    alone = told(4, scale=50.0, key=3)
    assert session.specification.design.count == 3 and alone.specification.design.count == 6
    shutil.rmtree(moved)
    first, later = session.pending, [session.ask() for _ in range(2)]
    assert not first and abs(float(later[0].point["heat"]) - 70) <= 10, "the old top"
    session.close()
    with Session.open(tmp_path / "new") as again:
        assert again.pending == tuple(later)
        kernel = again.model.kernel
        assert isinstance(kernel, tuple) and all(isinstance(one, Sum) and isinstance(one.right, PosteriorMean) for one in kernel)
        for ticket in later:
            again.tell(ticket, value(**ticket.point))  # type: ignore[arg-type]
        expected = again.ask().point
    with Session.open(tmp_path / "new") as replayed:
        assert replayed.pending[-1].point == expected


def test_it_has_all_that_a_session_has(similar: Path) -> None:
    session = told(7, similar=similar, key=2)
    ticket = session.ask()
    session.tell(ticket, failed=True)
    assert session.ask().point != ticket.point and session._state.modelled.learns_runs
    kernel = session._state.model.kernel
    assert isinstance(kernel, tuple) and not isinstance(kernel[-1], Sum), "whether runs fail is not in the other session"
    assert 0 <= session.settled(0.1, 64).probability <= 1 and np.isfinite(session.belief()["mean"].values).all()
    assert session.check().inside["gain"][1] > 0.5 and session.why(5).text.startswith("Ticket 5 ")
    described = session.model.of(session.specification.space.domain, 3, 10, "model").describe().splitlines()
    assert [line.endswith("prior mean a multiple of 1 known") for line in described] == [True, True, False, False]
    session.close()


@pytest.mark.full
def test_it_can_be_forecast(similar: Path) -> None:
    with told(7, similar=similar, key=2) as session:
        found = jb.forecast(session, 2, [jb.Cei(), jb.ConstrainedThompson()], trials=8)
    assert np.isfinite(found.dataset["gap"].values).any()


def test_points_are_in_the_coordinates_of_the_new_session(similar: Path) -> None:
    """Other ends, kinds of domains and orders of axes change no mean."""
    with Session.open(similar, read_only=True) as old:
        columns = old.columns()
    wide = [AXES[1], Axis.between("heat", -100, 300)]
    box = Session.create(None, wide, key=0, similar=similar, **GOALS)
    space = box.specification.space
    at = space.coordinates(columns)
    np.testing.assert_allclose(at[:, 1], (columns["heat"] + 100) / 400)
    np.testing.assert_array_equal(
        at, [space.place({"heat": heat, "metal": str(metal)}) for heat, metal in zip(columns["heat"], columns["metal"], strict=True)]
    )
    [means] = box.specification.similar
    seen = (columns["gain"] - columns["gain"].mean()) / columns["gain"].std()
    assert np.std(np.asarray(means["gain"].mean(at)) - seen) < 0.05
    logarithmic = Session.create(None, [Axis("rate", (1.0, 10.0, 100.0), "logarithmic")], key=0)
    np.testing.assert_allclose(logarithmic.specification.space.coordinates({"rate": np.asarray([0.1, 1000.0])}), [[-0.5], [1.5]])
    bare = Session.create(None, jb.domains.mixed({"x": [0.0, 4.0], "k": ["a", "b"]}), key=0).specification.space
    np.testing.assert_array_equal(bare.coordinates({"x": np.asarray([2.0]), "k": np.asarray(["b"])}), [[2.0, 1.0]])


def test_a_search_in_a_directory_goes_on_with_what_it_knew(similar: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {**GOALS, "directory": tmp_path / "search", "similar": similar}
    first = jb.optimise(value, AXES, 4, **options)
    first.session.close()
    on = jb.optimise(value, AXES, 5, **options)
    assert on.points[:4] == first.points and len(on.points) == 5
    on.session.close()
    with pytest.raises(InvalidArgument, match=r"holds a search with another initial, similar"):
        jb.optimise(value, AXES, 5, **(options | {"similar": ()}))


@pytest.mark.full
def test_any_algorithm_of_a_box_goes_to_the_old_top() -> None:
    def hill(a: float, b: float) -> float:
        return float(np.exp(-10 * (a - 0.3) ** 2 - 20 * (b - 0.8) ** 2))

    sides = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
    old = jb.optimise(hill, sides, 15).session
    for algorithm in (None, jb.ConstrainedThompson(), jb.Scbo()):
        found = jb.optimise(lambda a, b: 100 * hill(a, b) - 40, sides, 8, algorithm=algorithm, similar=old)
        assert found.session.specification.design.count == 3
        assert found.values["reward"] > 55, f"{algorithm}: {found}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"domain": [AXES[0]]}, r"^similar: must have the axes of this session, heat, got heat, metal$"),
        ({"objective": "maximise purity", "constraints": []}, "similar: must have one of the outputs of this session, purity, got gain, "),
        ({"domain": [AXES[0], Axis.of_categories("metal", ["Pd", "Cu"])]}, r"^similar: metal: there is no category 'Ni'; known are Pd, Cu"),
        ({"domain": [AXES[0], Axis("metal", (1, 2))]}, r"^similar: metal: must be categories in both sessions, or numbers in both$"),
        ({"domain": [Axis("heat", (1, 10, 100), "logarithmic"), AXES[1]]}, r"^similar: heat: .*positive"),
        ({"model": Model()}, r"^similar: is a part of the default model; leave the model out"),
        ({"algorithm": jb.SafeOpt(seeds=[0])}, r"^similar: must be left out with SafeOpt, which certifies points"),
        ({"algorithm": jb.Refitted(algorithm=jb.Cei())}, r"^similar: must be left out with Refitted, which fits a model of its own"),
        ({"similar": 3}, r"^similar: must be a session or its directory, or a list, each item .*, got 3$"),
        ({"similar": "nowhere"}, r"^similar: directory: nowhere holds no session"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_a_line(options: dict[str, Any], words: str, similar: Path) -> None:
    given: dict[str, Any] = {"domain": AXES, "key": 0, "similar": similar, **GOALS} | options
    with pytest.raises(InvalidArgument, match=words) as refusal:
        Session.create(None, **given)
    assert "\n" not in str(refusal.value)


def test_a_session_without_values_is_not_similar() -> None:
    with pytest.raises(InvalidArgument, match=r"^similar: must be a session that was told some values, got one without any$"):
        Session.create(None, AXES, key=0, similar=Session.create(None, AXES, key=0, **GOALS), **GOALS)


def test_on_the_command_line(similar: Path, tmp_path: Path, capsys: Any) -> None:
    text = 'objective = "maximise gain"\n[axis.heat]\nlow = 0\nhigh = 100\npoints = 11\n'
    (tmp_path / "new.toml").write_text(text + '[axis.metal]\ncategories = ["Pd", "Ni"]\n')
    (tmp_path / "other.toml").write_text(text)
    command = ["session", "new", "--similar", str(similar), "--similar", str(similar)]
    assert main([*command, str(tmp_path / "new.toml")]) == 0
    with Session.open(tmp_path / "new") as session:
        assert len(session.specification.similar) == 2
    page = write_session_report(tmp_path / "new").read_text()
    assert "prior means are multiples of those of 2 similar sessions" in page and "weights" not in page
    assert f"similar to {similar}, {similar}" in " ".join(capsys.readouterr().out.split())
    assert main([*command, str(tmp_path / "other.toml")]) == 2
    assert capsys.readouterr().err == "error: --similar: must have the axes of this session, heat, got heat, metal\n"


def test_fits_keep_a_known_mean() -> None:
    rng = np.random.default_rng(0)
    at = rng.uniform(size=(30, 1))
    mean = PosteriorMean(kernel=Matern52(length_scale=0.2), points=np.asarray([[0.2], [0.6]]), weights=np.asarray([1.0, -2.0]))
    values = 3 * np.asarray(mean.mean(at), np.float64) + 0.01 * rng.standard_normal(30)
    kernel = Sum(left=Scale(kernel=Matern52(length_scale=0.5), variance=1.0), right=mean)
    fitted = fit(kernel, at, values, 1e-3)
    assert float(fitted.kernel.left.variance) != 1.0
    for kept, given in zip(jax.tree.leaves(fitted.kernel.right), jax.tree.leaves(mean), strict=True):
        np.testing.assert_array_equal(kept, given)
    unknown = fit(kernel.left, at, values, 1e-3)
    assert float(fitted.log_evidence) > float(unknown.log_evidence) + 5


def test_draws_of_a_sum_on_a_box_have_its_covariances() -> None:
    mean = PosteriorMean(kernel=Matern52(length_scale=0.2), points=np.asarray([[0.2], [0.6]]), weights=np.asarray([1.0, -2.0]))
    kernel, at = (
        Sum(left=Scale(kernel=Matern52(length_scale=0.5), variance=0.5), right=mean),
        np.asarray([[0.1], [0.25], [0.6]], np.float32),
    )
    drawn = jax.jit(jax.vmap(lambda key: prior_draw(kernel, key, 1, np.dtype(np.float32))(at)))
    draws = np.asarray(drawn(jax.random.split(jax.random.key(0), 5_000)))
    np.testing.assert_allclose(np.cov(draws.T), jax.jit(lambda x: kernel(x, x))(at), atol=0.15)
