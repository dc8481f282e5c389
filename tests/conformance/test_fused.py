"""Choices made by one kernel are those of XLA, and the kernels lower for GPUs and TPUs; no device is needed for either."""

from __future__ import annotations

import functools
import math
import re
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import SgpUcb, domains, feedback, fused, kernels, problems
from jaxbandit.acquisition import pick
from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Observation
from jaxbandit.core.pytree import canonicalise
from jaxbandit.engine.rounds import choose_point, take_in
from jaxbandit.fused import choice, deferred, equations, kernel, reasons, rounds, rows
from jaxbandit.fused.choice import choose_in_kernel, fused_arena
from jaxbandit.fused.error_function import erf, erfc
from tests.support.algorithms import ALGORITHMS
from tests.support.scores import scored

ROUNDS, TRIALS = 6, 3
TAKEN = {
    name: ALGORITHMS[name]
    for name in (
        *("rpol", "cbo-randomised", "config", "epbo", "scgp", "se2", "se3", "unconstrained", "anytime-cbo"),
        *("bpe", "primal-dual", "cei", "constrained-thompson", "admmbo"),
    )
} | {"sgp-ucb": lambda: SgpUcb(seeds=np.array([3, 7]), warm_up=1.0)}
REASONS = {
    "safeopt": "sorts points",
    "safeopt-lipschitz": "loop of unknown length",
    "stageopt": "sorts points",
    "sgp-ucb": "sorts points",  # which seeds it starts from
    "random-search": "does not depend",
    "oracle": "does not depend",
    "oco": "does not depend",
}


@functools.cache
def problem() -> problems.FullInformation:
    rng = np.random.default_rng(1)
    domain = domains.product([np.sort(rng.random(5)), np.sort(rng.random(4))])
    tables = rng.standard_normal((3, domain.size))
    return problems.full_information(problems.from_tables(domain, tables[0], tables[1:] - 0.3, noise=problems.Gaussian(variance=0.05)))


@functools.cache
def model(form: str, double: bool = False) -> jaxbandit.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=0.3)
    return jaxbandit.surrogate(problem().domain, kernel, noise_variance=0.05, outputs=3, form=form)


def side_by_side(algorithm: Algorithm, form: str, *, gpu: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return by round and trial whether both choose one point, how far the kernel's is below the best score, and by how much widths differ.

    Both learners take in what is seen at the point of the kernel.
    """
    algorithm = canonicalise(algorithm)
    plain = Arena(surrogate=canonicalise(model(form, jax.config.read("jax_enable_x64")).without_kernels()), horizon=jnp.int32(ROUNDS))
    arena = fused_arena(plain)
    means = jnp.asarray(problem().means, plain.dtype)

    def trial(key: Any) -> Any:
        noise = 0.2 * jax.random.normal(key, (ROUNDS, len(means)), plain.dtype)

        def one(states: Any, given: Any) -> Any:
            t, eps = given
            own = jax.random.fold_in(key, t)
            if algorithm.sees_constraints:
                states = [algorithm.reveal(a, s, means[1:] + eps[1:, None], t) for a, s in zip((plain, arena), states, strict=True)]
            by_xla, score = scored(algorithm, plain, states[0], t, own)
            by_kernel = choose_in_kernel(choose_point, algorithm, arena, states[1], t, own)
            seen = Observation(index=by_kernel.point, values=means[:, by_kernel.point] + eps)
            states = take_in(algorithm, plain, by_xla.state, seen, t), take_in(algorithm, arena, by_kernel.state, seen, t)
            states = states[0], deferred.between_rounds(arena.surrogate, states[1])
            same = by_xla.point == by_kernel.point
            gap = jnp.where(same, 0, jnp.max(score) - score[by_kernel.point])
            return states, (same, gap, jnp.max(jnp.abs(by_xla.decision.widths - by_kernel.decision.widths)))

        start = algorithm.init(plain), algorithm.init(arena)
        return jax.lax.scan(one, start, (jnp.arange(1, ROUNDS + 1, dtype=jnp.int32), noise))[1]

    interpreted = functools.partial(kernel.run, gpu=gpu, interpret=True)  # without the kernels for devices, which take time to trace
    with mock.patch.object(kernel, "run_anywhere", interpreted):
        found = jax.jit(jax.vmap(trial))(jax.random.split(jax.random.key(3), TRIALS))
    return tuple(np.asarray(x) for x in found)  # type: ignore[return-value]


def check(found: tuple[np.ndarray, np.ndarray, np.ndarray], tolerance: float) -> None:
    """Scores are of the order of 1, and choices of equal scores but for rounding are equally good."""
    same, gap, widths = found
    assert np.max(gap) <= tolerance
    assert same[:, 2:].mean() > 0.8  # where nothing has been seen yet every score may tie
    assert np.max(widths) <= tolerance


@pytest.mark.full(but=("rpol",))
@pytest.mark.parametrize("name", TAKEN)
def test_choices_are_as_good_as_those_of_xla(name: str) -> None:
    check(side_by_side(TAKEN[name](), "product"), 2e-5)


@pytest.mark.full
def test_choices_are_as_good_in_the_layout_of_gpus() -> None:
    check(side_by_side(ALGORITHMS["cbo"](), "features", gpu=True), 2e-5)


@pytest.mark.full
def test_choices_are_as_good_in_float64() -> None:
    with jax.enable_x64(True):
        check(side_by_side(ALGORITHMS["cei-observed"](), "features"), 1e-12)


@pytest.mark.full
def test_the_check_fails_when_a_kernel_forgets_the_last_observation() -> None:
    def forgetful(self: Any, state: Any) -> deferred.Settled:
        return state if isinstance(state, deferred.Settled) else deferred.Settled(posterior=state.posterior)

    with mock.patch.object(deferred.DeferredSurrogate, "settled", forgetful):
        _, gap, _ = side_by_side(TAKEN["rpol"](), "features")
    assert np.max(gap) > 0.1


@functools.cache
def planned(name: str, feedback_policy: feedback.Policy | None = None) -> choice.Plan:
    """The plan of an algorithm's choices, and the arrays that its kernel takes."""
    _, plan = reasons.planned_choice((ALGORITHMS | TAKEN)[name](), model("product"), feedback_policy)
    return plan


def lowered(plan: choice.Plan, platform: str) -> str:
    """The kernel of a plan for 16 trials, of which all but the first argument differ from trial to trial."""
    parts = kernel.Parts.of(plan.division, plan.size)
    batched = [number > 0 for number in range(len(plan.division.needs))]
    shapes = [(16, *name.aval.shape) if own else name.aval.shape for name, own in zip(plan.division.needs, batched, strict=True)]
    values = [jax.ShapeDtypeStruct(shape, name.aval.dtype) for name, shape in zip(plan.division.needs, shapes, strict=True)]

    def run(*values: Any) -> Any:
        return kernel.run(parts, values, batched, 16, gpu=platform == "cuda", interpret=False)

    return jax.jit(run).trace(*values).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.full
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_kernels_lower_for_accelerators(platform: str) -> None:
    call = {"cuda": "mosaic_gpu_v2", "tpu": "tpu_custom_call"}[platform]
    for name in TAKEN:
        text = lowered(planned(name), platform)
        assert re.findall(r"custom_call @([\w$.]+)", text) == [call], name
        assert not re.search("[x<]f64>", text), name


@pytest.mark.full(but=("policy2",))
@pytest.mark.parametrize("policy", [feedback.Wait(), feedback.Hallucinate(), feedback.Censor(window=3, minimum=-1.0)])
def test_late_feedback_is_scored_by_kernels(policy: feedback.Policy) -> None:
    """The kernel of a round reads what the policy believes, and has nothing to move; here it plays a trial by itself."""
    plan = planned("rpol", policy)
    assert [name for name in plan.division.made if name.aval.shape] == []
    assert "tpu_custom_call" in lowered(plan, "tpu")
    algorithm, base = canonicalise(ALGORITHMS["rpol"]()), canonicalise(model("product").without_kernels())
    arena = Arena(surrogate=policy.bind(base, separate_outputs=True, capacity=2, axis=None), horizon=jnp.int32(ROUNDS))

    def choices(state: Any) -> Any:
        for index, values in ((3, [0.5, -0.2, 0.3]), (11, [-0.4, 0.3, -0.6])):
            state = algorithm.learn(arena, state, Observation(index=jnp.int32(index), values=jnp.asarray(values)))
        t, key = jnp.int32(3), jax.random.key(0)
        by_xla, score = scored(algorithm, arena, state, t, key)
        return by_xla.point, score, choose_in_kernel(choose_point, algorithm, arena, state, t, key).point

    with mock.patch.object(kernel, "run_anywhere", functools.partial(kernel.run, gpu=False, interpret=True)):
        best, score, point = jax.jit(choices)(jax.jit(algorithm.init)(arena))
    assert score[best] - score[point] <= 2e-5 and score[best] - jnp.sort(score)[-2] < 1


@pytest.mark.full
def test_simulations_choose_by_kernels() -> None:
    """After an initial design, in a program for a CPU, and the same program for GPUs and TPUs."""

    def play(fused: bool) -> jaxbandit.Trajectory:
        return jaxbandit.simulate(
            problem(),
            jaxbandit.Rpol(),
            model("features"),
            horizon=ROUNDS,
            key=jax.random.key(1),
            trials=2,
            initial=jaxbandit.InitialDesign(random=2),
            record="audit",
            fused=fused,
        )

    by_kernel, plain = play(True), play(False)
    np.testing.assert_array_equal(by_kernel.indices, plain.indices)
    np.testing.assert_allclose(by_kernel.multipliers, plain.multipliers, rtol=1e-5)
    np.testing.assert_array_equal(by_kernel.status, plain.status)
    program = jax.jit(lambda: play(True)).trace()
    for platform, call in (("cuda", "mosaic_gpu_v2"), ("tpu", "tpu_custom_call")):
        text = program.lower(lowering_platforms=(platform,)).as_text()
        assert [word for word in re.findall(r"custom_call @([\w$.]+)", text) if "hard" not in word] == [call]


@pytest.mark.parametrize("name", REASONS)
def test_what_no_kernel_can_do_has_a_reason(name: str) -> None:
    words = fused.describe(ALGORITHMS[name](), model("features"))
    assert words.startswith("by XLA, because ") and REASONS[name] in words


def test_every_algorithm_is_taken_or_has_a_reason() -> None:
    for name in ALGORITHMS:
        if name in REASONS or name.startswith("refitted"):
            continue
        assert planned(name).division.made, name
    assert fused.describe(TAKEN["rpol"](), model("features")).startswith(
        "one kernel a round (interpreted on a CPU, to check results) moves"
    )


def test_grids_that_kernels_do_not_take() -> None:
    one_point = jaxbandit.surrogate(domains.points([[0.0], [1.0], [2.0]]), kernels.Matern52(), noise_variance=0.1, outputs=3)
    assert "as many as another axis" in fused.describe(jaxbandit.Rpol(), one_point)
    with mock.patch.object(choice, "MOST_POINTS", 10):
        assert "20 points, and a kernel holds 10" in fused.describe(jaxbandit.Rpol(), model("features"))


def test_kernels_are_refused_by_name() -> None:
    with pytest.raises(jaxbandit.InvalidArgument, match="fused: no kernel can make the choices of Oracle, because its choice does not"):
        jaxbandit.simulate(problem(), jaxbandit.Oracle(index=1), model("features"), horizon=2, key=jax.random.key(0), fused=True)


def test_error_function_and_its_complement() -> None:
    x = np.linspace(-6, 9, 3001).astype(np.float32)
    exact = np.array([math.erfc(float(value)) for value in x])
    assert np.max(np.abs(np.asarray(jax.jit(erfc)(x)) - exact) / exact) < 1e-5
    exact = np.array([math.erf(float(value)) for value in x])
    assert np.max(np.abs(np.asarray(jax.jit(erf)(x)) - exact) / np.maximum(np.abs(exact), 1e-30)) < 1e-6
    assert np.all(np.isnan(jax.jit(lambda x: (erfc(x), erf(x)))(np.float32(np.nan))))


def test_roots_and_logarithms_of_gpus() -> None:
    """Mosaic GPU of JAX 0.10 has neither square roots nor log1p."""
    on_gpu = rows.Rows(size=8, shape=(1, 8), axis=None, places=jnp.arange(8.0)[None])
    x = np.asarray([[0.0, 1e-30, 1e-9, 0.3, 1.0, 2.0, 1e30, np.nan]], np.float32)
    root = jax.jit(on_gpu.sqrt)
    with mock.patch.object(jax, "__version_info__", (0, 10, 2)):
        np.testing.assert_allclose(root(x), np.sqrt(np.asarray(x, np.float64)), rtol=2e-7)
        assert np.isnan(np.asarray(root(-x))[0, 3])
    np.testing.assert_allclose(on_gpu.log1p(jnp.asarray(x)), np.log1p(np.asarray(x, np.float64)), rtol=3e-7)


def test_rows_that_are_longer_than_the_grid_repeat_its_last_point() -> None:
    """A point that is left out by its number is left out at every place."""

    def best_but(score: Any, left_out: Any) -> tuple[Any, Any]:
        points = jnp.arange(3, dtype=jnp.int32)
        allowed = jnp.where(points == left_out, -jnp.inf, score)
        return jnp.argmax(allowed), jnp.sum(score)

    program, _ = equations.traced(best_but, (jnp.zeros(3), jnp.int32(0)))
    own = rows.Rows(size=3, shape=(1, 5), axis=None, places=jnp.arange(5.0)[None])
    for left_out, expected in ((2, 1), (1, 2), (0, 2)):
        cells = [rounds.boxed([jnp.asarray([[1.0, 2.0, 4.0, 4.0, 4.0]])], ()), rounds.boxed([jnp.int32(left_out)], ())]
        point, total = rounds.evaluated(program, cells, own)
        assert point[()] == expected and total[()] == 7


@jaxbandit.pytree
class Mine(Algorithm):
    """A user's algorithm, which learns twice of a round: of its point, and of the next one."""

    name = "mine"

    def select(self, arena: Arena, state: Any, t: Any, key: Any) -> Any:
        belief = arena.surrogate.predict(state.posterior)
        return Decision(index=pick(belief.mean[0] + 2 * belief.sd[0]), widths=jnp.zeros_like(belief.gain)), state

    def update(self, arena: Arena, state: Any, observation: Any, t: Any) -> Any:
        state = self.learn(arena, state, jaxbandit.replace(observation, index=jnp.minimum(observation.index + 1, arena.size - 1)))
        return self.learn(arena, state, observation)


@pytest.mark.full
def test_algorithms_of_users_are_taken() -> None:
    check(side_by_side(Mine(), "features"), 2e-5)
