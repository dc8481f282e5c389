"""Studies whose rounds kernels play where they can."""

from __future__ import annotations

from typing import Any

from jaxbandit.study import Study, from_table

TABLE: dict[str, Any] = {
    "name": "by kernels",
    "trials": 2,
    "horizon": 3,
    "model": {"kernel": {"type": "SquaredExponential", "length_scale": 1.0}, "noise_variance": 0.05},
    "problem": {"sine": {"type": "sine", "points_per_axis": 4}},
    "algorithm": {"rpol": {"type": "Rpol"}, "random": {"type": "RandomSearch"}},
}


def study(**changes: Any) -> Study:
    return from_table(TABLE | changes)


def test_xla_chooses_unless_it_is_asked_not_to() -> None:
    for fused, word in (("auto", "measured to be faster"), (False, "fused=False")):
        by_xla = study(fused=fused)
        assert word in by_xla.describe_choices(by_xla.runs[0])
