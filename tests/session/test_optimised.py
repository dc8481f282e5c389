"""``optimise``: a search in one call, its failures, and what it says of itself."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
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
    assert int(table["loss"].isna().sum()) == failed == len([state for state in found.session.columns()["state"] if state == "failed"]) > 0
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


def test_values_that_a_failed_evaluation_has_are_learnt() -> None:
    """The finite ones are told, the run counts as failed, and its point is neither the best nor recommended."""
    lacks: Any = itertools.cycle([float("nan"), None, float("inf")])

    def crashes(x: float, kind: float) -> dict[str, float | None]:
        return {"loss": next(lacks), "cost": 2.0} if x > 0.5 else {"loss": 2.0 - x, "cost": 0.0}

    found = optimise(crashes, DOMAIN, 7, **OPTIONS, key=1)
    columns = found.session.columns()
    failed = columns["x"] > 0.5
    assert np.any(failed) and np.array_equal(columns["state"] == "failed", failed)
    assert np.all(columns["cost"][failed] == 2.0) and np.all(np.isnan(columns["loss"][failed]))
    assert found.best["x"] == np.max(columns["x"][~failed]) and found.feasible and f"{failed.sum()} failed" in repr(found)
    assert found.session.recommend().point["x"] <= 0.5
    belief = found.session.belief().sel(output="cost")["mean"].values[columns["index"][failed]]
    assert np.all(belief > 0.5), "what a failed run has is learnt"
    with pytest.raises(InvalidArgument, match=r"^values: there is no output 'price'"):
        optimise(lambda x, kind: {"loss": float("nan"), "cost": 1.0, "price": 2.0}, DOMAIN, 1, **OPTIONS)


def test_a_search_on_a_disk_goes_on(tmp_path: Path) -> None:
    CALLS.clear()
    in_memory = optimise(outcome, DOMAIN, 8, **OPTIONS, key=3)
    CALLS.clear()
    parts: dict[str, Any] = OPTIONS | {"key": 3, "directory": tmp_path / "search"}
    assert optimise(outcome, DOMAIN, 3, **parts).points == CALLS == in_memory.points[:3]
    found = optimise(outcome, DOMAIN, 8, **parts)
    assert found.points == CALLS == in_memory.points and found.table["loss"].equals(in_memory.table["loss"])
    assert len(optimise(outcome, DOMAIN, 2, **parts).points) == len(CALLS) == 8, "nothing is called where there are enough"
    with pytest.raises(InvalidArgument, match=r"^directory: .* holds a search with another constraints, key; choose another directory"):
        optimise(outcome, DOMAIN, 9, **(parts | {"constraints": ["cost <= 2"], "key": 4}))


def test_what_ends_a_search_loses_no_value(tmp_path: Path) -> None:
    """Ctrl-C returns what there is, and an exception has it; the point that was interrupted is called first in the next search."""

    def ended(error: type[BaseException], after: int) -> Any:
        calls = itertools.count(1)

        def function(x: float, kind: float) -> Any:
            CALLS.append({"x": x, "kind": kind})
            if next(calls) > after:
                raise error("stop")
            return {"loss": x, "cost": 0.0}

        return function

    parts: dict[str, Any] = OPTIONS | {"key": 5, "directory": tmp_path / "search"}
    CALLS.clear()
    found = optimise(ended(KeyboardInterrupt, 2), DOMAIN, 8, **parts)
    assert found.points == CALLS[:2] and repr(found).startswith("Optimised(evaluations: 2; best: x=") and len(found.table) == 2
    assert found.best in CALLS[:2]
    with pytest.raises(RuntimeError, match="stop") as raised:
        optimise(ended(RuntimeError, 2), DOMAIN, 8, **parts)
    assert CALLS[3] == CALLS[2], "the point that was interrupted"
    assert raised.value.optimised.points == [*CALLS[:2], *CALLS[3:5]]  # type: ignore[attr-defined]
    [note] = raised.value.__notes__
    assert "4 evaluations had ended" in note and "goes on with them in directory" in note
    with pytest.raises(KeyboardInterrupt):
        optimise(ended(KeyboardInterrupt, 0), DOMAIN, 8, **OPTIONS)
    with pytest.raises(ZeroDivisionError) as alone:
        optimise(ended(ZeroDivisionError, 0), DOMAIN, 8, **OPTIONS)
    assert not hasattr(alone.value, "optimised")


def test_exceptions_that_mean_a_failed_run() -> None:
    def out_of_memory(x: float, kind: float) -> dict[str, float]:
        if x > 0.5:
            raise MemoryError
        return {"loss": x, "cost": 0.0}

    for catch in (MemoryError, (MemoryError, ZeroDivisionError), [Exception]):
        found = optimise(out_of_memory, DOMAIN, 4, **OPTIONS, key=1, catch=catch)
        failed = [point["x"] > 0.5 for point in found.points]
        assert any(failed) and np.array_equal(np.isnan(found.table["loss"].values), failed)
    with pytest.raises(MemoryError):
        optimise(out_of_memory, DOMAIN, 4, **OPTIONS, key=1, catch=(ValueError,))
    for catch in (KeyboardInterrupt, (BaseException,), "MemoryError", MemoryError()):
        with pytest.raises(InvalidArgument, match=r"^catch"):
            optimise(out_of_memory, DOMAIN, 4, **OPTIONS, catch=catch)  # type: ignore[arg-type]


def test_points_of_a_box_are_in_its_units() -> None:
    """Whole numbers are integers, and six digits have no rounding behind them."""
    space = Space.of({"layers": domains.integers(1, 8), "rate": domains.log(1e-6, 1e-1), "dose": (-1.0, 3.0), "kind": ["a", "b"]})
    own = [space.readable([0.1, share, share, 0.6]) for share in (0.123456789, 0.5432198765, 1.0)]
    for index in range(space.size, space.size + len(own)):
        point: Any = dataclasses.replace(space, own=tuple(own)).point(index)
        assert type(point["layers"]) is int and point["kind"] == "b"
        assert all(point[name] == float(f"{point[name]:.6g}") for name in ("rate", "dose"))
