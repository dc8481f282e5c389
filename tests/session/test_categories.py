"""Sessions with categories and without a model, on a grid and on a box: fits of both share their program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, domains
from jaxbandit.host.figures import shortened
from jaxbandit.session import Axis, Session
from jaxbandit.session.axes import Space

AT_ONCE: dict[str, Any] = {"key": jax.random.key(4), "delay": delays.NoDelay()}  # of one posterior, whose programs are half the size


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
    """The category that serves best is found, and points say their labels; a label that is none is refused."""
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
