"""``optimise``: a search in one call, its failures, and what it says of itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import pytest

from jaxbandit import InvalidArgument, RandomSearch, domains, optimise
from jaxbandit.session import Model, SessionError
from jaxbandit.session.axes import Space

DOMAIN = domains.mixed({"x": [0.0, 0.5, 1.0, 1.5], "kind": [0.0, 1.0]})
OPTIONS: dict[str, Any] = {"objective": "minimise loss", "constraints": ["cost <= 1"], "model": Model(), "algorithm": RandomSearch()}
CALLS: list[dict[str, Any]] = []


def outcome(x: float, kind: float) -> dict[str, float] | None:
    CALLS.append({"x": x, "kind": kind})
    return None if (x, kind) == (0.0, 0.0) else {"loss": (x - 1.0) ** 2 + kind, "cost": x}


def test_a_search_is_one_call() -> None:
    CALLS.clear()
    found = optimise(outcome, DOMAIN, 8, **OPTIONS, key=3)  # random search chooses a point that is under way, or failed, as others
    assert found.points == CALLS and len(CALLS) == 8
    measured = [(at["x"], at["kind"]) for at in CALLS if (at["x"], at["kind"]) != (0.0, 0.0)]
    best = min((p for p in measured if p[0] <= 1), key=lambda p: (p[0] - 1) ** 2 + p[1])
    assert (found.best["x"], found.best["kind"]) == best and found.feasible
    assert found.values == {"loss": (best[0] - 1) ** 2 + best[1], "cost": best[0]}
    table = found.table
    assert list(table) == ["x", "kind", "loss", "cost", "best_so_far"] and table["best_so_far"].iloc[-1] == found.values["loss"]
    failed = 8 - len(measured)
    assert int(table["loss"].isna().sum()) == failed == len([state for state in found.session.columns()["state"] if state == "dropped"]) > 0
    assert f"evaluations: 8, {failed} failed; best: x=" in repr(found) and "<th" in found._repr_html_()
    again = optimise(outcome, DOMAIN, 8, **OPTIONS, key=jax.random.key(3))  # a seed is its key
    assert again.points == found.points


def test_what_is_wrong_with_a_function_is_said() -> None:
    for value, words in (("high", "must return a number"), ({"loss": 1.0}, "must return a value of cost, too")):
        with pytest.raises(InvalidArgument, match=f"^function: {words}"):
            optimise(lambda x, kind, value=value: value, DOMAIN, 1, **OPTIONS)
    found = optimise(lambda x, kind: float("nan"), DOMAIN, 2, **OPTIONS)
    assert repr(found) == "Optimised(evaluations: 2, 2 failed)"
    with pytest.raises(SessionError, match=r"^best: every evaluation failed"):
        _ = found.best
    least = optimise(lambda x, kind: {"loss": 0.0, "cost": 3.0 + x}, DOMAIN, 2, **OPTIONS)
    assert not least.feasible and least.best == min(least.points, key=lambda at: at["x"]) and "least violating" in repr(least)


def test_points_of_a_box_are_in_its_units() -> None:
    """Whole numbers are integers, and six digits have no rounding behind them."""
    space = Space.of({"layers": domains.integers(1, 8), "rate": domains.log(1e-6, 1e-1), "dose": (-1.0, 3.0), "kind": ["a", "b"]})
    own = [space.readable([0.1, share, share, 0.6]) for share in (0.123456789, 0.5432198765, 1.0)]
    for index in range(space.size, space.size + len(own)):
        point: Any = dataclasses.replace(space, own=tuple(own)).point(index)
        assert type(point["layers"]) is int and point["kind"] == "b"
        assert all(point[name] == float(f"{point[name]:.6g}") for name in ("rate", "dose"))
