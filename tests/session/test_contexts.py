"""Sessions with contexts, beside simulations that meet the same contexts."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Pdcbo, delays, domains, kernels, problems
from jaxbandit.cli import main
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.session import Axis, Session, SessionError
from jaxbandit.study import Model

# The context is not the first axis that a user names.
AXES = [Axis.between("heating", 0.0, 1.0, 6), Axis.between("outdoors", -10.0, 20.0, 4, context=True)]
SEEN = [20.0, -10.0, 0.0, 10.0, -10.0, 20.0, 0.0, 10.0]
KERNEL = kernels.Matern52(length_scale=0.4)


def problem() -> problems.Problem:
    place = domains.with_contexts(
        domains.grid([0.0], [1.0], 6), domains.grid([0.0], [1.0], 4), sequence=[[-10.0, 0.0, 10.0, 20.0].index(seen) for seen in SEEN]
    )
    z, x = np.asarray(place.points).T
    return problems.from_tables(place, np.sin(5 * x) - z * x, 0.4 - x - 0.3 * z, noise_variance=0.01)


def begin(directory: Path | None = None, **options: Any) -> Session:
    algorithm = options.pop("algorithm", Pdcbo())
    given = {"model": Model(kernel=KERNEL, noise_variance=0.01), "standardise": False, "delay": delays.NoDelay()} | options
    return Session.create(directory, AXES, algorithm, key=3, constraints=["cost <= 0"], **given)


def test_the_choices_are_those_of_a_simulation_that_meets_the_same_contexts(tmp_path: Path) -> None:
    given = problem()
    with jax.enable_x64(True):
        run = jaxbandit.simulate(given, Pdcbo(dual="estimate"), given.model(KERNEL), horizon=8, key=3)
        expected, values = np.asarray(run.indices[0]), np.asarray(run.values[0], np.float64)
    session = begin(tmp_path / "s", algorithm=Pdcbo(dual="estimate"))
    for number, seen in enumerate(SEEN):
        ticket = session.ask(context={"outdoors": seen})
        assert ticket.index == expected[number] and ticket.point["outdoors"] == seen
        session.tell(ticket, {"reward": values[number, 0], "cost": values[number, 1]})
        if number == 4:
            session.close()
            session = Session.open(tmp_path / "s")
    assert session.specification.space.names == ("outdoors", "heating")


def test_the_initial_design_goes_to_the_context_and_the_nearest_value_counts() -> None:
    session = Session.create(None, AXES, key=0)
    tickets = [session.ask(context={"outdoors": -9.0 if number % 2 else 19.0}) for number in range(8)]
    assert [ticket.point["outdoors"] for ticket in tickets] == [20.0, -10.0] * 4
    for ticket in tickets:
        session.tell(ticket, reward=float(ticket.point["heating"]) * (1 if ticket.point["outdoors"] < 0 else -1))
    after = session.ask(context={"outdoors": 0.0})
    assert after.round > 0 and after.point["outdoors"] == 0.0
    best = {seen: session.recommend(context={"outdoors": seen}).point for seen in (-10.0, 20.0)}
    measured = {seen: [t.point["heating"] for t in tickets if t.point["outdoors"] == seen] for seen in best}
    assert best[-10.0] == {"outdoors": -10.0, "heating": max(measured[-10.0])}
    assert best[20.0] == {"outdoors": 20.0, "heating": min(measured[20.0])}
    with pytest.raises(SessionError, match="no point has been measured yet in this context"):
        session.recommend(context={"outdoors": 10.0})
    assert session.recommend(context={"outdoors": 10.0}, anywhere=True).point["outdoors"] == 10.0


def test_failed_runs_are_replaced_in_their_context() -> None:
    session = Session.create(None, AXES, key=0)
    first = session.ask(context={"outdoors": 0.0})
    session.tell(first, failed="retry")
    other = session.ask(context={"outdoors": 10.0})
    assert other.point["outdoors"] == 10.0
    session.drop(other)
    assert {session.ask(context={"outdoors": 10.0}).point["outdoors"] for _ in range(6)} == {10.0}


REFUSED = {
    "missing": (None, r"^context: must be a mapping from outdoors to the values seen now, got None"),
    "unknown": ({"indoors": 1.0}, r"^context: must be a mapping from outdoors .*indoors"),
    "more": ({"outdoors": 1.0, "heating": 0.2}, r"^context: must be a mapping from outdoors"),
    "beyond": ({"outdoors": 90.0}, r"^outdoors: must lie on its axis, -10 to 20"),
    "no-number": ({"outdoors": "warm"}, r"^outdoors: expected numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_contexts_are_refused_by_name(name: str) -> None:
    given, words = REFUSED[name]
    session = begin()
    with pytest.raises(InvalidArgument, match=words):
        session.ask(context=given)
    assert session.events[1:] == ()


def test_what_needs_no_contexts_is_refused() -> None:
    plain = Session.create(None, AXES[:1], key=0)
    with pytest.raises(InvalidArgument, match=r"^context: must be None, because no axis is a context"):
        plain.ask(context={"outdoors": 1.0})
    with pytest.raises(InvalidArgument, match=r"^domain: the contexts outdoors leave no axis to choose"):
        Session.create(None, AXES[1:], key=0)
    with pytest.raises(InvalidArgument, match=r"^Axis\.context: needs values"):
        Axis.between("outdoors", -10.0, 20.0, context=True)
    with pytest.raises(InvalidArgument, match=r"^algorithm: SafeOpt cannot choose among the actions of a context"):
        Session.create(None, AXES, jaxbandit.SafeOpt(seeds=[0]), key=0, constraints=["cost <= 0"])
    session = Session.create(None, AXES, key=0)
    session.tell(session.ask(context={"outdoors": 0.0}), reward=1.0)
    with pytest.raises(InvalidArgument, match=r"^settled: needs a session without contexts"):
        session.settled(0.1)
    with pytest.raises(InvalidArgument, match=r"^forecast: needs a session without contexts"):
        jaxbandit.forecast(session, 3)


FILE = """
objective = "maximise comfort"
[axis.heating]
low = 0.0
high = 1.0
points = 6
[axis.weather]
categories = ["sun", "rain"]
context = true
"""


def test_the_command_line_asks_for_a_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plant.toml").write_text(FILE, encoding="utf-8")
    assert main(["session", "new", str(tmp_path / "plant.toml")]) == 0
    capsys.readouterr()
    plant = str(tmp_path / "plant")
    assert main(["session", "ask", plant, "--context", "weather=rain", "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert asked["point"]["weather"] == "rain"
    assert main(["session", "tell", plant, "1", "--reward", "2.0"]) == 0
    capsys.readouterr()
    assert main(["session", "recommend", plant, "--context", "weather=rain"]) == 0
    assert "rain" in capsys.readouterr().out
    assert main(["session", "ask", plant]) != 0
    assert "--context: give the values seen now, --context weather=VALUE\n" in capsys.readouterr().err
    assert main(["session", "recommend", plant, "--context", "weather=sun"]) != 0
    assert "in this context; tell some values, or take --anywhere\n" in capsys.readouterr().err
    assert main(["session", "ask", plant, "--context", "weather=snow"]) != 0
    assert "weather: there is no category 'snow'" in capsys.readouterr().err
