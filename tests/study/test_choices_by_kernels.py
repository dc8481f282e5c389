"""Studies whose choices kernels make where they can; what a kernel computes is tested in ``tests/conformance/test_fused.py``."""

from __future__ import annotations

from typing import Any

import pytest

import jaxbandit
from jaxbandit.study import Study, from_table, make_plan

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


def test_kernels_choose_where_they_can() -> None:
    by_kernels = study(fused=True)
    assert [cell.fused for cell in make_plan(by_kernels).cells] == [True, False]
    words = {run.label: by_kernels.describe_choices(run) for run in by_kernels.runs}
    assert words["rpol"].startswith("one kernel a round (interpreted on a CPU")
    assert words["random"] == "by XLA, because its choice does not depend on what is believed of the functions"
    assert by_kernels.table()["fused"] is True and by_kernels.fingerprint() != study().fingerprint()


def test_xla_chooses_unless_it_is_asked_not_to() -> None:
    for fused, word in (("auto", "measured to be faster"), (False, "fused=False")):
        by_xla = study(fused=fused)
        assert not any(cell.fused for cell in make_plan(by_xla).cells)
        assert word in by_xla.describe_choices(by_xla.runs[0])


def test_late_feedback_is_described() -> None:
    late = study(fused=True, delay={"late": {"type": "Poisson", "mean": 2.0}})
    assert "points, 4 functions read, 0 written" in late.describe_choices(late.runs[0])


def test_a_study_that_no_kernel_can_play_is_refused() -> None:
    with pytest.raises(jaxbandit.InvalidArgument, match="fused: no kernel can make the choices of any run; 'random': by XLA, because"):
        make_plan(study(fused=True, algorithm={"random": {"type": "RandomSearch"}}))


def test_a_run_is_played_again_as_it_was() -> None:
    by_kernels = study(fused=True)
    assert [by_kernels.chooses_by_kernel(run) for run in by_kernels.runs] == [True, False]
