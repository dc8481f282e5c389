"""The tuner: the best of a grid, on trials of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, Oco, domains, kernels, metrics, problems
from jaxbandit.study import Run, Study, tune

KERNEL = kernels.SquaredExponential(length_scale=0.3)
HORIZON = 60
VALUES = {"step": [0.01, 0.3, 3.0], "regulariser": [0.0, 1.0]}
CURVES = jax.jit(metrics.curves)


def study(problem: Any) -> tuple[Study, Run]:
    surrogate = jaxbandit.surrogate(problem.domain, KERNEL, noise_variance=0.01, form="features")
    run = Run("OCO", problem, Oco(), surrogate)
    return Study(name="tuning", runs=(run,), horizon=HORIZON, trials=3, seed=4), run


def slope(**changes: Any) -> problems.Problem:
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 15)
    x = np.asarray(domain.points)
    return problems.from_tables(domain, x.sum(1), x[:, 0] - 0.5, noise=problems.Gaussian(variance=0.01))


@pytest.mark.full
def test_it_picks_what_separate_runs_find_best() -> None:
    tuned, run = study(slope())
    found = tune(tuned, run, VALUES, trials=4)
    chosen, table = found.best, found.candidates
    assert [row.values for row in table] == [{"step": s, "regulariser": r} for s in VALUES["step"] for r in VALUES["regulariser"]]
    separate = []
    for row in table:
        played = jaxbandit.simulate(run.problem, Oco(**row.values), run.model, horizon=HORIZON, trials=4, key=jax.random.key(5))
        curves = CURVES(run.problem, played.indices)
        separate.append(float(np.mean(curves.positive_regret[:, -1] + curves.hard_violation[:, -1])))
    np.testing.assert_allclose([row.loss for row in table], separate, rtol=1e-4)
    best = table[int(np.argmin(separate))].values
    assert {name: pytest.approx(float(getattr(chosen.algorithm, name))) for name in best} == best
    assert len({round(score, 6) for score in separate}) >= len(VALUES["step"]) and min(separate) < separate[0]
    assert dataclasses.replace(chosen, algorithm=run.algorithm) == run
    other = tune(tuned, run, VALUES, trials=4, measure=lambda curves: -curves.regret[..., -1]).best
    assert float(other.algorithm.step) != float(chosen.algorithm.step)


@pytest.mark.full
def test_random_families_are_tuned_on_instances_of_their_own() -> None:
    tuned, run = study(problems.rkhs_1d_binding(20))
    values = {"step": [0.1, 1.0]}
    table = tune(tuned, run, values, trials=3).candidates
    both = jaxbandit.sweep(Oco(), values)  # together, by the tuner's program
    played = jaxbandit.simulate(run.problem, both, run.model, horizon=HORIZON, trials=3, key=jax.random.key(5)).variant(1)
    instances = dataclasses.replace(tuned, seed=5).instances(run.problem)
    curves = jax.jit(jax.vmap(metrics.curves))(instances, played.indices)
    np.testing.assert_allclose(table[1].loss, np.mean(curves.positive_regret[:, -1] + curves.hard_violation[:, -1]), rtol=1e-4)


@pytest.mark.full
def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, run = study(slope())
    with pytest.raises(InvalidArgument, match="values: must hold at least one field"):
        tune(tuned, run, {})
    with pytest.raises(InvalidArgument, match="trials: must be a whole number >= 1"):
        tune(tuned, run, {"step": [1.0]}, trials=0)
    with pytest.raises(InvalidArgument, match=r"stride: unknown field.*Oco can sweep"):
        tune(tuned, run, {"stride": [1.0]})
    with monkeypatch.context() as patched:  # before anything compiles
        patched.setattr("jaxbandit.engine.simulation.play_all", None)
        for measure in (lambda curves: curves.regret, lambda curves: 0.0, lambda curves: "low", lambda curves: curves.regrets):
            with pytest.raises(InvalidArgument, match=r"^measure: must make a number of each trial, \[6, 4\]"):
                tune(tuned, run, VALUES, trials=4, measure=measure)
    with pytest.raises(InvalidArgument, match="none of the 6 combinations gave a finite measure"):
        tune(tuned, run, VALUES, trials=4, measure=lambda curves: np.nan * curves.regret[..., -1])
