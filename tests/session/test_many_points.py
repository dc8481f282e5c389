"""Sessions on many points: models by rows, with room that grows, choose what those by features choose."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import kernels
from jaxbandit.session import Model, Session, specification
from jaxbandit.surrogates.rows import RowCache
from tests.support.sessions import create, measured

ROUGH = Model(kernel=kernels.Matern52(length_scale=0.3), noise_variance=0.05)


def played(session: Session, count: int) -> list[int]:
    """The next points of a session of which the first and every second one is told at once, the others never."""
    tickets = []
    for _ in range(count):
        tickets.append(ticket := session.ask())
        if ticket.number % 2:
            session.tell(ticket, measured(ticket))
    return [ticket.index for ticket in tickets]


def form_of(session: Session) -> Any:
    return session._state.course.setting.arena.surrogate.model.forms[0]


def test_rows_whose_room_grows_choose_what_features_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path / "features", model=dataclasses.replace(ROUGH, form="features")) as session:
        wanted = played(session, 12)
    monkeypatch.setattr(specification, "MANY_POINTS", 0)
    monkeypatch.setattr(specification, "FIRST_ROOM", 4)
    with create(tmp_path / "rows", model=ROUGH) as session:
        assert session._state.room == 4 and isinstance(form_of(session), RowCache)
        assert played(session, 4) == wanted[:4] and session._state.room == 8
        leaves = jax.tree.leaves(session._state.course.latest())
    with Session.open(tmp_path / "rows") as again:  # what is built anew has the same bits
        for one, other in zip(jax.tree.leaves(again._state.course.latest()), leaves, strict=True):
            np.testing.assert_array_equal(one, other)
        assert played(again, 8) == wanted[4:] and again._state.room == 12, "no more than the horizon"


def test_a_model_that_is_drawn_from_keeps_its_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specification, "MANY_POINTS", 0)
    drawing = jaxbandit.Rpol(estimator=jaxbandit.estimators.Thompson())
    with create(tmp_path, drawing, model=ROUGH) as session:
        session.tell(session.ask(), {"loss": 0.1})
        assert session._state.room == 12 and session.ask().number == 2
