"""Studies whose rounds kernels play where they can."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.cell import Cell
from jaxbandit.fused.plan import FusedKernel
from jaxbandit.study import Run, Study, from_table, make_plan, run_study

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


def kernels_of(study: Study) -> list[bool]:
    return [planned.cell.kernel is not None for planned in make_plan(study).cells]


def test_kernels_play_where_they_can() -> None:
    by_kernels = study(fused=True)
    assert kernels_of(by_kernels) == [True, False]
    words = {run.label: by_kernels.describe_choices(run) for run in by_kernels.runs}
    assert words["rpol"].startswith("one kernel plays all rounds")
    assert words["random"] == "by XLA, because RandomSearch declares no score of single points"
    assert by_kernels.table()["fused"] is True and by_kernels.fingerprint() != study().fingerprint()


def test_models_that_differ_in_features_are_cells_of_their_own() -> None:
    """A kernel reads the features of all its trials from one table."""
    problem = jaxbandit.problems.sine(4)
    scales = [jaxbandit.kernels.SquaredExponential(length_scale=scale) for scale in (1.0, 1.0, 1.001)]
    models = [jaxbandit.surrogate(problem.domain, kernel, noise_variance=0.05) for kernel in scales]
    runs = [Run(f"run {number}", problem, jaxbandit.Rpol(), model) for number, model in enumerate(models)]
    plans = [make_plan(Study("features", runs, trials=2, horizon=3, fused=fused)) for fused in (True, False)]
    assert [[tuple(cell.runs) for cell in plan.cells] for plan in plans] == [[(0, 1), (2,)], [(0, 1, 2)]]


def test_xla_plays_unless_it_is_asked_not_to() -> None:
    for fused, word in (("auto", "measured to be faster"), (False, "fused=False")):
        by_xla = study(fused=fused)
        assert not any(kernels_of(by_xla))
        assert word in by_xla.describe_choices(by_xla.runs[0])


def kernel_of(fused: Any, algorithm: Any, rounds: int, device: Any) -> FusedKernel | str:
    """Return the kernel of a cell of one run, or its refusal."""
    run = study().runs[0]
    given: Any = {"horizon": 3, "feedback": None, "informed": None}
    cell = Cell.ready(run.problem, [(algorithm, run.model, run.problem.delay)], InitialDesign(), **given).on(device, fused, rounds)
    return cell.kernel or cell.by_xla


@pytest.mark.parametrize(
    ("kind", "platform", "trial_rounds", "words"),
    [
        ("NVIDIA H100 80GB HBM3", "gpu", 20_000_000, None),
        (
            "NVIDIA H100 80GB HBM3",
            "gpu",
            20_000_000 - 1,
            "from 20,000,000 trial-rounds on, for which compiling it pays; these are 19,999,999",
        ),
        ("NVIDIA A100-SXM4-40GB", "gpu", 20_000_000, "only on devices on which it was measured to be faster: NVIDIA H100"),
        ("TPU v5 lite", "tpu", 20_000_000, "measured to be faster"),
    ],
)
def test_a_kernel_plays_long_runs_by_itself_where_it_is_known_to_be_faster(
    kind: str, platform: str, trial_rounds: int, words: str | None
) -> None:
    run = study().runs[0]
    device: Any = SimpleNamespace(device_kind=kind, platform=platform)
    kernel = kernel_of("auto", run.algorithm, trial_rounds, device)
    if words is None:
        assert isinstance(kernel, FusedKernel) and kernel.platform == "gpu" and not kernel.interpret
    else:
        assert isinstance(kernel, str) and words in kernel
    assert isinstance(kernel_of("auto", jaxbandit.SafeOpt(seeds=[0]), trial_rounds, device), str)


def test_no_kernel_plays_by_itself_what_may_be_differentiated() -> None:
    run, device, found = study().runs[0], SimpleNamespace(device_kind="NVIDIA H100", platform="gpu"), []

    def width(width: jax.Array) -> jax.Array:
        algorithm = jaxbandit.replace(run.algorithm, estimator=jaxbandit.estimators.Bounds(reward_width=width))
        found.extend(kernel_of(fused, algorithm, 20_000_000, device) for fused in ("auto", True))
        return width

    jax.grad(width)(1.0)
    assert found[0] == "for it is traced, perhaps for a derivative, and a kernel has none" and isinstance(found[1], FusedKernel)


def test_a_study_that_no_kernel_can_play_is_refused() -> None:
    with pytest.raises(jaxbandit.InvalidArgument, match="fused: no kernel can play the rounds of any run; 'random': by XLA, because"):
        make_plan(study(fused=True, algorithm={"random": {"type": "RandomSearch"}}))


def test_a_run_is_played_again_as_it_was() -> None:
    by_kernels = study(fused=True)
    assert [by_kernels.describe_choices(run).startswith("by XLA") for run in by_kernels.runs] == [False, True]


@pytest.mark.full
def test_results_by_kernels_are_those_of_xla() -> None:
    by_kernels, by_xla = (run_study(study(fused=fused, trajectories=True, metrics=["regret"])) for fused in (True, False))
    for name in ("index", "regret", "status"):
        np.testing.assert_allclose(by_kernels[name], by_xla[name], rtol=1e-5)
