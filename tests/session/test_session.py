"""Sessions as a user drives them."""

import contextlib
import dataclasses
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import jaxbandit
from jaxbandit import InvalidArgument, delays, feedback
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.session import Axis, DeclaredInfeasible, Session, SessionError, read_toml
from jaxbandit.session.journal import JOURNAL, DamagedSession, SessionInUse, open_journal
from jaxbandit.session.quantities import Standard
from jaxbandit.session.specification import WORDS, Specification, fingerprint_of
from tests.oracles import gaussian_process as gp
from tests.support import conformance
from tests.support.sessions import HORIZON, KEY, MODEL, SEED, create, in_units, measured

LATE = delays.Geometric(mean=1.5)


def played(session: Session, due: Any = None) -> list[int]:
    """Return all points of a session told a simulation's values.

    ``due [T, 3]`` are the rounds at whose ends the values arrive.
    """
    tickets, names = [session.ask() for _ in range(session.specification.design.count)], session.specification.outputs.names
    for ticket in reversed(tickets):
        session.tell(ticket, measured(ticket))
    tickets = []
    for t in range(1, HORIZON + 1):
        tickets.append(session.ask())
        for ticket in reversed(tickets):
            at = np.full(3, ticket.round) if due is None else due[ticket.round - 1]
            here = {name: value for name, value in measured(ticket).items() if at[names.index(name)] == t}
            if here:
                session.tell(ticket, here)
    return [ticket.index for ticket in tickets]


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "an initial design": (jaxbandit.Rpol(), LATE, {"initial": jaxbandit.InitialDesign(random=3), "feedback": feedback.Hallucinate()}),
    "what BPE knows of the delays": (jaxbandit.Bpe(width=0.5), LATE, {}),
    "a wrapper, values at once": (jaxbandit.Anytime(algorithm=jaxbandit.Oco()), None, {}),
    "no model, values at once": (jaxbandit.Oco(), None, {}),
}

# OCO's update needs the direction it drew, and the others keep their states.
CHOOSING_MATTERS = {"no model, values at once", "a wrapper, values at once"}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_a_session_chooses_as_a_simulation_with_its_key(case: str, tmp_path: Path) -> None:
    algorithm, delay, options = CASES[case]
    run = conformance.simulate(algorithm, trials=[0], horizon=HORIZON, seed=SEED, record="indices", block=1, delay=delay, **options)
    due = None
    if delay is not None:
        rounds = np.arange(1, HORIZON + 1, dtype=np.int32)
        key = stream_key(trial_key(KEY, 0), Stream.DELAY)
        late = np.asarray(jax.jit(jax.vmap(lambda t: delay.draw(jax.random.fold_in(key, t), 3)))(rounds))
        due = rounds[:, None] + late
        assert len(np.unique(late)) > 2, "values come late"
    with create(tmp_path, algorithm, delay=delay, **options) as session:
        assert played(session, due) == np.asarray(run.indices)[0].tolist()
        course = session._state.course
    assert course.choosing_matters == (case in CHOOSING_MATTERS)
    with Session.open(tmp_path) as again:
        for leaf, other in zip(jax.tree.leaves(again._state.course.latest()), jax.tree.leaves(course.latest()), strict=True):
            np.testing.assert_array_equal(leaf, other)


@pytest.fixture
def session(tmp_path: Path) -> Any:
    """Return a session with tickets complete, partial and without values."""
    with create(tmp_path / "session") as made:
        for ticket in [made.ask() for _ in range(3)]:
            values = measured(ticket)
            if ticket.number == 1:
                made.tell(ticket, values)
            if ticket.number == 2:
                made.tell(ticket, {"cost": values["cost"]})
        made.ask()
        yield made


def reopened(session: Session) -> Session:
    """The same session after its process has ended."""
    session.close()
    return Session.open(session.directory)


def after(session: Session, count: int = 3) -> list[int]:
    """Return the next points once the rest is told."""
    found = []
    for _ in range(count):
        for ticket in session.pending:
            session.tell(ticket, measured(ticket))
        found.append(session.ask().index)
    return found


def test_values_come_in_parts_and_tickets_say_where_they_stand(session: Session) -> None:
    assert session.history()["state"].values.tolist() == ["complete", "partial", "pending", "pending"]
    assert [ticket.number for ticket in session.pending] == [2, 3, 4]
    assert re.fullmatch(
        r"Session\(directory: .*; tickets: \d+, 3 pending; outputs: minimise loss, cost .*, purity .*; points: .*\)", repr(session)
    )
    assert "<script" not in session._repr_html_() and "3 pending" in session._repr_html_()
    belief = session.belief()
    session.tell(2, reward=measured(session.pending[0])["loss"])
    moved = np.abs(session.belief() - belief)["mean"].max("point")
    assert float(moved.sel(output="loss")) > 1e-3 and float(moved.sel(output="purity")) < 1e-6
    session.tell(2, constraints=[None, 0.4])
    assert session.history()["state"].values[1] == "complete"


def test_two_who_have_it_open_at_once_go_on_as_one_would(session: Session, tmp_path: Path) -> None:
    session.close()
    shutil.copytree(session.directory, tmp_path / "copy")
    alone, pair = Session.open(tmp_path / "copy"), [Session.open(session.directory) for _ in range(2)]
    looking = Session.open(session.directory, read_only=True)
    for one, other in ([alone, alone], pair, pair[::-1]):
        ticket = one.ask()
        assert other.pending == one.pending and ticket in other.pending
        other.tell(ticket, measured(ticket))
        one.tell(ticket, {"cost": 0.125 * ticket.number}, correct=True)
        other.drop(one.ask()) if one is alone else one.drop(other.ask())
        assert one.events == other.events and one.told == other.told
        if one is alone:
            continue
        np.testing.assert_array_equal(one.belief()["mean"].values, looking.belief()["mean"].values)
    assert looking.events == pair[0].events

    def without_times(session: Session) -> list[Any]:
        return [(event.kind, dict(event.body)) for event in session.events]

    length = len(alone.events)
    assert without_times(alone) == without_times(pair[0])[:length]
    assert [event.kind for event in pair[0].events[-5:]] == ["asked", "told", "corrected", "asked", "dropped"]
    for each in (alone, looking, *pair):
        each.close()


SECOND = """
import sys, time
from jaxbandit.session import Session
session = Session.open(sys.argv[1])
for line in sys.stdin:
    if line == "hold\\n":
        with session._journal.claim():
            print("held", flush=True)
            time.sleep(60)
    ticket = session.ask()
    session.tell(ticket, {"loss": 0.1 * ticket.number, "cost": 0.1, "purity": 0.6})
    print(ticket.number, ticket.index, flush=True)
"""


@pytest.mark.full
def test_two_processes_take_turns(tmp_path: Path) -> None:
    """One of them is killed while it holds the session."""

    def tell(session: Session, ticket: Any) -> None:
        session.tell(ticket, {"loss": 0.1 * ticket.number, "cost": 0.1, "purity": 0.6})

    with create(tmp_path / "alone") as alone, create(tmp_path / "shared") as shared:
        command = [sys.executable, "-c", SECOND, str(shared.directory)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:

            def answer(line: str) -> list[str]:
                assert second.stdin is not None and second.stdout is not None
                second.stdin.write(line)
                second.stdin.flush()
                return second.stdout.readline().split()

            for number in range(1, HORIZON):
                expected = alone.ask()
                tell(alone, expected)
                if number % 2:
                    ticket = shared.ask()
                    tell(shared, ticket)
                    found = [ticket.number, ticket.index]
                else:
                    found = [int(text) for text in answer("go on\n")]
                assert found == [expected.number, expected.index]
            assert answer("hold\n") == ["held"]
            with Session.open(shared.directory, wait=0.0) as third, pytest.raises(SessionInUse):
                third.ask()
            second.kill()
        tell(shared, shared.ask())
        tell(alone, alone.ask())
        assert [(event.kind, event.body) for event in shared.events] == [(event.kind, event.body) for event in alone.events]


def test_telling_the_same_again_changes_nothing(session: Session) -> None:
    events = len(session.events)
    session.tell(1, in_units(np.zeros(3)) | session.history().isel(ticket=0)[["loss", "cost", "purity"]].to_pandas().to_dict())
    assert len(session.events) == events
    with pytest.raises(SessionError, match=r"ticket 2: was told .*'cost'.*correct=True"):
        session.tell(2, {"cost": 99.0})
    assert len(session.events) == events


def test_a_correction_leads_where_the_right_value_would_have_led(session: Session, tmp_path: Path) -> None:
    right = {ticket.number: measured(ticket) for ticket in session.pending}
    right[1] = next(event.body["values"] for event in session.events if event.kind == "told" and event.body["ticket"] == 1)
    with create(tmp_path / "other") as other:
        for number in range(1, 5):
            ticket = other.ask()
            if number == 3:
                other.tell(1, {**right[1], "loss": right[1]["loss"] - 3.0})
                other.tell(2, {"cost": right[2]["cost"]})
        other.tell(1, {"loss": right[1]["loss"]}, correct=True)
        assert other.events[-1].kind == "corrected" and ticket.number == 4
        np.testing.assert_array_equal(other.belief()["mean"].values, session.belief()["mean"].values)
        np.testing.assert_array_equal(reopened(other).belief()["mean"].values, other.belief()["mean"].values)


WRONG: dict[str, tuple[Any, str]] = {
    "NaN": (lambda s: s.tell(3, reward=float("nan")), "loss: must be a finite number"),
    "infinity": (lambda s: s.tell(3, {"cost": float("inf")}), "cost: must be a finite number"),
    "more than float32 holds": (lambda s: s.tell(3, reward=1e39), "loss: must be a finite number"),
    "text": (lambda s: s.tell(3, reward="0.3"), "loss: expected numbers"),
    "true": (lambda s: s.tell(3, reward=True), "loss: expected numbers"),
    "an array": (lambda s: s.tell(3, reward=np.zeros(2)), "loss: expected one number"),
    "an unknown ticket": (lambda s: s.tell(5, reward=0.0), r"ticket: must be one that was asked for \(1 to 4\), got 5"),
    "a ticket that is true": (lambda s: s.tell(True, reward=0.0), "ticket: must be one"),
    "too few constraints": (lambda s: s.tell(3, constraints=[0.1]), "constraints: must hold 2 values"),
    "one number for two constraints": (lambda s: s.tell(3, constraints=0.1), "constraints: must hold 2 values"),
    "an unknown output": (lambda s: s.tell(3, {"price": 1.0}), "values: there is no output 'price'; known are loss, cost, purity"),
    "no value": (lambda s: s.tell(3), "values: must hold at least one of loss"),
    "no mapping": (lambda s: s.tell(3, [1.0]), "values: must be a mapping"),
    "a complete ticket dropped": (lambda s: s.drop(1), "ticket 1: cannot be dropped"),
    "an unknown ticket dropped": (lambda s: s.drop(9), "ticket: must be one"),
    "a probability of 2": (lambda s: s.recommend(2.0), r"probability: must lie in \[0, 1\]"),
    "a width below 0": (lambda s: s.belief(width=-1.0), "width: must be"),
}


def test_what_cannot_be_told_is_refused_and_leaves_the_journal_as_it_was(session: Session) -> None:
    events, belief = session.events, session.belief()
    for what, (act, words) in WRONG.items():
        with pytest.raises(InvalidArgument, match=words):
            act(session)
            pytest.fail(what)
    assert session.events == events and session.belief().equals(belief)


def test_a_dropped_run_is_one_whose_values_never_come(session: Session) -> None:
    session.drop(3)
    session.drop(3)
    assert session.events[-1].kind == "dropped" and session.events[-2].kind == "asked"
    with pytest.raises(SessionError, match=r"ticket 3: was dropped; .*correct=True"):
        session.tell(3, reward=0.1)
    assert session.history()["state"].values.tolist() == ["complete", "partial", "dropped", "pending"]
    expected = session.ask().index
    session.tell(3, reward=0.1, correct=True)
    assert session.history()["state"].values[2] == "partial" and expected >= 0
    session.drop(3)
    # The same value takes back that the ticket was dropped.
    session.tell(3, reward=0.1, correct=True)
    assert session.history()["state"].values[2] == "partial"


def test_opened_again_it_goes_on_with_the_same_bits(session: Session) -> None:
    # The value arrives at the end of the open round.
    session.tell(3, {"cost": measured(session.pending[1])["cost"]})
    belief, events = session.belief(), session.events
    again = reopened(session)
    assert again.events == events and again.belief().equals(belief)
    later = again.directory.parent / "later"
    with create(later) as unbroken:
        for event in events[1:]:
            if event.kind == "asked":
                unbroken.ask()
            else:
                unbroken.tell(event.body["ticket"], event.body["values"])
        assert after(again) == after(unbroken)
    again.close()


SAME = {"location": [0.0, 0.0, 0.0], "scale": [1.0, 1.0, 1.0], "told": 1}
FALSE: dict[str, tuple[str, dict[str, Any], str]] = {
    "a ticket twice": ("asked", {"ticket": 4, "round": 5, "index": 2, "status": 0}, "ticket: must be 5 after the events before, got 4"),
    "a round twice": ("asked", {"ticket": 5, "round": 4, "index": 2, "status": 0}, "round: must be 5 after the events before, got 4"),
    "a point that there is not": ("asked", {"ticket": 5, "round": 5, "index": 999, "status": 0}, "index: must be a whole number from 0 to"),
    "a status in words": ("asked", {"ticket": 5, "round": 5, "index": 2, "status": "ok"}, "status: must be a whole number from 0 to"),
    "no round": ("asked", {"ticket": 5, "index": 2, "status": 0}, "must hold index, round, status, ticket, got"),
    "infinity": ("told", {"ticket": 3, "values": {"cost": float("inf")}}, "cost: must be a finite number, got inf"),
    "an unknown ticket": ("told", {"ticket": 9, "values": {"cost": 0.1}}, r"ticket: must be one that was asked for \(1 to 4\), got 9"),
    "an unknown output": ("told", {"ticket": 3, "values": {"price": 0.1}}, "values: there is no output 'price'"),
    "a value twice": ("told", {"ticket": 2, "values": {"cost": 0.1}}, "values: cost of ticket 2 was told before"),
    "no values": ("told", {"ticket": 3, "values": {}}, "values: must hold at least one of"),
    "a correction of nothing": ("corrected", {"ticket": 3, "values": {"cost": 0.1}}, "values: cost of ticket 3 had not been told"),
    "a complete ticket dropped": ("dropped", {"ticket": 1}, "ticket: must be one that could be dropped, got 1, which is complete"),
    "a fit of nothing": ("fitted", {**SAME, "model": {}, "told": 3}, "told: must be 1 after the events before, got 3"),
    "a fit of no model": ("fitted", {**SAME, "model": {"colour": 1}}, "model.colour: unknown field"),
    "a fit without units": ("fitted", {"model": {}, "told": 1}, "must hold location, model, scale, told, got"),
    "a scale of 0": ("fitted", {**SAME, "scale": [1.0, 0.0, 1.0]}, "scale: must be > 0"),
    "a location of two outputs": ("fitted", {**SAME, "location": [1.0, 0.0]}, "location"),
    "a fit of a kernel that there is not": ("fitted", {**SAME, "model": {"kernel": {"type": "Blue"}}}, "model.kernel"),
}


def test_events_that_do_not_fit_the_session_are_refused_by_number(session: Session) -> None:
    session.close()
    for number, (what, (kind, body, words)) in enumerate(FALSE.items()):
        other = shutil.copytree(session.directory, session.directory.parent / str(number))
        with contextlib.closing(open_journal(other)) as journal, journal.claim():
            last = journal.append(kind, body).number
        with pytest.raises(DamagedSession, match=rf"event {last} of .*{JOURNAL}, '{kind}', does not fit its session: {words}"):
            Session.open(other)
            pytest.fail(what)


def test_values_before_the_next_round(tmp_path: Path) -> None:
    with create(tmp_path, delay=delays.NoDelay()) as session:
        first = session.ask()
        session.tell(first, reward=0.3)
        with pytest.raises(SessionError, match="tell cost, purity of ticket 1, or drop it"):
            session.ask()
        session.drop(first)
        second = session.ask()
        assert (second.number, second.round) == (2, 1) and second.index != first.index, "a failed point is not asked for again"
        with pytest.raises(SessionError, match="ticket 1: was dropped, and its round repeated"):
            session.tell(first, reward=0.3, correct=True)
        session.tell(second, measured(second))
        again = reopened(session)
        assert again.ask().round == 2
        again.close()


def test_the_initial_design_comes_first_and_is_no_barrier(tmp_path: Path) -> None:
    with create(tmp_path, initial=jaxbandit.InitialDesign(indices=np.asarray([4, 9])), delay=LATE) as session:
        assert [session.ask().index for _ in range(2)] == [4, 9]
        session.tell(2, measured(session.pending[1]))
        third = session.ask()
        assert third.round == 1 and third.index not in (4, 9), "on with what has been told, and not where a run is under way"
        session.drop(1)
        before = session.belief()
        session.tell(1, measured(session._state.records[1].ticket), correct=True)
        belief = session.belief()
        assert not belief.equals(before), "the rest of the design arrives when it is told"
        again = reopened(session)
        assert again.belief().equals(belief) and again.ask().round == 2
        again.close()


def test_the_horizon_ends_a_session(session: Session) -> None:
    with pytest.raises(SessionError, match="all 12 rounds"), contextlib.closing(session):
        for _ in range(HORIZON):
            session.ask()


def test_declared_infeasibility_is_said(tmp_path: Path) -> None:
    with create(tmp_path, jaxbandit.Config(), constraints=["cost <= -9", "purity >= 0.5"]) as session:
        ticket = session.ask()
        assert not ticket.declared_infeasible
        session.tell(ticket, {"loss": 0.0, "cost": 9.0, "purity": 0.6})
        with pytest.warns(DeclaredInfeasible, match="declared the problem infeasible"):
            for _ in range(3):
                ticket = session.ask()
                session.tell(ticket, {"loss": 0.0, "cost": 9.0, "purity": 0.6})
        assert ticket.declared_infeasible


@pytest.mark.parametrize("algorithm", [jaxbandit.Rpol(), jaxbandit.RandomSearch()], ids=["rpol", "random search"])
def test_belief_and_recommendation_are_those_of_a_dense_posterior(algorithm: Any, tmp_path: Path) -> None:
    """The loss is minimised, under an upper and a lower limit."""
    session = create(tmp_path, algorithm)
    for _ in range(4):
        session.ask()
    for ticket in session.pending:
        session.tell(ticket, measured(ticket))
    points, history = np.asarray(conformance.study()[0].domain.points), session.history()
    chosen = points[history["index"].values]
    prior = {"loss": 0.0, "cost": 0.2, "purity": 0.5}
    belief, mean, sd = session.belief(width=3.0), {}, {}
    cross, noisy = gp.squared_exponential(points, chosen, 0.3), gp.squared_exponential(chosen, chosen, 0.3) + 0.05 * np.eye(4)
    for name, centre in prior.items():
        mean[name] = centre + cross @ np.linalg.solve(noisy, history[name].values - centre)
        sd[name] = np.sqrt(1 - np.sum(cross * np.linalg.solve(noisy, cross.T).T, axis=1))
        np.testing.assert_allclose(belief["mean"].sel(output=name), mean[name], atol=1e-4)
        np.testing.assert_allclose(belief["upper"].sel(output=name), mean[name] + 3 * sd[name], atol=1e-3)
        np.testing.assert_allclose(belief["lower"].sel(output=name), mean[name] - 3 * sd[name], atol=1e-3)
    from scipy.stats import norm

    feasible = norm.cdf((0.2 - mean["cost"]) / sd["cost"]) * norm.sf((0.5 - mean["purity"]) / sd["purity"])
    np.testing.assert_allclose(belief["probability_of_feasibility"], feasible, atol=2e-3)
    best = session.recommend(0.2, anywhere=True)
    assert best.feasible and best.index == np.argmin(np.where(feasible >= 0.2, mean["loss"], np.inf))
    assert best.mean["loss"] == pytest.approx(mean["loss"][best.index], abs=1e-4) and best.point == session.specification.space.point(
        best.index
    )
    none = session.recommend(1.0, anywhere=True)
    assert not none.feasible and none.index == np.argmax(feasible)
    assert session.recommend(0.0).index in history["index"].values
    session.close()


def test_history_is_one_table(session: Session) -> None:
    frame = session.history().to_dataframe()
    assert list(frame.index) == [1, 2, 3, 4] and {"x1", "x2", "loss", "cost", "purity", "state"} <= set(frame.columns)
    assert np.isnan(frame.loc[3, "loss"]) and frame.loc[1, "told_at"] >= frame.loc[1, "asked_at"]
    session.tell(3, {"loss": 0.7, "cost": 0.1, "purity": 0.9})
    session.tell(4, {"loss": 0.2, "cost": 0.5, "purity": 0.1})
    history = session.history()
    assert history["best_so_far"].values[2] <= 0.7 and history["best_so_far"].values[3] == history["best_so_far"].values[2]
    assert np.diff(history["violation of cost"].values)[-1] == pytest.approx(0.3)
    assert np.diff(history["violation of purity"].values)[-1] == pytest.approx(0.4)


@jaxbandit.pytree
class Mine(jaxbandit.Algorithm):
    name = "mine"
    index: Any = 3

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        from jaxbandit.algorithms import Decision

        return Decision(index=jnp.asarray(self.index).astype(jnp.int32), widths=jnp.zeros((1 + arena.constraints,), arena.dtype)), state


def test_an_algorithm_of_a_users_own_is_looked_up_in_its_module(tmp_path: Path) -> None:
    with create(tmp_path, Mine()) as session:
        assert session.ask().index == 3
    with pytest.raises(InvalidArgument, match=rf"the session was made with another one, .*{__name__}:Mine.*, got Mine\(index=4\)"):
        Session.open(tmp_path, algorithm=Mine(index=4))
    for algorithm in (None, Mine()):
        with Session.open(tmp_path, algorithm=algorithm) as again:
            assert again.specification.algorithm == Mine() and again.ask().index == 3


def test_an_algorithm_that_nobody_can_import_has_to_be_brought_along(tmp_path: Path) -> None:
    """Earlier versions wrote the fingerprint of every user's algorithm."""

    @jaxbandit.pytree
    class Local(Mine):
        """Defined where it is used."""

    with create(tmp_path, Local()) as session:
        assert session.ask().index == 3
        earlier = {**session.specification.table(), "algorithm": fingerprint_of(Mine())}
    with pytest.raises(InvalidArgument, match=r"algorithm: the session was made with .*Local of your own; pass the same object"):
        Session.open(tmp_path)
    with pytest.raises(InvalidArgument, match=r"made with another one, .*got Local"):
        Session.open(tmp_path, algorithm=Local(index=4))
    with Session.open(tmp_path, algorithm=Local()) as again:
        assert again.ask().number == 2
    # The fingerprint never changes.
    assert earlier["algorithm"]["fingerprint"].startswith("be3f6ef7c33dff92")
    assert Specification.from_table(earlier, Mine()).algorithm == Mine()
    with pytest.raises(InvalidArgument, match="pass the same object"):
        Specification.from_table(earlier)


# ``golden/refusals.json`` has what does not fit these.
FITTING: dict[str, Any] = {"directory": None, "domain": conformance.study()[0].domain, "algorithm": jaxbandit.Rpol()}
FITTING |= {"model": jaxbandit.session.Model(), "key": 0, "constraints": ["cost <= 0.2"]}


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="delay: Oco needs the values of a round before"):
        Session.create(**FITTING | {"directory": tmp_path / "new", "algorithm": jaxbandit.Oco(), "delay": LATE})
    assert not (tmp_path / "new").exists()


SCALED = jaxbandit.kernels.Scale(kernel=jaxbandit.kernels.SquaredExponential(length_scale=0.3), variance=1.0)


@pytest.mark.full
def test_a_fit_is_an_event_and_beliefs_are_made_anew(tmp_path: Path) -> None:
    """A fit follows 4 complete tickets, at the next question."""
    model = jaxbandit.session.Model(kernel=SCALED, noise_variance=0.05, form="features")
    with create(tmp_path / "fitted", model=model, fit_every=4, delay=delays.NoDelay()) as session:
        for _ in range(4):
            ticket = session.ask()
            session.tell(ticket, measured(ticket))
        session = reopened(session)
        session.ask()
        fitted = [event for event in session.events if event.kind == "fitted"]
        assert len(fitted) == 1 and fitted[0].body["told"] == 4
        history, points = session.history().isel(ticket=slice(4)), np.asarray(conformance.study()[0].domain.points)
        chosen, sides = points[history["index"].values], np.ptp(points, axis=0)
        # Algorithms choose by the maximum, over whose neighbourhood beliefs that are shown are averaged.
        predicted, belief = session._state.course.predict(), session.belief()
        learnt, _ = session.specification.outputs.outward(np.asarray(predicted.mean), np.asarray(predicted.sd), session._state.standard)
        for number, name in enumerate(("loss", "cost", "purity")):
            values = history[name].values
            seen = (values - values.mean()) / values.std()
            # About a constant of variance 1; length-scales of median 0.4 diagonals, and noise of which next to nothing is known.
            medians = [0.4 * np.exp(np.mean(np.log(sides))) * np.sqrt(len(sides)), 1.0, 1e-4]

            def loss(logs: np.ndarray, seen: np.ndarray = seen, medians: list[float] = medians) -> float:
                length, variance, noise = np.exp(logs)
                cov = variance * gp.squared_exponential(chosen, chosen, length) + noise * np.eye(4) + 1
                density = -0.5 * seen @ np.linalg.solve(cov, seen) - 0.5 * np.linalg.slogdet(cov)[1]
                return 0.5 * float(np.sum(np.square((logs - np.log(medians)) / [0.7, 1.5, 4.0]))) - density

            ends = np.log([[3e-4, 300], [1e-3, 1e3], [1e-7, 10]])
            starts = np.random.default_rng(0).uniform(*ends.T, size=(20, 3))
            best = min((minimize(loss, start, bounds=ends) for start in starts), key=lambda one: one.fun)
            own: Any = session.model.kernel[number]  # type: ignore[index]
            noise, length = float(session.model.noise_variance[number]), float(own.kernel.length_scale)  # type: ignore[index]
            assert loss(np.log([length, float(own.variance), noise])) < best.fun + 1e-3
            cross, gram = (float(own.variance) * gp.squared_exponential(x, chosen, length) for x in (points, chosen))
            solved = np.linalg.solve(gram + noise * np.eye(4), np.ones(4))
            own_mean = solved @ seen / (1 + solved.sum())
            mean = own_mean + cross @ np.linalg.solve(gram + noise * np.eye(4), seen - own_mean)
            np.testing.assert_allclose(learnt[number], values.mean() + values.std() * mean, atol=2e-3)
        again = reopened(session)
        assert again.belief().equals(belief)
        again.close()
    with create(tmp_path / "empty") as empty, pytest.raises(SessionError, match="nothing has been told yet"):
        empty.fit()


def test_a_fit_leads_where_its_model_would_have_led(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    louder = dataclasses.replace(MODEL, noise_variance=0.5)
    unknown = Standard(location=(0.0, 0.2, 0.5), scale=(1.0, 1.0, 1.0))
    monkeypatch.setattr("jaxbandit.session.session.fitted", lambda *given, **options: (louder, unknown))
    again = reopened(session)
    again.fit()
    with create(tmp_path / "louder", model=louder) as other:
        for event in session.events[1:]:
            if event.kind == "asked":
                other.ask()
            else:
                other.tell(event.body["ticket"], event.body["values"])
        np.testing.assert_allclose(again.belief()["mean"], other.belief()["mean"], atol=1e-6)
    again.close()


SPACES = {
    "a line": [Axis.between("rate", 1e-3, 1.0, 7, "logarithmic")],
    "a grid of three axes": [Axis("a", (0, 1, 2)), Axis("b", (0, 1)), Axis("c", (1, 10), "logarithmic")],
    "points of the plane": jaxbandit.domains.points([[0.0, 0.1], [0.5, 0.3], [1.0, 0.9]]),
    "points of space": jaxbandit.domains.points([[0.0, 0.1, 0.0], [0.5, 0.3, 1.0], [1.0, 0.9, 0.2]]),
}


@pytest.mark.full
@pytest.mark.parametrize("space", SPACES)
def test_beliefs_are_drawn_on_any_domain(space: str, tmp_path: Path) -> None:
    options: Any = {"key": KEY, "objective": "maximise yield", "constraints": ["pH = 7 +- 0.2"], "delay": delays.NoDelay()}
    with Session.create(tmp_path, SPACES[space], jaxbandit.RandomSearch(), jaxbandit.session.Model(), **options) as session:
        session.observe(session.specification.space.point(0), {"yield": 0.3, "pH": 7.1})
        figure = session.plot(feasibility=True)
        assert all(axis.has_data() for axis in figure.axes if axis.axison)
        labels = {axis.get_ylabel() for axis in figure.axes} | {axis.get_title().partition(":")[0] for axis in figure.axes}
        assert {"yield", "pH", "probability of feasibility"} <= labels
        assert figure._repr_png_().startswith(b"\x89PNG"), "a notebook shows it, with or without pyplot"


@pytest.mark.parametrize("given", [("d", {"x": (0.0, 1.0)}), (), ("d",)])
def test_a_session_is_made_by_create_or_open(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"Session\.create\(directory, domain, key=0\) begins a session, Session\.open\(directory\)"):
        Session(*given)


def test_create_and_files_take_the_words_of_a_specification(tmp_path: Path) -> None:
    others = {"directory", "history", "off_grid", "outside", "ignore", "similar"}
    assert inspect.signature(Session.create).parameters.keys() - others == WORDS
    with pytest.MonkeyPatch.context() as patch:
        handed = dict[str, Any]()
        patch.setattr(Specification, "of", lambda domain, algorithm, **words: handed.update(words, domain=domain, algorithm=algorithm))
        with pytest.raises(InvalidArgument, match="specification: must be"):
            Session.create(None, {"x": (0.0, 1.0)}, key=0)
    assert handed.keys() == WORDS
    (file := tmp_path / "experiment.toml").write_text("colour = 1\n")
    with pytest.raises(InvalidArgument, match="colour: unknown field") as refusal:
        read_toml(file)
    assert {*str(refusal.value).partition("has ")[2].split(", ")} == WORDS - {"domain", "key"} | {"axis", "seed"}
