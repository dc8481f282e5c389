"""Every algorithm on boxes: runs, beliefs, and bad input."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jaxbandit as jb
from jaxbandit import delays, gradients, informed, kernels, metrics, problems
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.domains import box, grid, integers, log
from jaxbandit.domains.boxes import Side
from jaxbandit.kernels import Matern52, SquaredExponential
from jaxbandit.report import plots
from jaxbandit.session import Axis, Session, optimise
from jaxbandit.study import Model, run_study, tune
from tests.support import box_runs
from tests.support.refusals import refused

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


NO_NAMES: dict[str, Any] = {
    "empty": "",
    "blank": " ",
    "a line break": "a\nb",
    "a null": "a\0",
    "unseen": "\u200b",
    "half a letter": "\ud800",
    "a number": 3,
}
NO_FUNCTION = {
    "no argument": lambda: 0.0,
    "two arguments": lambda x, y: x,
    "an argument without default": demands,
    "a branch": branches,
    "NumPy": lambda x: np.sin(x[0]),
    "a choice of NumPy": lambda x: np.where(x[0] > 0.5, 1.0, 0.0),
    "math": lambda x: math.sin(x[0]),
    "a conversion": lambda x: float(x[0]),
    "an assignment": assigns,
    "a third coordinate": lambda x: x[2],
    "None": lambda x: None,
    "a vector": lambda x: x,
    "a pair": lambda x: (x[0], 1.0),
    "a text": lambda x: "1.0",
    "a complex number": lambda x: 1j * x[0],
    "a truth": lambda x: x[0] > 0.5,
    "NaN": lambda x: x[0] * math.nan,
    "an error": lambda x: 1 / 0,
    "a class": float,
}
NO_BEST = {
    "a number": 1.0,
    "a value alone": (1.0,),
    "NaN": (math.nan, BEST[1]),
    "infinite": (math.inf, BEST[1]),
    "true": (True, BEST[1]),
    "a text": ("0", BEST[1]),
    "an endless value": (ENDLESS, BEST[1]),
    "one coordinate": (0.0, (0.5,)),
    "texts": (0.0, ("0.5", "0.0")),
    "booleans": (0.0, (True, False)),
    "a coordinate that is NaN": (0.0, (math.nan, 0.0)),
    "an endless coordinate": (0.0, (ENDLESS, 0.0)),
    "outside": (0.0, (0.5, -1.0)),
    "infeasible": (-0.16, (0.9, 0.0)),
    "another value than the reward": (3.0, BEST[1]),
    "less than a candidate": (-2.25, (0.0, 2.0)),
}
NO_POINTS = {
    "None": None,
    "text": "points",
    "a number": 3.0,
    "true": True,
    "three coordinates": np.zeros((2, 3)),
    "complex": POINTS * 1j,
    "ragged": [[0.1], [0.2, 0.3]],
    "a mapping": {"x": 0.1},
    "a masked array": np.ma.masked_array(POINTS, POINTS > 1),
}
NO_OBSERVED = NO_POINTS | {
    "outside": POINTS + 5,
    "below": POINTS - 1,
    "NaN": POINTS * math.nan,
    "numbers of points": [0, 1],
    "endless": [[ENDLESS, 0]] * 2,
}
NO_SIDE = {
    "booleans": (False, True),
    "NumPy's booleans": np.array([False, True]),
    "a boolean": (False, 1.0),
    "reversed": (1.0, 0.0),
    "equal": (1.0, 1.0),
    "NaN": (math.nan, 1.0),
    "infinite": (0.0, math.inf),
    "endless": (0, ENDLESS),
    "three numbers": (0.0, 1.0, 2.0),
    "numbers as texts": ("0", 1.0),
    "a blank category": ("a", " "),
    "a list of a thousand": list(range(1000)),
    "a category twice": ("a", "a"),
    "a masked array": np.ma.masked_array([0.0, 1.0], [True, False]),
    "keys": jax.random.split(jax.random.key(0)),
    "a category with a line break": ("a", "b\n"),
}
NO_CALL = {
    "no argument": lambda: 1.0,
    "one argument": lambda x: 1.0,
    "other names": lambda a, b: 1.0,
    "another argument without default": lambda x, y, z: 1.0,
    "no names": lambda x, y, /: 1.0,
}


def session(**changes: Any) -> Session:
    return Session.create(None, [Axis.between("x", 0.0, 1.0, 3)], jb.Rpol(), **{"key": 0} | changes)


def observed(at: float = 0.0, **changes: Any) -> Session:
    asking = session(**changes)
    asking.observe({"x": at})
    return asking


def told(constraints: Any) -> None:
    observed(constraints=["cost <= 1"]).tell(1, constraints=constraints)


TWICE = {"ticket": [1, 1], "reward": [1.0, 2.0]}


Called = Callable[..., Any]
BAD_REFUSED: dict[str, tuple[str, Called, Mapping[str, Any]]] = {
    "the name of a side": ("axes", lambda axes: box({axes: (0.0, 1.0)}), NO_NAMES),
    "a side": ("axes['dose']", lambda given: box({"dose": given}), NO_SIDE),
    "the scale of a side": ("scale", lambda given: sided(scale=given), {"unknown": "cubic", "None": None, "a list": ["log"]}),
    "the labels of a side": ("labels", lambda given: sided(scale="integers", labels=given), {"three": ("a", "b", "c"), "a text": "ab"}),
    "a logarithmic side": ("high", lambda given: log(1.0, given), {"below": 0.5, "equal": 1.0, "endless": ENDLESS}),
    "a side of integers": ("high", lambda given: integers(1, given), {"below": 0, "a fraction": 1.5, "true": True}),
    "points of a box": ("points", BAD_BOX.to_unit, NO_POINTS),
    "points of the cube": ("points", BAD_BOX.from_unit, NO_POINTS),
    "numbers of categories": ("points", MIXED.to_unit, {"beyond": np.array([0.5, 1, 2, 1]), "below": np.array([0.5, 1, -1, 1])}),
    "the name of an axis": ("name", lambda given: Axis.between(given, 0.0, 1.0), NO_NAMES),
    "the values of an axis": ("values", lambda given: Axis("x", given), {"a text": np.array("3"), "a number": np.array(3.0)}),
    "the ends of an axis": ("high", lambda given: Axis.between("x", 0.0, given), {"below": -1.0, "equal": 0.0}),
    "the categories of an axis": ("categories", lambda given: Axis.of_categories("c", given), {"blank": ["a", " "], "a null": ["a", "\0"]}),
    "a reward": ("reward", lambda given: made(reward=given), NO_FUNCTION),
    "a constraint": ("constraints[1]", lambda given: made(constraints=[limit, given]), NO_FUNCTION),
    "constraints": ("constraints", lambda given: made(constraints=given), {"a number": 3, "a function": limit, "a text": ""}),
    "a best point": ("best", lambda given: made(best=given), NO_BEST),
    "a best point of integers": (
        "best",
        lambda given: made(domain=MIXED, reward=lambda x: x[0], constraints=[], best=(1.0, given)),
        {"between": (1.0, 1.5, 0, 1.0), "no category": (1.0, 1, 2, 1.0), "beyond": (1.0, 5, 0, 1.0), "not positive": (1.0, 1, 0, 0.0)},
    ),
    "noise of other outputs": ("noise_variance", lambda given: made(noise_variance=given), {"three": [0.1, 0.1, 0.1]}),
    "a problem's name": ("name", lambda given: made(name=given), NO_NAMES),
    "points of a problem": ("chosen", PROBLEM.means_of, NO_POINTS),
    "a point of a problem": ("point", PROBLEM.values, NO_POINTS | {"two points": POINTS}),
    "points of a posterior": ("points", lambda points: MODEL.predict_at(POSTERIOR, points), NO_POINTS),
    "replayed points": ("indices", lambda given: gradients.replay(MODEL, given, VALUES), NO_OBSERVED),
    "measured points": ("indices", lambda given: metrics.curves(PROBLEM, given), NO_OBSERVED),
    "points of a fit": ("fit_to", lambda given: jb.surrogate(BAD_BOX, BAD_KERNEL, noise_variance=0.1, fit_to=(given, VALUES)), NO_OBSERVED),
    "shortest and longest": ("longest", lambda given: jb.Scbo(longest=given), {"below the length": 0.5}),
    "a length outside": ("length", lambda given: jb.Scbo(length=given), {"short": 1e-3}),
    "delays": ("high", lambda given: delays.Uniform(low=3, high=given), {"below": 2}),
}  # fmt: skip
BAD_REFUSED |= {
    "a function to optimise": ("function", lambda given: optimise(given, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, 1), NO_CALL),
    "the name of an output": ("objective", lambda given: session(objective=f"maximise {given}"), {"a line break": "a\nb", "a null": "a\0"}),
    "values of constraints": ("cost", told, {"text": np.array("3"), "NaN": np.array(math.nan)}),
    "a ticket": ("ticket", lambda given: observed().drop(given), {"another session's": observed(1.0).pending[0], "none": 2, "true": True}),
    "rows of one ticket": (
        "history",
        lambda given: observed().tell_all(given),
        {"two values": TWICE, "infinite": {"ticket": [math.inf], "reward": [1.0]}},
    ),
    "the neighbours of a box": (
        "neighbours",
        lambda given: jb.replace(BAD_BOX, neighbours=given),
        {"of others": np.zeros((3, 6), int), "beyond": np.full((16, 6), 16)},
    ),
    "the sides of a box": ("sides", lambda given: jb.replace(BAD_BOX, sides=given), {"none": (), "pairs": ((0.0, 1.0), (0.0, 2.0))}),
    "the steps of a box": ("steps", lambda given: jb.replace(BAD_BOX, steps=given), {"negative": -1, "a fraction": 1.5}),
    "the value of a certificate": (
        "value",
        lambda given: problems.Certificate(value=given, point=[0.0]),
        {"text": "1", "None": None, "two": [0.0, 1.0]},
    ),
    "functions of a problem": (
        "functions",
        lambda given: jb.replace(PROBLEM, functions=given),
        {"one": (reward,), "no function": (reward, 3.0)},
    ),
}
TAKEN: dict[str, Called] = {
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


@pytest.mark.parametrize("case", BAD_REFUSED)
def test_bad_input_on_boxes_is_refused_by_name(case: str) -> None:
    argument, call, wrong = BAD_REFUSED[case]
    found = [refused(case, argument, what, lambda value=value: call(value)) for what, value in wrong.items()]
    assert [words for words in found if words] == []


@pytest.mark.parametrize("case", TAKEN)
def test_good_input_of_any_type_is_taken(case: str) -> None:
    TAKEN[case]()


def test_functions_that_cannot_be_traced_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidArgument, match=r"reward: must be a function .* jnp\.where for branches; got one that fails") as refusal:
        made(reward=branches)
    assert isinstance(refusal.value.__cause__, jax.errors.TracerBoolConversionError)
