"""Sessions choose as simulations do, on many points and with fits."""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import delays, domains, feedback, kernels, problems
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.engine.arguments import Delays
from jaxbandit.engine.cell import Cell
from jaxbandit.rules.estimators import Bounds
from jaxbandit.session import Axis, Model, Session
from jaxbandit.session.learner import Course, PendingRound
from jaxbandit.session.specification import Specification, UnknownDelay
from jaxbandit.surrogates.rows import RowCache
from tests.support import conformance, panel
from tests.support.algorithms import ALGORITHMS, REPRESENTATIVES, TABLES
from tests.support.sessions import create, measured

HORIZON, KEY = 12, jax.random.key(5)
# Values can be late by any number of rounds.
CAPACITY = HORIZON
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
    """Return noise and rounds of arrival of trial 0."""

    @functools.partial(jax.jit, static_argnames="joint")
    def due(joint: bool) -> jax.Array:
        rounds, key = jnp.arange(1, HORIZON + 1, dtype=jnp.int32), stream_key(trial_key(KEY, 0), Stream.DELAY)
        return Delays(model=LATE, policy=feedback.Wait(), capacity=1).draw(key, rounds, 3, joint=joint)[0]

    return np.asarray(noise_of(conformance.study()[0], 0, HORIZON)), [np.asarray(due(joint)) for joint in (False, True)]


def course_of(problem: Any, algorithm: Any, model: Any, horizon: int, *, policy: Any = None, trial: int = 0) -> Course:
    """Return a session's learner with the random numbers of a trial."""
    late = None
    if policy is not None:
        late = Delays(model=UnknownDelay(), policy=policy, capacity=CAPACITY)
    cell = Cell.of(problem, [(algorithm, model, late)], jaxbandit.InitialDesign(), horizon=horizon, room=horizon, block=1)
    return Course(lambda: jax.jit(Cell.setting)(cell, KEY, np.asarray([0, trial, 1], np.int32)))


def asked(course: Course) -> int:
    """Begin a round and return its point."""
    chosen = course.choose(PendingRound())
    point = chosen.point
    course.asked(PendingRound(point), chosen.after)
    return point


def played_at_once(course: Course, problem: Any, noise: np.ndarray) -> list[int]:
    """Return points of a learner that is told every value at once."""
    chosen: list[int] = []
    for t, own in enumerate(noise, start=1):
        chosen.append(asked(course))
        course.tell(t, dict(enumerate(np.asarray(problem.means)[:, chosen[-1]] + own)))
    return chosen


def session(algorithm: Any, policy: str) -> list[int]:
    """Return points of a session under the simulation's noise and delays."""
    means, own = np.asarray(conformance.study()[0].means, np.float32), POLICIES.get(policy)
    model = conformance.surrogate(form="product" if own is None else "features")
    course = course_of(conformance.study()[0], algorithm, model, HORIZON, policy=own)
    noise, due = observed()
    due = due[algorithm.traits.joint_arrival] if own is not None else np.arange(1, HORIZON + 1)[:, None] + np.zeros((1, 3), int)
    chosen = []
    for t in range(1, HORIZON + 1):
        chosen.append(asked(course))
        for earlier in range(t, 0, -1):
            values = means[:, chosen[earlier - 1]] + noise[earlier - 1]
            arrive = {j: values[j] for j in range(3) if due[earlier - 1, j] == t}
            course.tell(earlier, arrive)
    return chosen


@functools.cache
def at_once(form: str) -> dict[str, np.ndarray]:
    """Return points of the algorithms of one form, without delays."""
    algorithms = {name: ALGORITHMS[name]() for name in AT_ONCE[form]}
    runs = panel.play(conformance.study()[0], algorithms, conformance.surrogate(form=form), block=1, **options())
    return {name: run.indices[0] for name, run in runs.items()}


@functools.cache
def late(group: str, policies: tuple[str, ...]) -> dict[str, dict[str, np.ndarray]]:
    """Return points of a group by policy, from one program."""
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
    """Return a group's algorithms in a panel that shares its programs."""
    algorithms = tuple(ALGORITHMS[name]() for name in GROUPS[group])
    return {name: panel.OneOf(algorithms=algorithms, which=float(number)) for number, name in enumerate(GROUPS[group])}


@pytest.mark.full(but=("four",))
@pytest.mark.parametrize(("group", "policy"), [(group, policy) for group, own in DEALT.items() for policy in own])
def test_every_algorithm_chooses_as_in_a_simulation(group: str, policy: str) -> None:
    expected = {name: points.tolist() for name, points in simulated(group, policy).items()}
    assert {name: session(algorithm, policy) for name, algorithm in members(group).items()} == expected
    assert len({tuple(points) for points in expected.values()}) > len(expected) // 2, "algorithms do differ"


TIED = {
    "rpol": [jaxbandit.Rpol()],
    "others": [jaxbandit.Config(), jaxbandit.Se3(epoch=3, restart=True), jaxbandit.Anytime(algorithm=jaxbandit.Cbo(reward_clip=4.0))],
}


@pytest.mark.full(but=("rpol",))
@pytest.mark.parametrize("group", TIED)
def test_points_that_tie_are_chosen_as_in_a_simulation(group: str) -> None:
    """Most points of the grid are far from all data."""
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
    x, domain, initial = np.linspace(0, 1, 30), domains.grid([0.0], [1.0], 30), jaxbandit.InitialDesign(random=8)
    problem = problems.from_tables(domain, np.sin(9 * x), np.cos(7 * x)[None], noise=problems.Gaussian(variance=0.05))
    algorithm = jaxbandit.Refitted(algorithm=jaxbandit.Rpol(), at_start=True, first=64, points=9, steps=4)
    kernel = kernels.SquaredExponential(length_scale=0.3)
    model = jaxbandit.ranged(domain, kernel, low=0.1, high=0.6, noise_variance=0.05, outputs=2)
    run = jax.tree.map(np.asarray, jaxbandit.simulate(problem, algorithm, model, block=1, initial=initial, **options()))
    assert 0.11 < run.fitted_length_scales.item() < 0.29, "neither at an end of the range nor as it was"
    course = course_of(problem, algorithm, model, HORIZON)
    points = run.initial_indices[0].tolist()
    noise = np.asarray(noise_of(problem, 0, len(points), Stream.DESIGN))
    course.begin([(index, (), dict(enumerate(problem.means[:, index] + own))) for index, own in zip(points, noise, strict=True)])
    assert played_at_once(course, problem, np.asarray(noise_of(problem, 0, HORIZON))) == run.indices[0].tolist()


ROUNDS, FIRST, LEARNER_EVERY, WIDTH, SIZE = 12, 8, 4, 3.0, 15
AXES = {"a": (0.0, 2.0), "b": (-1.0, 3.0)}
BOX, GRID = domains.box(AXES), domains.grid([0.0, -1.0], [2.0, 3.0], SIZE)


def function(x: Any) -> Any:
    """Return values near 70 with one hill, a slope and two length-scales."""
    return 70 + 2.4 * jnp.exp(-3 * (x[0] - 1.3) ** 2 - 0.4 * (x[1] - 0.5) ** 2) + 0.4 * x[0] - 0.2 * x[1]


@pytest.mark.full(but=("grid-noisy",))
@pytest.mark.parametrize("noise", [1e-8, 0.16], ids=["quiet", "noisy"])
@pytest.mark.parametrize("kind", ["box", "grid"])
def test_a_session_believes_that_a_trial_chose_best(kind: str, noise: float) -> None:
    """No upper bound exceeds that of the choice by over 2%.

    The session's fit and the trial's search maximise one density differently, to 1e-3 nats, and features of a grid are approximate.
    """
    kernel, box = 1.0 * kernels.SquaredExponential(length_scale=[0.5, 0.5]), kind == "box"
    if box:
        problem = problems.on_box(BOX, function, [], noise_variance=noise)
        model, axes = (
            jaxbandit.surrogate(BOX, kernel, noise_variance=noise, outputs=1, precision="float64"),
            [Axis.between(name, *ends) for name, ends in AXES.items()],
        )
    else:
        values = np.asarray([function(x) for x in np.asarray(GRID.points)])
        problem = problems.from_tables(GRID, values, np.zeros((0, GRID.size)), noise=problems.Gaussian(variance=noise))
        axes = [Axis.between(name, *ends, SIZE) for name, ends in AXES.items()]
        model = jaxbandit.ranged(GRID, kernel, low=0.1, high=4.0, noise_variance=noise, outputs=1, tolerance=1e-6, precision="float64")
    algorithm, options = jaxbandit.Unconstrained(estimator=Bounds(reward_width=WIDTH)), {"horizon": ROUNDS, "key": 3}
    learner, initial = jaxbandit.Refitted(algorithm=algorithm, at_start=True, every=LEARNER_EVERY), jaxbandit.InitialDesign(random=FIRST)
    run = jaxbandit.simulate(problem, learner, model, initial=initial, trials=1, **options)
    chosen = np.concatenate([run.initial_indices[0], run.indices[0]])
    points = np.concatenate([run.initial_points[0], run.points[0]]) if box else np.asarray(GRID.points)[chosen]
    seen, worse = np.concatenate([run.initial_values[0], run.values[0]])[:, 0], []
    own, options = Model(kernel=kernel, noise_variance=noise), options | {"initial": jaxbandit.InitialDesign()}
    with Session.create(None, axes, algorithm, own, objective="maximise y", **options) as session:
        for number, (point, value) in enumerate(zip(points, seen, strict=True)):
            place = dict(zip(AXES, point.tolist(), strict=True))
            if number >= FIRST:
                if number % LEARNER_EVERY == 0:
                    session.fit()
                belief = session.belief(width=WIDTH)["upper"].values[0]
                if box:
                    mean, sd, _ = session._state.belief_at(tuple(BOX.to_unit(point).tolist()))
                    bound = float(mean[0, 0] + WIDTH * sd[0, 0])
                else:
                    bound = float(belief[chosen[number]])
                worse.append((float(np.max(belief)) - bound) / float(np.std(seen[:number])))
            session.observe(place, {"y": float(value)})
    assert max(worse) < 0.02, worse


ROUGH = Model(kernel=kernels.Matern52(length_scale=0.3), noise_variance=0.05)


def played(session: Session, count: int) -> list[int]:
    """Return the next points of a session that knows half the values."""
    tickets = []
    for _ in range(count):
        tickets.append(ticket := session.ask())
        if ticket.number % 2:
            session.tell(ticket, measured(ticket))
    return [ticket.index for ticket in tickets]


def form_of(session: Session) -> Any:
    return session._state.course.setting.arena.surrogate.model.forms[0]


def test_rows_whose_room_grows_choose_what_features_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path / "features", model=dataclasses.replace(ROUGH, form="features")) as session:
        wanted = played(session, 12)
    monkeypatch.setattr(Specification, "max_feature_points", 0)
    monkeypatch.setattr(Specification, "first_room", 4)
    with create(tmp_path / "rows", model=ROUGH) as session:
        assert session._state.room == 4 and isinstance(form_of(session), RowCache)
        assert played(session, 4) == wanted[:4] and session._state.room == 8
        leaves = jax.tree.leaves(session._state.course.latest())
    with Session.open(tmp_path / "rows") as again:
        for one, other in zip(jax.tree.leaves(again._state.course.latest()), leaves, strict=True):
            np.testing.assert_array_equal(one, other)
        assert played(again, 8) == wanted[4:] and again._state.room == 12, "no more than the horizon"


def test_a_model_that_is_drawn_from_keeps_its_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Specification, "max_feature_points", 0)
    drawing = jaxbandit.Rpol(estimator=jaxbandit.estimators.Thompson())
    with create(tmp_path, drawing, model=ROUGH) as session:
        session.tell(session.ask(), {"loss": 0.1})
        assert session._state.room == 12 and session.ask().number == 2
