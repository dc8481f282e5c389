"""Problems whose runs fail in a region: nothing but the failure is learnt of a failed run, on grids and on boxes."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import delays, domains, kernels, problems
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.results import metrics

HORIZON = 14
KERNEL = kernels.SquaredExponential(length_scale=0.3)
GRID = domains.grid([0.0, 0.0], [1.0, 1.0], 7)
BOX = domains.box({"x": (0.0, 1.0), "y": (0.0, 1.0)})
NOISE: dict[str, Any] = {"noise_variance": 0.01}


def crashes(x: Any) -> Any:
    return x[0] > 0.55


def on_grid(there: float) -> problems.Problem:
    """A problem whose functions have another value in the region."""
    means = np.stack([np.sin(5 * GRID.points[:, 0]), 0.3 - GRID.points[:, 1]])
    means[:, np.asarray(GRID.points)[:, 0] > 0.55] += there
    return problems.from_tables(GRID, means[0], means[1:], **NOISE)


def on_box(there: float) -> problems.BoxProblem:
    """The same on a box."""
    functions = [lambda x: jnp.sin(5 * x[0]), lambda x: 0.3 - x[1]]
    moved = [lambda x, own=own: own(x) + jnp.where(crashes(x), there, 0.0) for own in functions]
    return problems.on_box(BOX, moved[0], moved[1:], best=(1.0, (np.pi / 10, 0.5)), **NOISE)


def run(problem: Any, **options: Any) -> jb.Trajectory:
    model = problem.model(KERNEL, prior_mean=[0.0, 0.0, -1.0], noise_variance=[0.01, 0.01, 0.01])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jb.simulate(problem, options.pop("algorithm", jb.Cei()), model, horizon=HORIZON, trials=3, key=2, **options)


@pytest.mark.parametrize("make", [on_grid, on_box], ids=["grid", "box"])
@pytest.mark.parametrize("initial", [jb.InitialDesign(), jb.InitialDesign(random=5)], ids=["no design", "design"])
def test_values_of_failed_runs_have_no_consequence(make: Any, initial: jb.InitialDesign) -> None:
    """With other values in the region the same points are chosen, of which some fail; each failure is counted."""
    first, other = (run(problems.with_failures(make(there), crashes), initial=initial) for there in (0.0, -0.7))
    chosen = first.indices if make is on_grid else first.points
    assert np.array_equal(chosen, other.indices if make is on_grid else other.points)
    points = np.asarray(GRID.points)[np.asarray(chosen)] if make is on_grid else np.asarray(chosen)
    failed = points[..., 0] > 0.55
    assert failed.any() and not failed.all()
    assert np.array_equal(np.asarray(first.arrivals)[..., 0] >= delays.NEVER, failed)
    assert np.array_equal(np.asarray(first.arrivals)[..., 2] < delays.NEVER, np.ones_like(failed))
    problem = problems.with_failures(make(0.0), crashes)
    assert np.array_equal(metrics.failures(problem, chosen), np.cumsum(failed, axis=-1))
    unlike = run(make_plain(make), initial=initial)
    assert not np.array_equal(chosen, unlike.indices if make is on_grid else unlike.points)


def make_plain(make: Any) -> Any:
    """The problem with failures whose values arrive all the same."""
    return jb.replace(problems.with_failures(make(-0.7), crashes), delay=delays.NoDelay())


def test_failures_are_rarer_where_they_are_learnt() -> None:
    problem = problems.with_failures(on_grid(0.0), np.asarray(GRID.points)[:, 0] > 0.55)
    assert np.array_equal(problem.means, problems.with_failures(on_grid(0.0), crashes).means)
    assert float(problem.optimum().value) == pytest.approx(np.max(np.sin(5 * GRID.points[GRID.points[:, 0] <= 0.55, 0])))
    learnt = metrics.failures(problem, run(problem).indices)[:, -1]
    luck = metrics.failures(problem, run(problem, algorithm=jb.RandomSearch()).indices)[:, -1]
    assert np.mean(learnt) < np.mean(luck)


def test_failures_come_with_delays() -> None:
    late = problems.with_failures(jb.replace(on_grid(0.0), delay=delays.Constant(rounds=2)), crashes)
    arrivals, failed = np.asarray(run(late).arrivals), None
    failed = arrivals[..., 0] >= delays.NEVER
    assert failed.any() and np.array_equal(arrivals[..., 2], np.broadcast_to(np.arange(1, HORIZON + 1) + 2, failed.shape))
    problem = problems.with_failures(on_grid(0.0), crashes)
    assert np.asarray(run(problem, delay=delays.Failing(delay=delays.Constant(rounds=1))).arrivals)[0, 0, 2] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((on_grid, True), "region: must be a function of"),
        ((on_grid, [True, False]), "region"),
        ((on_grid, np.ones(GRID.size, bool)), "region: must leave points where runs do not fail, got all"),
        ((on_grid, lambda x: x[9]), "region"),
        ((on_box, np.ones(3, bool)), "region: must be a function of a point on a box"),
        ((on_box, lambda x: float(x[0]) > 0.5), "region: must be a function of one point"),
    ],
)
def test_what_is_no_region_is_refused(arguments: Any, words: str) -> None:
    make, region = arguments
    with pytest.raises(InvalidArgument, match=rf"^{words}"):
        problems.with_failures(make(0.0), region)


def test_what_does_not_go_with_failures_is_refused() -> None:
    problem = problems.with_failures(on_grid(0.0), crashes)
    with pytest.raises(InvalidArgument, match=r"^problem: "):
        problems.with_failures(problems.sine, crashes)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^best: is for problems on a box"):
        problems.with_failures(on_grid(0.0), crashes, best=(1.0, (0.0, 0.0)))
    with pytest.raises(InvalidArgument, match=r"^delay: runs of this problem may fail; give delays.Failing"):
        run(problem, delay=delays.NoDelay())
    with pytest.raises(InvalidArgument, match=r"^problem: must be one of problems.with_failures"):
        metrics.failures(on_grid(0.0), np.zeros((2,), int))
