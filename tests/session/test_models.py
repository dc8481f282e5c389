"""Models of sessions: their kernels, categories and fits."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, domains, feedback, kernels
from jaxbandit.host.figures import shortened
from jaxbandit.session import Axis, Model, Session, SessionError
from jaxbandit.session.axes import Space
from jaxbandit.session.models import default_model, fitted, spread_out, standard_of
from jaxbandit.session.quantities import Outputs, Standard
from jaxbandit.surrogates.evidence.density import LearningRules
from tests.support import plant

AXES = [Axis.between("heat", 20, 80, 7), Axis.between("dose", 1, 6, 6)]
# Its kernel is of the class of the one that is fitted without a model, so that fits of both share programs.
GUESS = Model(kernel=1.0 * kernels.Matern52(length_scale=[0.3, 0.3]), noise_variance=0.01)
NOISY = Model(kernel=kernels.SquaredExponential(length_scale=0.1), noise_variance=4.0)
KEY = jax.random.key(3)


def yielded(point: Any) -> float:
    """A yield in percent, from 40 to 80."""
    return float(80 - 40 * ((point["heat"] - 60) / 60) ** 2 - 20 * ((point["dose"] - 2) / 5) ** 2)


def create(directory: Path, *model: Model, **options: Any) -> Session:
    given: dict[str, Any] = {"key": KEY, "objective": "maximise yield", "constraints": ["cost <= 4"], "horizon": 24} | options
    return Session.create(directory, AXES, given.pop("algorithm", jaxbandit.Rpol()), *model, **given)


def step(session: Session, unit: float = 1.0, offset: float = 0.0) -> int:
    ticket = session.ask()
    session.tell(ticket, {"yield": unit * yielded(ticket.point) + offset, "cost": float(ticket.point["dose"])})
    return ticket.index


def test_without_a_model_one_is_fitted_from_the_initial_design_on(tmp_path: Path) -> None:
    with create(tmp_path / "s") as session:
        chosen = [step(session) for _ in range(13)]
        assert [len(set(chosen[:6])), session.history()["round"].values.tolist()[:7]] == [6, [0] * 6 + [1]]
        fits = [event.body for event in session.events if event.kind == "fitted"]
        assert [body["told"] for body in fits] == [1, 2, 4, 6, 10], "outputs are standardised from the first value on"
        fits = [body for body in fits if "model" in body]
        assert [body["told"] for body in fits] == [6, 10], "when the design is told, and four values later"
        values = session.history()["yield"].values
        told = values[:10]
        assert (fits[1]["location"][0], fits[1]["scale"][0]) == (pytest.approx(np.mean(told)), pytest.approx(np.std(told)))
        belief = session.belief()
        at = belief["mean"].sel(output="yield").values[chosen[:12]]
        np.testing.assert_allclose(at, values[:12], atol=0.1)
        best = session.recommend(0.9)
        assert best.point["dose"] <= 4 and best.mean["yield"] > 75 and session.history()["best_so_far"].values[-1] > 75
    with Session.open(tmp_path / "s") as again:
        assert again.belief().equals(belief) and again.specification.model is None
        assert again.ask().round == 8


@pytest.mark.full(but=("millionths",))
@pytest.mark.parametrize(("unit", "offset"), [(1e-6, 0.0), (-1e6, 1e7)], ids=["millionths", "millions below an offset"])
def test_choices_do_not_depend_on_units(unit: float, offset: float, tmp_path: Path) -> None:
    goal = f"{'maximise' if unit > 0 else 'minimise'} yield"
    with create(tmp_path / "one") as one, create(tmp_path / "other", objective=goal) as other:
        for _ in range(10):
            assert step(one) == step(other, unit, offset)


def test_a_belief_is_where_values_were_measured_in_both_modes(tmp_path: Path) -> None:
    """A wrong model believed 38 where a yield of 54 was measured."""
    for standardise in (True, False):
        with warnings.catch_warnings():
            # The values are far from the prior.
            warnings.simplefilter("ignore")
            with create(tmp_path / str(standardise), GUESS, standardise=standardise) as session:
                indices = [step(session) for _ in range(5)]
                session.fit()
                found = session.belief().sel(output="yield")["mean"].values[indices]
                np.testing.assert_allclose(found, session.history()["yield"].values, atol=2.0)
                assert np.allclose(session._state.standard.location[0], np.mean(session.history()["yield"].values))


def test_a_value_far_from_a_model_in_units_is_said_once(tmp_path: Path) -> None:
    with create(tmp_path / "units", GUESS, standardise=False) as session:
        with pytest.warns(UserWarning, match=r"tell: yield = .* prior deviations .* leave the model out"):
            step(session)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step(session)
    with create(tmp_path / "standardised", GUESS) as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        step(session)
        assert session.events[-1].kind == "fitted" and "model" not in session.events[-1].body, "the hyper-parameters stay as given"
        assert session.model == GUESS


def test_a_number_fitted_to_its_bound_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values without noise leave it at the least that is searched."""
    monkeypatch.setattr("jaxbandit.surrogates.evidence.density.LEARNED", LearningRules(noises=(0.2, 10.0)))
    outputs, domain = Outputs.read("maximise y", ()), domains.grid([0.0, 0.0], [1.0, 1.0], 4)
    told = [(index, {"y": float(np.sin(domain.points[index, 0]) + domain.points[index, 1])}) for index in range(16)]
    with pytest.warns(UserWarning, match="fit: noise_variance of y ended at the end of the range that was searched"):
        model, standard = fitted(outputs, Space.of(domain), default_model(domain, jaxbandit.Rpol()), Standard((0.0,), (1.0,)), told)
    assert model.noise_variance[0] == pytest.approx(0.2) and standard.scale[0] < 1


def test_penalties_are_bent_and_smooth_values_are_not() -> None:
    """One value is -1e6, and the others differ by at most 2."""
    outputs, domain = Outputs.read("maximise y", ()), domains.grid([0.0, 0.0], [1.0, 1.0], 5)
    points = np.asarray(domain.points, np.float64)
    smooth = -np.sum(np.square(points - 0.8), axis=1)
    start = default_model(domain, jaxbandit.Rpol()), Standard((0.0,), (1.0,))
    standards = []
    for values in (smooth, np.where(points.sum(axis=1) > 1.7, -1e6, smooth)):
        told = [(index, {"y": float(values[index])}) for index in range(0, 25, 2)]
        _, standard = fitted(outputs, Space.of(domain), *start, told)
        standards.append(standard)
    assert standards[0].bend is None and standards[1].bend is not None
    knee, unit = standards[1].bend or (0.0, 0.0)
    words = f"values below {knee:.4g} count for less, the worst as {4 * unit:.3g} from there"
    assert standards[1].said_of(1) == words and not standards[0].said_of(1)
    assert standards[1].said_of(-1) == words.replace(f"below {knee:.4g}", f"above {-knee:.4g}"), "of losses, which are minus rewards"
    seen = [outputs.seen(standards[1], 0, value) for value in (smooth.min(), smooth.max(), -1e6)]
    assert seen[1] - seen[0] > 0.3 and seen[0] - seen[2] < 5, "values are told apart, and the penalty is the worst"


def test_a_constraint_that_was_never_violated_is_said_at_the_first_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxbandit.session.session.fitted", lambda *given, **options: (GUESS, Standard((0.0,) * 3, (1.0,) * 3)))
    options = {"objective": "maximise y", "constraints": ["z <= 2", "w = 7 +- 0.5"], "key": KEY}
    with Session.create(tmp_path, domains.grid([0.0, 0.0], [1.0, 1.0], 4), jaxbandit.Rpol(), GUESS, **options) as session:
        session.observe({"x1": 0.0, "x2": 0.0}, {"y": 1.0, "z": 2.0, "w": 6.0})
        with pytest.warns(UserWarning, match="fit: z <= 2 held in all that was told, so where it does not is a guess; tell a run") as said:
            session.fit()
        assert len(said) == 1 and "w =" not in str(said[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.fit()


def test_standards_of_few_values() -> None:
    outputs, before = Outputs.read("maximise y", ["z <= 2", "w <= 1"]), Standard((0.0, 2.0, 1.0), (1.0, 1.0, 1.0))
    found = standard_of(outputs, [(0, {"y": 54.0, "z": 2.5})], before)
    assert found == Standard((54.0, 2.5, 1.0), (54.0, 0.5, 1.0)), "a unit of the size of what is there; w is as before"
    with pytest.raises(InvalidArgument, match="scale: must be"):
        Standard((0.0,), (0.0,))


def test_designs_are_spread_out_and_drawn_by_the_key() -> None:
    domain = domains.grid([0.0, 0.0], [1.0, 50.0], 12)
    one, other = (np.asarray(spread_out(domain, jax.random.key(seed)).indices) for seed in (0, 1))
    assert len(set(one)) == 6 and set(one) != set(other)
    halves = np.asarray(domain.points)[one] / [1.0, 50.0] > 0.5
    assert all(1 <= count <= 5 for count in halves.sum(axis=0))
    assert sorted(spread_out(domains.grid([0.0], [1.0], 3), KEY).indices) == [0, 1, 2], "at most all points"


def test_no_point_under_way_is_asked_for_again(tmp_path: Path) -> None:
    """Noise is large and one point is by far the best."""
    for algorithm, policy in ((jaxbandit.Cei(), None), (jaxbandit.RandomSearch(), feedback.Wait())):
        with create(tmp_path / algorithm.name, NOISY, algorithm=algorithm, standardise=False, feedback=policy) as session:
            for ticket in session.ask(3):
                session.tell(ticket, {"yield": 3.0 - ticket.number, "cost": 3.0})
            tickets = session.ask(20)
            assert len({ticket.index for ticket in tickets}) == len(tickets) == len(session.pending) == 20
            assert [ticket.number for ticket in tickets] == list(range(4, 24))
            state, belief = session._state.course.latest(), session.belief()
        with Session.open(tmp_path / algorithm.name) as again:
            assert again.belief().equals(belief)
            for leaf, other in zip(jax.tree.leaves(again._state.course.latest()), jax.tree.leaves(state), strict=True):
                np.testing.assert_array_equal(leaf, other)


def test_how_many_can_be_asked_for(tmp_path: Path) -> None:
    options: dict[str, Any] = {"algorithm": jaxbandit.RandomSearch(), "feedback": feedback.Wait(), "standardise": False}
    with create(tmp_path / "late", NOISY, **options) as session:
        for count, words in (
            (0, "count: must be"),
            (True, "count: must be"),
            (25, "24 of the 24 rounds of the session's horizon are left"),
        ):
            with pytest.raises(InvalidArgument, match=words):
                session.ask(count)
        assert not session.pending and len(session.ask(24)) == 24
    with create(tmp_path / "at once", delay=delays.NoDelay()) as session:
        with pytest.raises(SessionError, match="ask: values come before the next round here; ask for one point at a time, not 8"):
            session.ask(8)
        assert len(session.ask(6)) == 6
        with pytest.raises(SessionError, match="values come before the next round here; tell or drop tickets 1, 2, 3, 4, 5, 6"):
            session.ask()


def test_what_hallucinates_and_what_cannot(tmp_path: Path) -> None:
    with create(tmp_path / "default") as session:
        assert session.specification.feedback == feedback.Hallucinate()
    ranged = Model(kernel=kernels.SquaredExponential(), length_scale_range=(0.1, 1.0))
    with pytest.raises(InvalidArgument, match=r"feedback: Refitted plays with Wait under delay, got Hallucinate.*feedback=.*Wait\(\)"):
        create(tmp_path / "refitted", ranged, algorithm=jaxbandit.Refitted(algorithm=jaxbandit.Rpol()))
    create(tmp_path / "waits", ranged, algorithm=jaxbandit.Refitted(algorithm=jaxbandit.Rpol()), feedback=feedback.Wait()).close()
    with pytest.raises(InvalidArgument, match="standardise: must be True without a model"):
        create(tmp_path / "none", standardise=False)


@pytest.mark.full
@pytest.mark.parametrize(("algorithm", "seed"), [(jaxbandit.Rpol(), 0), (jaxbandit.Cei(), 3)], ids=["rpol", "cei"])
def test_a_plant_in_percent(algorithm: Any, seed: int, tmp_path: Path) -> None:
    """Thirty runs, four under way, find nearly the best allowed yield.

    ``tests.support.plant`` has the results of 20 keys. A fit of seed 0 asks for float64, and one of seed 3 does not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with plant.played(algorithm, seed, tmp_path / "plant", in_flight=4, runs=30) as session:
            found = plant.best_allowed(session.history()["index"].values)
    assert plant.best_allowed(np.arange(len(plant.everywhere()))) == pytest.approx(92.9, abs=0.01)
    assert found >= 91.5


def test_a_fit_that_a_process_did_not_come_to_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path / "whole", GUESS) as whole, create(tmp_path / "broken", GUESS) as broken:
        step(whole)
        with monkeypatch.context() as patch:
            patch.setattr(Session, "_keep_up", lambda *_, **__: None)
            step(broken)
        assert broken.events[-1].kind == "told"
    with Session.open(tmp_path / "broken") as again:
        assert [event.body for event in again.events[1:]] == [event.body for event in whole.events[1:]]


# One posterior needs programs of half the size.
AT_ONCE: dict[str, Any] = {"key": jax.random.key(4), "delay": delays.NoDelay()}


CHOICES: list[Any] = [(False, True), (True, False), (0, True), np.array([False, True]), [None, 1], [1, 2, 4], [True]]


@pytest.mark.parametrize("given", CHOICES, ids=str)
def test_choices_that_are_no_texts_are_refused_with_advice(given: Any) -> None:
    """They are no continuous axis, and as texts they are categories."""
    texts = list(map(str, given))
    advice = re.escape(f"choices without an order are categories, given as texts, which points hold: {tuple(texts)}")
    makes = [lambda values: domains.box({"flag": values, "x": (0.0, 1.0)}), lambda values: Axis("flag", values, "categorical")]
    makes += [] if texts == ["1", "2", "4"] else [lambda values: Axis("flag", values)]
    if len(given) > 1:
        for make in makes:
            with pytest.raises(InvalidArgument, match=advice):
                make(given)
        assert domains.box({"flag": texts}).categories == Space.of([Axis.of_categories("flag", texts)]).domain.categories == (tuple(texts),)
    with pytest.raises(InvalidArgument, match="flag"):
        jaxbandit.optimise(lambda flag: 0.0, {"flag": given}, 1)


@pytest.mark.full
def test_categories_need_no_kernel(tmp_path: Path) -> None:
    axes = [Axis("dose", (1, 2, 4)), Axis.of_categories("metal", ["Pd", "Ni"])]
    with Session.create(tmp_path / "s", axes, jaxbandit.Unconstrained(), **AT_ONCE) as session:
        for _ in range(7):
            ticket = session.ask()
            session.tell(ticket, reward=float(ticket.point["dose"]) + (ticket.point["metal"] == "Ni"))
        assert session.recommend().point == {"dose": 4, "metal": "Ni"}


@pytest.mark.full
def test_categories_beside_continuous_axes(tmp_path: Path) -> None:
    axes = [Axis.between("dose", 0.1, 2.0, unit="mg"), Axis.of_categories("catalyst", ["none", "nickel", "palladium"])]
    gains = {"none": 0.0, "nickel": 0.5, "palladium": 1.0}
    with Session.create(tmp_path, axes, jaxbandit.Rpol(), objective="maximise yield", **AT_ONCE) as session:
        for _ in range(16):
            ticket = session.ask()
            point: Mapping[str, Any] = ticket.point
            session.tell(ticket, {"yield": gains[point["catalyst"]] - (point["dose"] - 1.0) ** 2})
        asked = session.history()["catalyst"].values
        assert {*asked} == {*gains}
        best = session.recommend()
        assert best.point["catalyst"] == "palladium" and abs(float(best.point["dose"]) - 1.0) < 0.1
        assert session.observe({"dose": 0.5, "catalyst": "nickel"}, {"yield": 0.25}).point["catalyst"] == "nickel"
        with pytest.raises(InvalidArgument, match="catalyst"):
            session.observe({"dose": 0.5, "catalyst": "iron"}, {"yield": 0.25})


def test_thirty_long_labels_fit_beside_an_axis() -> None:
    labels = [f"catalyst {number:02d} of a supplier with a long name" for number in range(30)]
    assert shortened(labels)[7] == "catalyst 07 of …" and shortened(["Pd", "Ni"]) == ["Pd", "Ni"]
    assert shortened(["of the same beginning 1", "of the same beginning 2"]) == ["…ame beginning 1", "…ame beginning 2"]
    axes = [Axis.of_categories("metal", labels), Axis.between("heat", 0, 10, 3)]
    with Session.create(None, axes, key=0) as session:
        session.observe({"metal": labels[0], "heat": 0}, {"reward": 1.0})
        axis = session.plot(feasibility=False).axes[0]
    shown = [text.get_text() for text in axis.get_xticklabels()]
    assert shown == shortened(labels)[::2] and axis.get_xticklabels()[0].get_rotation() == 90
