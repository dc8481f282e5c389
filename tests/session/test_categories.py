"""Sessions with categories and without a model, on a grid and on a box: fits of both share their program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays
from jaxbandit.session import Axis, Session

AT_ONCE: dict[str, Any] = {"key": jax.random.key(4), "delay": delays.NoDelay()}  # of one posterior, whose programs are half the size


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
