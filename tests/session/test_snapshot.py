"""Steps of a session that keep what they make, each as a process of its own, choose what an unbroken session chooses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

import jaxbandit
from jaxbandit.session import Session, course, snapshot, specification
from tests.support.sessions import HORIZON, KEY, create, measured

HARM: dict[str, Callable[[Path], object]] = {
    "a byte is another": lambda file: file.write_bytes(file.read_bytes()[:-9] + b"\0" + file.read_bytes()[-8:]),
    "it is gone": Path.unlink,
    "it is cut off": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "it is empty": lambda file: file.write_bytes(b""),
}


def values(session: Session, ticket: Any) -> dict[str, float]:
    """What is measured at a ticket, of what the session has outputs for."""
    return {name: value for name, value in measured(ticket).items() if name in session.specification.outputs.names}


def told(session: Session, number: int) -> None:
    """Tell what is due after a ticket: of the one before it all values, and of the third others than before."""
    record = session._state.records
    if number > 1:
        session.tell(number - 1, values(session, record[number - 1].ticket))
    if number == 5:
        session.tell(3, {"loss": 0.4}, correct=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def step(directory: Path, store: Path) -> Any:
    with Session.open(directory) as session, snapshot.remembered(session, store):
        ticket = session.ask()
    with Session.open(directory) as session:
        told(session, ticket.number)
    return ticket


CASES: dict[str, dict[str, Any]] = {
    "late values": {},
    "a choice that the update needs, values at once": {"algorithm": jaxbandit.Oco()},
    "no model, refitted and given more room": {"model": None, "standardise": True, "constraints": ()},
}


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("case", [case if case == "late values" else pytest.param(case, marks=pytest.mark.full) for case in CASES])
def test_what_is_kept_changes_no_choice_and_is_made_once(case: str, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specification, "FIRST_ROOM", 8)
    wanted = []
    with create(tmp_path / "unbroken", **CASES[case]) as session:
        at_once = session.specification.at_once
        for _ in range(HORIZON - 1):
            wanted.append(ticket := session.ask())
            session.tell(ticket, values(session, ticket)) if at_once else told(session, ticket.number)
        recommended, belief = session.recommend(), session.belief()
    create(tmp_path / "steps", **CASES[case]).close()
    for number, ticket in enumerate(wanted):
        if number == 6 and not case.startswith("no model"):  # nothing is made any more: neither a model nor a program
            monkeypatch.setattr(specification.Specification, "setting_with", None)
            for name in ("_start", "_choose", "_end"):
                monkeypatch.setattr(course, name, SimpleNamespace(__name__=name))
        with Session.open(tmp_path / "steps") as session, snapshot.remembered(session, store):
            assert session.ask() == ticket, number
        with Session.open(tmp_path / "steps") as session:
            session.tell(ticket, values(session, ticket)) if at_once else told(session, ticket.number)
    with Session.open(tmp_path / "steps") as session, snapshot.remembered(session, store):
        assert session.recommend() == recommended and session.belief().equals(belief)


@pytest.mark.usefixtures("on_cpu")
def test_what_is_harmed_is_made_anew(tmp_path: Path, store: Path) -> None:
    with create(tmp_path / "unbroken") as session:
        wanted = [(ticket := session.ask(), told(session, ticket.number))[0] for _ in range(2 + len(HARM))]
    create(tmp_path / "steps").close()
    for ticket in wanted[:2]:
        assert step(tmp_path / "steps", store) == ticket
    for number, harm in enumerate(HARM.values()):
        files = [file for file in store.iterdir() if number == 0 or "program" not in file.name]
        assert len(files) == 5 - 3 * (number > 0), "the setting, the state and, harmed once, three programs"
        for file in files:
            harm(file)
        harmed = {file: file.read_bytes() for file in files if file.exists()}
        assert step(tmp_path / "steps", store) == wanted[2 + number]
        assert all(file.read_bytes() != harmed.get(file) for file in files)


def test_nothing_kept_by_other_code_settings_or_flags_is_used(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Any:
        return snapshot._Store(store).read("it")

    package = tmp_path / "package"
    package.mkdir()
    (package / "code.py").write_text("one = 1\n")
    monkeypatch.setattr(snapshot, "PACKAGE", package)
    snapshot._Store(store).write("it", {"key": KEY, "number": 3})
    assert read()["number"] == 3 and read()["key"] == KEY
    for attribute, value in (("__version__", "0.0"), ("devices", list)):
        with monkeypatch.context() as patch:
            patch.setattr(jax, attribute, value)
            assert read() is None
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--other")
        assert read() is None
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    try:
        assert read() is None
    finally:
        jax.config.update("jax_numpy_dtype_promotion", "strict")
    assert read() is not None
    (package / "code.py").write_text("one = 2\n")
    assert read() is None


class Mine(jaxbandit.Rpol):
    """An algorithm of the user's own, whose code may change."""

    in_files = True


def test_nothing_is_kept_of_users_own_classes(tmp_path: Path, store: Path) -> None:
    create(tmp_path / "mine", jaxbandit.pytree(Mine)(penalty_growth=0.5)).close()
    for _ in range(2):
        step(tmp_path / "mine", store)
    assert not list(store.iterdir())
    with Session.open(tmp_path / "mine") as session, snapshot.remembered(session, None):
        assert session.ask().number == 3, "nor without a directory"
