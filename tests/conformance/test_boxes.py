"""Every algorithm on boxes: runs, beliefs, and bad input."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jaxbandit as jb
from jaxbandit import delays, gradients, kernels, metrics, problems
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.domains import box, integers, log
from jaxbandit.domains.boxes import Side
from jaxbandit.kernels import SquaredExponential
from jaxbandit.report import plots
from jaxbandit.session import Axis, Session
from jaxbandit.study import tune
from tests.support import box_runs

BOX, KERNEL = box_runs.small_box(), SquaredExponential(length_scale=0.3)


def run(**changes: Any) -> Any:
    given = {"problem": box_runs.valley(), "algorithm": jb.Rpol(), "surrogate": box_runs.model(), "horizon": 3} | changes
    return jb.simulate(**given, key=jax.random.key(0))


WIDTHS = {"estimator.reward_width": [0.5, 2.0]}


@functools.cache
def played() -> jb.Trajectory:
    """Return two trials of every width, as a tuner runs them."""
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
        return -0.5 * quadratic - np.linalg.slogdet(2 * np.pi * covariance)[1]

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
    """Random search that shows its observations as widths."""

    level: Any = 1.0

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        decision, state = super().select(arena, state, t, key)
        return jb.replace(decision, widths=jnp.full_like(decision.widths, self.level)), state


def wide(instance: Any, algorithm: Any, surrogate: Any) -> Any:
    return jb.replace(algorithm, level=7.0), surrogate


ENDLESS = 10**400
BAD_BOX = box({"x": (0.0, 1.0), "y": (0.0, 2.0)}, candidates=16)
MIXED = box({"x": (0.0, 1.0), "n": integers(1, 4), "c": ("a", "b"), "r": log(0.1, 10.0)}, candidates=16)
BEST = (0.0, (0.5, 0.0))
BAD_KERNEL = kernels.Matern52(length_scale=0.3)
MODEL = jb.surrogate(BAD_BOX, BAD_KERNEL, noise_variance=0.01)
POINTS, VALUES = np.array([[0.1, 0.2], [0.3, 1.4]]), np.zeros((2, 2))


def reward(x: jax.Array) -> jax.Array:
    return -((x[0] - 0.5) ** 2) - x[1]


def limit(x: jax.Array) -> jax.Array:
    return x[0] - 0.8


def made(**changes: Any) -> problems.BoxProblem:
    given: dict[str, Any] = {"domain": BAD_BOX, "reward": reward, "constraints": [limit], "noise_variance": 0.01, "best": BEST}
    return problems.on_box(**given | changes)


def sided(**changes: Any) -> Side:
    return Side(**{"low": 0.0, "high": 1.0} | changes)


PROBLEM = made()
POSTERIOR = MODEL.init()


def branches(x: Any) -> Any:
    return x[0] if x[0] > 0.5 else -x[0]


def assigns(x: Any) -> Any:
    x[0] = 1.0
    return x[0]


def demands(x: Any, *, scale: float) -> Any:
    return scale * x[0]


def session(**changes: Any) -> Session:
    return Session.create(None, [Axis.between("x", 0.0, 1.0, 3)], jb.Rpol(), **{"key": 0} | changes)


def observed(at: float = 0.0, **changes: Any) -> Session:
    asking = session(**changes)
    asking.observe({"x": at})
    return asking


def told(constraints: Any) -> None:
    observed(constraints=["cost <= 1"]).tell(1, constraints=constraints)


TWICE = {"ticket": [1, 1], "reward": [1.0, 2.0]}


TAKEN: dict[str, Callable[[], Any]] = {
    "a side of an array": lambda: box({"x": np.array([0.0, 1.0]), "y": jnp.array([0.0, 1.0])}),
    "a side of arrays without axes": lambda: box({"x": (np.array(0.0), jnp.array(1.0))}),
    "categories of NumPy": lambda: box({"c": np.array(["a", "b"])}),
    "a count of NumPy": lambda: box({"x": (0.0, 1.0)}, candidates=np.int64(16)),
    "points as lists": lambda: (BAD_BOX.to_unit([0.5, 1.0]), BAD_BOX.from_unit([[0.5, 0.5]]), PROBLEM.means_of([0.5, 1.0])),
    "categories of pandas": lambda: Axis.of_categories("c", pd.Series(["a", "b"])),
    "a best point of arrays": lambda: made(best=(np.float64(0), np.array([0.5, 0.0]))),
    "a rounded best point": lambda: made(best=[1e-6, [0.50001, 0.0]]),
    "replayed lists": lambda: gradients.replay(MODEL, POINTS.tolist(), VALUES.tolist()),
    "replayed corners": lambda: gradients.replay(MODEL, np.float32([[0, 0], [1, 2]]), VALUES),
    "measured lists": lambda: metrics.curves(PROBLEM, POINTS.tolist()),
    "letters of any language": lambda: box({"Temperatur °C": (0.0, 1.0), "温度": (0.0, 1.0)}),
    "equal ends of delays": lambda: delays.Uniform(low=3, high=3),
}


@pytest.mark.parametrize("case", TAKEN)
def test_good_input_of_any_type_is_taken(case: str) -> None:
    TAKEN[case]()


def test_functions_that_cannot_be_traced_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidArgument, match=r"reward: must be a function .* jnp\.where for branches; got one that fails") as refusal:
        made(reward=branches)
    assert isinstance(refusal.value.__cause__, jax.errors.TracerBoolConversionError)
