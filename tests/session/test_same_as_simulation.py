"""A session that is told what a simulation observes, when it observes it, makes the choices of that simulation."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Anytime, Cbo, Config, InitialDesign, Refitted, Rpol, Se3, delays, domains, feedback, kernels, problems, simulate
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.engine.arguments import Delays
from jaxbandit.engine.cell import Cell
from jaxbandit.session.learner import Course
from jaxbandit.session.specification import UnknownDelay
from tests.support import conformance, panel
from tests.support.algorithms import ALGORITHMS, REPRESENTATIVES, TABLES

HORIZON, KEY = 12, jax.random.key(5)
CAPACITY = HORIZON  # as many rounds as values can be late
LATE = delays.Geometric(mean=1.5)
POLICIES: dict[str, Any] = {
    "wait": feedback.Wait(),
    "hallucinate": feedback.Hallucinate(),
    "censor": feedback.Censor(window=2, minimum=-1.0),
}
EVERY = [name for members in TABLES.values() for name, make in members.items() if not make().traits.sees_constraints]
GROUPS = {"four": REPRESENTATIVES} | {table: [name for name in members if name in EVERY] for table, members in TABLES.items()}
GROUPS["every"] = EVERY
# Sessions of every algorithm under one of the policies; simulations, with which they are compared, under all of them, for the golden file.
DEALT = {"four": ("censor",), "defaults": ("at-once",), "variants": ("wait",), "baselines": ("hallucinate",)}
# Values that are late teach the features of the posterior. Its rows give no joint draws, for which the product is there; of the others
# that has those of sessions, and one that asks for covariances.
THOMPSON = [name for name in EVERY if "thompson" in name]
AT_ONCE = {
    "rows": [name for name in EVERY if name not in THOMPSON],
    "product": [name for name in EVERY if name in (*THOMPSON, *GROUPS["defaults"], "safeopt")],
}


def options() -> dict[str, Any]:
    """The options of a simulation of one trial."""
    return {"trials": [0], "horizon": HORIZON, "key": KEY, "record": "indices"}


@functools.partial(jax.jit, static_argnames=("horizon", "stream"))
def noise_of(problem: Any, trial: int, horizon: int, stream: Stream = Stream.NOISE) -> jax.Array:
    """The noise of every round of a trial."""
    key, rounds = stream_key(trial_key(KEY, trial), stream), jnp.arange(1, horizon + 1, dtype=jnp.int32)
    return jax.vmap(lambda t: problem.draw(round_key(key, t)))(rounds)


@functools.cache
def observed() -> tuple[Any, Any]:
    """The noise of every round of trial 0, and the rounds at whose ends the values arrive, separately."""

    @functools.partial(jax.jit, static_argnames="joint")
    def due(joint: bool) -> jax.Array:
        rounds, key = jnp.arange(1, HORIZON + 1, dtype=jnp.int32), stream_key(trial_key(KEY, 0), Stream.DELAY)
        return Delays(model=LATE, policy=feedback.Wait(), capacity=1).draw(key, rounds, 3, joint=joint)[0]

    return np.asarray(noise_of(conformance.study()[0], 0, HORIZON)), [np.asarray(due(joint)) for joint in (False, True)]


def course_of(problem: Any, algorithm: Any, model: Any, horizon: int, *, policy: Any = None, trial: int = 0) -> Course:
    """The learner of a session with the random numbers of a trial, under delays of which it knows nothing."""
    late = None
    if policy is not None:
        late = Delays(model=UnknownDelay(), policy=policy, capacity=CAPACITY)
    cell = Cell.of(problem, [(algorithm, model, late)], InitialDesign(), horizon=horizon, room=horizon, block=1)
    return Course(lambda: jax.jit(Cell.setting)(cell, KEY, np.asarray([0, trial, 1], np.int32)))


def asked(course: Course) -> int:
    """The point of the next round, which begins."""
    chosen = course.choose()
    point = chosen.point
    course.asked(point, chosen.after)
    return point


def played_at_once(course: Course, problem: Any, noise: np.ndarray) -> list[int]:
    """The points of a course that is told the values of every round with this noise before the next one."""
    chosen: list[int] = []
    for t, own in enumerate(noise, start=1):
        chosen.append(asked(course))
        course.tell(t, dict(enumerate(np.asarray(problem.means)[:, chosen[-1]] + own)))
    return chosen


def session(algorithm: Any, policy: str) -> list[int]:
    """The points of a session that is told the simulation's noise, with the simulation's delays."""
    means, own = np.asarray(conformance.study()[0].means, np.float32), POLICIES.get(policy)
    model = conformance.surrogate(form="product" if own is None else "features")
    course = course_of(conformance.study()[0], algorithm, model, HORIZON, policy=own)
    noise, due = observed()
    due = due[algorithm.traits.joint_arrival] if own is not None else np.arange(1, HORIZON + 1)[:, None] + np.zeros((1, 3), int)
    chosen = []
    for t in range(1, HORIZON + 1):
        chosen.append(asked(course))
        for earlier in range(t, 0, -1):  # the latest first, as a user may
            values = means[:, chosen[earlier - 1]] + noise[earlier - 1]
            arrive = {j: values[j] for j in range(3) if due[earlier - 1, j] == t}
            course.tell(earlier, arrive)
    return chosen


@functools.cache
def at_once(form: str) -> dict[str, np.ndarray]:
    """The points of the algorithms that are played with a form of the posterior when values come at once."""
    algorithms = {name: ALGORITHMS[name]() for name in AT_ONCE[form]}
    runs = panel.play(conformance.study()[0], algorithms, conformance.surrogate(form=form), block=1, **options())
    return {name: run.indices[0] for name, run in runs.items()}


@functools.cache
def late(group: str, policies: tuple[str, ...]) -> dict[str, dict[str, np.ndarray]]:
    """The points of a group's algorithms by policy, from one program of all."""
    algorithms, own = {name: ALGORITHMS[name]() for name in GROUPS[group]}, tuple(POLICIES[name] for name in policies)
    model, delays = conformance.surrogate(form="features"), {"delay": LATE, "capacity": CAPACITY, "policies": own}
    runs = panel.play(conformance.study()[0], algorithms, model, **options(), **delays)
    return {policy: {name: run.indices[number, 0] for name, run in runs.items()} for number, policy in enumerate(policies)}


def simulated(group: str, policy: str) -> dict[str, np.ndarray]:
    """The points of the algorithms of a group."""
    if policy == "at-once":
        points = at_once("rows") | at_once("product")
    else:
        points = late("four", (policy,))[policy] if group == "four" else late("every", tuple(POLICIES))[policy]
    return {name: points[name] for name in GROUPS[group]}


@functools.cache
def members(group: str) -> dict[str, Any]:
    """The algorithms of a group, each in a panel of all, so that they share their programs."""
    algorithms = tuple(ALGORITHMS[name]() for name in GROUPS[group])
    return {name: panel.OneOf(algorithms=algorithms, which=float(number)) for number, name in enumerate(GROUPS[group])}


@pytest.mark.full(but=("four",))
@pytest.mark.parametrize(("group", "policy"), [(group, policy) for group, own in DEALT.items() for policy in own])
def test_every_algorithm_chooses_as_in_a_simulation(group: str, policy: str) -> None:
    expected = {name: points.tolist() for name, points in simulated(group, policy).items()}
    assert {name: session(algorithm, policy) for name, algorithm in members(group).items()} == expected
    assert len({tuple(points) for points in expected.values()}) > len(expected) // 2, "algorithms do differ"


TIED = {"rpol": [Rpol()], "others": [Config(), Se3(epoch=3, restart=True), Anytime(algorithm=Cbo(reward_clip=4.0))]}


@pytest.mark.full(but=("rpol",))
@pytest.mark.parametrize("group", TIED)
def test_points_that_tie_are_chosen_as_in_a_simulation(group: str) -> None:
    """On a grid most of whose points are far from all data, from no design on; the session compiles its rounds by themselves."""
    rounds, trials, algorithms, problem = 14, 3, TIED[group], problems.sine(20)
    model = jaxbandit.surrogate(problem.domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    block = trials * len(algorithms)
    runs = panel.play(problem, dict(enumerate(algorithms)), model, trials=trials, horizon=rounds, key=KEY, record="indices", block=block)
    for number, trial in itertools.product(runs, range(trials)):
        algorithm = panel.OneOf(algorithms=tuple(algorithms), which=float(number))
        course, noise = course_of(problem, algorithm, model, rounds, trial=trial), np.asarray(noise_of(problem, trial, rounds))
        assert played_at_once(course, problem, noise) == runs[number].indices[trial].tolist()


@pytest.mark.full
@pytest.mark.parametrize("policy", ["at-once", *POLICIES])
@pytest.mark.parametrize("table", TABLES)
def test_golden_choices_under_policies(table: str, policy: str, golden: Any) -> None:
    golden("choices").check_bits(f"{table} {policy}", simulated(table, policy))


@pytest.mark.full
def test_golden_choices_of_rows(golden: Any) -> None:
    golden("choices").check_bits("rows", at_once("rows"))


@pytest.mark.full
def test_a_fit_to_the_initial_design_is_that_of_a_simulation() -> None:
    """There is one fit, before round 1."""
    x, domain, initial = np.linspace(0, 1, 30), domains.grid([0.0], [1.0], 30), InitialDesign(random=8)
    problem = problems.from_tables(domain, np.sin(9 * x), np.cos(7 * x)[None], noise=problems.Gaussian(variance=0.05))
    algorithm = Refitted(algorithm=Rpol(), at_start=True, first=64, points=9, steps=4)
    kernel = kernels.SquaredExponential(length_scale=0.3)
    model = jaxbandit.ranged(domain, kernel, low=0.1, high=0.6, noise_variance=0.05, outputs=2)
    run = jax.tree.map(np.asarray, simulate(problem, algorithm, model, block=1, initial=initial, **options()))
    assert 0.11 < run.fitted_length_scales.item() < 0.29, "neither at an end of the range nor as it was"
    course = course_of(problem, algorithm, model, HORIZON)
    points = run.initial_indices[0].tolist()
    noise = np.asarray(noise_of(problem, 0, len(points), Stream.DESIGN))
    course.begin([(index, (), dict(enumerate(problem.means[:, index] + own))) for index, own in zip(points, noise, strict=True)])
    assert played_at_once(course, problem, np.asarray(noise_of(problem, 0, HORIZON))) == run.indices[0].tolist()
