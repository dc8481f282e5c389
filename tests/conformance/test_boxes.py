"""Public functions given a box: each works, or refuses it by the name of the argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import gradients, informed, problems
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.domains import grid
from jaxbandit.kernels import Matern52, SquaredExponential
from jaxbandit.report import plots
from jaxbandit.study import Model, run_study, tune
from tests.support import box_runs

BOX, KERNEL = box_runs.small_box(), SquaredExponential(length_scale=0.3)


def run(**changes: Any) -> Any:
    given = {"problem": box_runs.valley(), "algorithm": jb.Rpol(), "surrogate": box_runs.model(), "horizon": 3} | changes
    return jb.simulate(**given, key=jax.random.key(0))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "tables": (lambda: problems.from_tables(BOX, np.zeros(32), [np.zeros(32)]), "domain"),
    "tabulated functions": (lambda: problems.from_functions(BOX, box_runs.reward, [], noise_variance=0.1), "domain"),
    "a random family": (lambda: problems.gp_draws(domain=BOX), "kernel"),
    "a random family without feasible points": (lambda: problems.gp_draws_infeasible(domain=BOX), "kernel"),
    "functions on points": (lambda: problems.on_box(grid([0.0], [1.0], 4), box_runs.reward, [], noise_variance=0.1), "domain"),  # type: ignore[arg-type]
    "constraints that are seen": (lambda: problems.full_information(box_runs.valley()), "domain"),
    "equalities": (lambda: problems.with_equalities(box_runs.valley(), tolerance=0.1), "problem"),  # type: ignore[arg-type]
    "a mixed policy": (lambda: problems.best_mixed_policy(box_runs.valley()), "problem"),
    "noise by point": (
        lambda: problems.on_box(
            BOX,
            box_runs.reward,
            [],
            noise=problems.PerOutput(models=(problems.Heteroscedastic.of(BOX, lambda x: 0.1 + x[0]),)),
            best=(0.0, (1.5, 0.3)),
        ),
        "noise",
    ),
    "strong regret": (lambda: run_study(box_runs.study(metrics=("strong_regret",))), "metrics"),
    "an algorithm on sets": (lambda: run(algorithm=jb.SafeOpt(count=2)), "algorithm: SafeOpt .*sobol"),
    "a wrapped algorithm on sets": (lambda: run(algorithm=jb.Anytime(algorithm=jb.Oco())), "algorithm"),
    "an oracle": (lambda: run(algorithm=jb.Oracle(index=3)), "algorithm"),
    "allowed points": (lambda: run(algorithm=jb.RandomSearch(allowed=np.ones(32, bool))), "allowed"),
    "a fused kernel": (lambda: run(fused=True), "fused"),
    "seeds": (lambda: run(informed=informed.SafestSeeds()), "informed"),
    "a model of points": (lambda: run(surrogate=jb.surrogate(grid([0.0] * 2, [1.0] * 2, 4), KERNEL, noise_variance=0.1)), "surrogate"),
    "a model of the candidates": (
        lambda: run(surrogate=jb.surrogate(jb.domains.points(BOX.points), KERNEL, noise_variance=0.1)),
        "surrogate",
    ),
    "a model of a box": (lambda: run(problem=problems.sine(4)), "surrogate"),
    "a range of length-scales": (lambda: jb.ranged(BOX, KERNEL, low=0.1, high=1.0, noise_variance=0.1), "domain"),
    "a range in a study": (lambda: box_runs.study(model=Model(kernel=KERNEL, length_scale_range=(0.1, 1.0))), "model: domain"),
    "a form": (lambda: jb.surrogate(BOX, KERNEL, noise_variance=0.1, form="rows"), "form"),
    "a rank of the exact form": (lambda: jb.surrogate(BOX, KERNEL, noise_variance=0.1, rank=4), "form"),
    "features of a rough kernel": (
        lambda: jb.surrogate(BOX, Matern52(length_scale=0.3), noise_variance=0.1, form="features"),
        "form: .features. with 8 of the 32 candidates, .* leaves out [0-9.]+e-01 of .* form='auto', which is exact",
    ),
    "refits of features": (
        lambda: run(algorithm=jb.Refitted(algorithm=jb.Rpol()), surrogate=box_runs.model(form="features", tolerance=0.5)),
        "surrogate: Refitted .* without form='features'",
    ),
    "a table of noise": (lambda: jb.surrogate(BOX, KERNEL, noise_variance=np.full(32, 0.1)), "noise_variance"),
    "numbers of points to replay": (
        lambda: gradients.replay(box_runs.model(), jnp.zeros(3, jnp.int32), jnp.zeros((3, 2))),
        "indices, values: expected .* for indices",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_points_refuses_a_box_by_name(name: str) -> None:
    make, argument = REFUSED[name]
    with pytest.raises(InvalidArgument, match=rf"^(run '.*': )?(\w+\.)?{argument}"):
        make()


WIDTHS = {"estimator.reward_width": [0.5, 2.0]}


@functools.cache
def played() -> jb.Trajectory:
    """Two trials of the study of ``box_runs`` of each of ``WIDTHS``, as its tuner plays them."""
    apart = box_runs.study(seed=1, trials=2)
    return jax.device_get(apart.trajectory(apart.runs[0], algorithm=jb.sweep(jb.Rpol(), WIDTHS)))


@pytest.mark.full
def test_a_run_on_a_box_goes_with_its_problem_and_its_model_alone() -> None:
    trajectory, model = jax.tree.map(lambda x: x[0], played()), jb.surrogate(problems.sine(4).domain, KERNEL, noise_variance=0.1)
    for make, words in (
        (lambda: trajectory.summary(problems.sine(4)), "problem: 'sine' is on points, but run 'run' on 2 axes of one"),
        (lambda: trajectory.summary(problems.hartmann6()), "problem: 'hartmann6' is on a box of 6 axes, but run 'run' on 2 axes of one"),
        (lambda: plots.posterior_after(model, trajectory.trial(0), [1]), "trajectory: of it and the surrogate one is on a box"),
        (
            lambda: plots.posterior_maps(box_runs.model(), trajectory.trial(0), [1], problem=problems.sine(4)),
            "problem: 'sine' is not on the",
        ),
    ):
        with pytest.raises(InvalidArgument, match=words):
            make()


@pytest.mark.full
def test_beliefs_along_the_points_of_a_run_are_those_of_a_dense_posterior_and_have_derivatives_in_the_kernel() -> None:
    trajectory, model = jax.tree.map(lambda x: x[0, 0], played()), box_runs.model()

    def evidence(length_scale: Any) -> jax.Array:
        kernel = SquaredExponential(length_scale=length_scale)
        changed = jb.replace(model, forms=tuple(jb.replace(form, kernel=kernel) for form in model.forms))
        return jnp.sum(gradients.replay(changed, jnp.asarray(trajectory.points), jnp.asarray(trajectory.values)).log_evidence)

    def dense(length_scale: float) -> float:
        unit = np.stack([np.asarray(trajectory.points)[:, 0] / 2, np.log10(np.asarray(trajectory.points)[:, 1]) / 2 + 1], axis=1)
        distances = np.sum((unit[:, None] - unit[None]) ** 2, axis=-1)
        covariance, values = np.exp(-distances / (2 * length_scale**2)) + 0.01 * np.eye(6), np.asarray(trajectory.values, np.float64)
        quadratic = np.einsum("tk,ts,sk->", values, np.linalg.inv(covariance), values)
        return -0.5 * quadratic - np.linalg.slogdet(2 * np.pi * covariance)[1]  # of two outputs

    value, slope = jax.jit(jax.value_and_grad(evidence))(0.3)
    np.testing.assert_allclose(value, dense(0.3), rtol=1e-4)
    np.testing.assert_allclose(slope, (dense(0.3001) - dense(0.2999)) / 2e-4, rtol=2e-3)


@pytest.mark.full
def test_hyper_parameters_are_tuned_and_descended_on_a_box() -> None:
    study = box_runs.study()
    tuned = tune(study, study.runs[0], WIDTHS, trials=2)
    reward, cost = box_runs.values(played().points)
    expected = np.mean(np.sum(np.maximum(-0.28125 - reward, 0) + np.maximum(cost, 0), axis=-1), axis=-1)
    np.testing.assert_allclose([candidate.loss for candidate in tuned.candidates], expected, rtol=1e-4)
    assert len(np.unique(expected)) == 2

    params, build = gradients.logarithms(jb.Rpol(), box_runs.model(), "estimator.reward_width")
    loss = gradients.SmoothedLoss(box_runs.valley(), build, horizon=4, pairs=4, initial=jb.InitialDesign(random=2))
    estimate = loss.estimate(params, jax.random.key(2))
    assert np.isfinite(estimate.value) and int(estimate.failed) == 0 and float(estimate.unchanged) < 1
    assert np.isfinite(estimate.gradient["estimator.reward_width"])


def test_a_function_tells_a_learner_what_it_knows_of_a_problem_on_a_box() -> None:
    trajectory = run(algorithm=Told(), informed=wide, initial=jb.InitialDesign(indices=[0, 5]))
    np.testing.assert_allclose(trajectory.widths[0, :, 0], 7.0)
    np.testing.assert_allclose(trajectory.initial_points[0], np.asarray(BOX.points)[[0, 5]], rtol=1e-5)


@jb.pytree
class Told(jb.RandomSearch):
    """Random search, which shows as widths what it was told: its program is small."""

    level: Any = 1.0

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        decision, state = super().select(arena, state, t, key)
        return jb.replace(decision, widths=jnp.full_like(decision.widths, self.level)), state


def wide(instance: Any, algorithm: Any, surrogate: Any) -> Any:
    return jb.replace(algorithm, level=7.0), surrogate
