"""Bad input raises ``InvalidArgument`` that names the argument, and nothing compiles before."""

import functools
import re

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, domains, feedback, kernels, metrics, problems, widths
from jaxbandit.engine import simulation
from jaxbandit.rules.estimators import Bounds
from tests.support import panel

SE = kernels.SquaredExponential


class CompiledError(Exception):
    """Return what the guard raises where the program would be compiled."""


@pytest.fixture(autouse=True)
def guard(monkeypatch):
    """Stop at the entry of the compiled program."""

    def stop(*args, **kwargs):
        raise CompiledError

    monkeypatch.setattr(simulation, "play_all", stop)


GRID = domains.grid([0.0, 0.0], [1.0, 1.0], 3)
REWARD, COST = np.arange(9.0), np.arange(9.0) - 4


@functools.cache
def problem(constraints=1):
    return problems.from_tables(GRID, REWARD, np.stack([COST] * constraints) if constraints else np.zeros((0, 9)))


@functools.cache
def model(outputs=2):
    return jaxbandit.surrogate(GRID, SE(), noise_variance=0.1, outputs=outputs, form="features")


@functools.cache
def rough(horizon):
    """Return a model of rows with room for ``horizon`` observations."""
    return jaxbandit.surrogate(domains.grid([0.0], [1.0], 80), kernels.Matern12(), noise_variance=0.1, form="rows", horizon=horizon)


def build(**changes):
    given = {"domain": GRID, "kernel": SE(), "noise_variance": 0.1} | changes
    return jaxbandit.surrogate(given.pop("domain"), given.pop("kernel"), **given)


def run(constraints=1, **changes):
    given = {"problem": problem(constraints), "algorithm": jaxbandit.Rpol(), "surrogate": model(1 + constraints), "horizon": 3} | changes
    given = {"key": jax.random.key(0)} | given
    return jaxbandit.simulate(given.pop("problem"), given.pop("algorithm"), given.pop("surrogate"), **given)


def on(domain, **changes):
    """A run whose problem lives on ``domain`` and whose surrogate lives elsewhere."""
    here = problems.from_tables(domain, np.zeros(domain.size), np.zeros(domain.size))
    return run(problem=here, **changes)


def with_width(width, **kwargs):
    return run(algorithm=jaxbandit.Rpol(estimator=Bounds(reward_width=width)), **kwargs)


def with_cost_width(width, constraints=1):
    return run(constraints, algorithm=jaxbandit.Rpol(estimator=Bounds(cost_width=width)))


# Cases of an id, a call, and the start of the message.


ASYMMETRIC, INDEFINITE = np.array([[1.0, 0.9], [0.0, 1.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])


def table(cases):
    return pytest.mark.parametrize(("call", "message"), [case[1:] for case in cases], ids=[case[0] for case in cases])


GOOD = [
    ("defaults", run),
    ("no constraints", lambda: run(0)),
    ("one clip per constraint", lambda: run(2, algorithm=jaxbandit.Cbo(cost_clip=np.array([1.0, 2.0]), step_divisor=np.array([1.0, 2.0])))),
    ("one penalty per constraint", lambda: run(2, algorithm=jaxbandit.Rpol(initial_penalty=np.array([1.0, 2.0])))),
    ("one width per constraint", lambda: with_cost_width(np.array([1.0, 2.0]), 2)),
    ("wrapped function", lambda: with_width(widths.Custom(function=lambda t, gain: gain + 1))),
    ("design of every point", lambda: run(initial=jaxbandit.InitialDesign(indices=np.arange(9)))),
    ("random design of every point", lambda: run(initial=jaxbandit.InitialDesign(random=9))),
    ("horizon at the cache's capacity", lambda: on(rough(5).domain, surrogate=rough(5), horizon=5)),
    ("trial numbers", lambda: run(trials=[7, 0])),
    (
        "sweep",
        lambda: run(
            algorithm=jaxbandit.sweep(jaxbandit.Rpol(), {"initial_penalty": [1.0, 2.0]}),
            surrogate=jaxbandit.sweep(model(), {"prior_mean": [[0.0, 0.0]] * 2}),
        ),
    ),
    ("noiseless", lambda: run(problem=jaxbandit.replace(problem(), noise=problems.Gaussian(variance=0.0)))),
]


@pytest.mark.parametrize("call", [case[1] for case in GOOD], ids=[case[0] for case in GOOD])
def test_good_input_reaches_the_compiled_program(call):
    """The checks let the limits of each range through."""
    with pytest.raises(CompiledError):
        call()


# Arguments that take numbers, by calls that give each of them something else.
NUMBERS = {
    "noise_variance": lambda given: build(noise_variance=given),
    "prior_mean": lambda given: build(prior_mean=[given, 0.0]),
    "low": lambda given: domains.grid(given, [1.0], 5),
    "high": lambda given: domains.grid([0.0], given, 5),
    "index": lambda given: model().condition(model().init(), given, [0.0, 0.0]),
    "Gram.matrix": lambda given: kernels.Gram(matrix=given),
    "SquaredExponential: x": lambda given: SE()(given, np.zeros((1, 1))),
    "tree": jaxbandit.canonicalise,
}
ITERATORS = {
    "generator": lambda: (number for number in (1.0, 2.0)),
    "map": lambda: map(float, (1, 2)),
    "zip": lambda: zip((1.0, 2.0), strict=True),
    "iterator": lambda: iter([1.0, 2.0]),
    "values": {"a": 1.0, "b": 2.0}.values,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ITERATORS)
@pytest.mark.parametrize("name", NUMBERS)
def test_iterators_are_no_numbers(name, kind):
    with pytest.raises(InvalidArgument, match=f"^{re.escape(name)}: must (be|hold) .*, got"):
        NUMBERS[name](ITERATORS[kind]())


TWO = np.array([1.0, 2.0])
# An algorithm's lists and arrays share a program.
LISTS = {
    "cost clip": (jaxbandit.Cbo(cost_clip=[1.0, 2.0], step_divisor=TWO), jaxbandit.Cbo(cost_clip=TWO, step_divisor=TWO), np.array([4, 5])),
    "step divisor": (
        jaxbandit.Cbo(cost_clip=TWO, step_divisor=[1.0, 2.0]),
        jaxbandit.Cbo(cost_clip=TWO, step_divisor=TWO),
        np.array([4, 5]),
    ),
    "penalty": (jaxbandit.Rpol(initial_penalty=[1.0, 2.0]), jaxbandit.Rpol(initial_penalty=TWO), np.array([4, 5])),
    "design": (jaxbandit.Rpol(initial_penalty=TWO), jaxbandit.Rpol(initial_penalty=TWO), [4, 5]),
}


@pytest.mark.full
@pytest.mark.parametrize("name", LISTS)
def test_a_list_serves_as_well_as_an_array_or_is_refused(name, monkeypatch):
    """Check that what passes validation does not fail inside the trace."""
    monkeypatch.undo()
    algorithm, twin, design = LISTS[name]
    wanted = run(2, algorithm=twin, initial=jaxbandit.InitialDesign(indices=np.asarray(design)))
    try:
        result = run(2, algorithm=algorithm, initial=jaxbandit.InitialDesign(indices=design))
    except InvalidArgument:
        return
    np.testing.assert_array_equal(result.indices, wanted.indices)


@pytest.mark.full
def test_problems_without_constraints_run(monkeypatch):
    monkeypatch.undo()
    algorithms = {algorithm.name: algorithm for algorithm in (jaxbandit.Rpol(), jaxbandit.Cbo(), jaxbandit.Config(), jaxbandit.Se2())}
    for name, result in panel.play(problem(0), algorithms, model(1), horizon=3, trials=1, key=jax.random.key(0)).items():
        assert result.indices.shape == (1, 3) and result.multipliers.shape == (1, 4, 0), name
        assert np.all(metrics.healthy(result.status)), name


LATE = {"delay": delays.Constant(rounds=2)}


@pytest.mark.parametrize("options", [LATE, LATE | {"feedback": feedback.Hallucinate()}, {}])
def test_a_censored_width_is_for_censored_feedback(options, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(InvalidArgument, match=r"widths\.Censored"):
        run(algorithm=jaxbandit.Rpol(estimator=Bounds(reward_width=widths.Censored())), **options)
