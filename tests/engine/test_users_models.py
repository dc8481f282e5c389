"""Faults of users' models are refused before a run, or flagged."""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import delays, domains, estimators, kernels, metrics, penalties, problems, widths
from jaxbandit.algorithms.base import BeliefState, Decision
from jaxbandit.engine.cell import Cell
from jaxbandit.engine.trial import advance, begin

DOMAIN = domains.grid([0.0], [1.0], 8)
X = np.asarray(DOMAIN.points)[:, 0]
PROBLEM = problems.from_functions(DOMAIN, lambda x: x[0], [lambda x: x[0] - 0.5], noise_variance=1.0)
MODEL = jaxbandit.surrogate(DOMAIN, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.1, form="features")
HORIZON, TRIALS = 6, 8
KEY = jax.random.key(0)


def simulate(algorithm: Any = None, problem: Any = PROBLEM, **options: Any) -> jaxbandit.Trajectory:
    algorithm = jaxbandit.RandomSearch() if algorithm is None else algorithm
    return jaxbandit.simulate(problem, algorithm, MODEL, horizon=HORIZON, trials=TRIALS, key=KEY, block=1, **options)


# Means of an instance.


@jaxbandit.pytree
class Holes(problems.Family):
    """Family with a faulty mean at a point that nobody visits."""

    base: problems.Problem
    domain: domains.Domain = DOMAIN
    noise: problems.Noise = problems.Gaussian(variance=0.01)
    value: Any = float("nan")
    row: Any = 0
    name: str = jaxbandit.static(default="holes")

    def sample(self, key: jax.Array) -> problems.Problem:
        means = jnp.asarray(self.base.means)
        row = jnp.asarray(self.row, jnp.int32)
        hole = jnp.where(jax.random.uniform(key) < 0.5, jnp.asarray(self.value, means.dtype), means[row, 0])
        return jaxbandit.replace(self.base, means=means.at[row, 0].set(hole), noise=self.noise)


@jax.jit
def means_of(family: Holes) -> jax.Array:
    """Return all trials' means ``[trials, 2, M]`` from their keys."""

    def means(trial: jax.Array) -> Any:
        return family.sample(jaxbandit.keys.stream_key(jaxbandit.keys.trial_key(KEY, trial), jaxbandit.keys.Stream.PROBLEM)).means

    return jax.vmap(means)(jnp.arange(TRIALS, dtype=jnp.int32))


@pytest.mark.full
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_hole_that_no_trial_visits_flags_the_trial_and_is_left_out_of_means(value: float, row: int) -> None:
    family = Holes(base=PROBLEM, value=value, row=row)
    run = jax.tree.map(np.asarray, simulate(jaxbandit.Oracle(index=3), family))
    assert np.all(run.indices == 3) and np.all(np.isfinite(run.values))
    means = np.asarray(means_of(family))
    whole = np.all(np.isfinite(means), axis=(1, 2))
    assert 0 < whole.sum() < TRIALS, "some instances have a hole and some have none"
    np.testing.assert_array_equal(metrics.healthy(run.status), whole)
    np.testing.assert_array_equal(run.status & jaxbandit.Status.NONFINITE_TRUTH != 0, ~whole)
    assert "NaN or infinite at some point" in jaxbandit.explain(int(run.status[~whole][0]))

    for n in np.flatnonzero(whole):
        assert np.all(np.isfinite(metrics.curves(jaxbandit.replace(PROBLEM, means=means[n]), run.indices[n]).regret))


@jaxbandit.pytree
class Odd(problems.Family):
    """A family whose ``sample`` returns what ``make`` says."""

    domain: domains.Domain = DOMAIN
    noise: problems.Noise = problems.Noiseless()
    make: Any = jaxbandit.static(default=None)
    name: str = jaxbandit.static(default="odd")

    def sample(self, key: jax.Array) -> Any:
        return self.make()


# Delays.


@jaxbandit.pytree
class Late(delays.Delay):
    """User's delay model of a function of a uniform number."""

    drawn: Any = jaxbandit.static()
    longest: Any = jaxbandit.static(default=3)

    @property
    def mean(self) -> float:
        return 1.0

    def draw(self, key: jax.Array, outputs: int) -> jax.Array:
        return self.drawn(jax.random.uniform(key, (outputs,)))

    def quantile(self, q: float) -> int:
        return self.longest


def seldom_negative(uniform: jax.Array) -> jax.Array:
    return jnp.where(uniform < 0.04, -5, 1).astype(jnp.int32)


@pytest.mark.full
@pytest.mark.parametrize("shown", [Late(drawn=seldom_negative), delays.Lossy(delay=Late(drawn=seldom_negative), never=0.0)])
def test_a_negative_delay_flags_its_trial(shown: Any) -> None:
    run = jax.tree.map(np.asarray, simulate(delay=shown))
    rounds = np.arange(1, HORIZON + 1)[:, None]
    early = np.any(run.arrivals < rounds[None], axis=2)  # [trials, T]
    assert 0 < early.any(axis=1).sum() < TRIALS
    np.testing.assert_array_equal(run.status & jaxbandit.Status.NEGATIVE_DELAY != 0, early.any(axis=1))
    np.testing.assert_array_equal(run.failed_round, np.where(early.any(axis=1), early.argmax(axis=1) + 1, 0))
    assert not np.any(metrics.healthy(run.status) & early.any(axis=1))


# Algorithms.


@jaxbandit.pytree
class Own(jaxbandit.Algorithm):
    """User's algorithm whose point and widths ``choose`` returns."""

    name = "own"
    choose: Any = jaxbandit.static()
    step: Any = jaxbandit.static(default=lambda state: state)

    def select(self, arena: Any, state: Any, t: jax.Array, key: jax.Array) -> Any:
        index, width = self.choose(t)
        return jaxbandit.algorithms.Decision(index=index, widths=jnp.full((2,), width, jnp.float32)), state

    def update(self, arena: Any, state: Any, observation: Any, t: jax.Array) -> Any:
        return self.step(state)


@jaxbandit.pytree
class Told(Own):
    """Choose by tables ``[T]`` of points and widths."""

    choose: Any = jaxbandit.static(default=None)
    points: Any = (2,) * HORIZON
    sizes: Any = (1.0,) * HORIZON

    def select(self, arena: Any, state: Any, t: jax.Array, key: jax.Array) -> Any:
        points, sizes = jnp.asarray(self.points, jnp.int32), jnp.asarray(self.sizes, jnp.float32)
        return Decision(index=points[t - 1], widths=jnp.full((2,), sizes[t - 1])), state


@pytest.mark.full(but=("2",))
@pytest.mark.parametrize(
    ("own", "flag", "first"),
    [
        (Told(points=np.full(HORIZON, -1)), jaxbandit.Status.NO_SUCH_POINT, 1),
        (Told(points=np.array([2, 2, 2, 99, 2, 2])), jaxbandit.Status.NO_SUCH_POINT, 4),
        (Told(points=np.full(HORIZON, DOMAIN.size)), jaxbandit.Status.NONFINITE_SCORE, 1),
        (Told(sizes=np.full(HORIZON, -1.0)), jaxbandit.Status.NEGATIVE_WIDTH, 1),
        (Told(sizes=np.array([1.0, 1.0, np.nan, 1.0, 1.0, 1.0])), jaxbandit.Status.NEGATIVE_WIDTH, 3),
        (Own(choose=lambda t: (3, 0.0)), jaxbandit.Status.OK, 0),
    ],
)
@pytest.mark.parametrize("wrap", [lambda own: own, lambda own: jaxbandit.Anytime(algorithm=own)], ids=["alone", "anytime"])
def test_a_choice_that_is_none_flags_the_trial(own: Own, flag: jaxbandit.Status, first: int, wrap: Callable[[Any], Any]) -> None:
    own = wrap(own)
    if first > 1 and isinstance(own, jaxbandit.Anytime):
        # The stretches count rounds from 1 again.
        return
    run = jax.tree.map(np.asarray, simulate(own))
    assert np.all(run.status == int(flag)) and np.all(run.failed_round == first)
    assert np.all((run.indices >= 0) & (run.indices < DOMAIN.size))
    assert np.all(metrics.healthy(run.status)) == (flag == jaxbandit.Status.OK)


def test_a_width_that_becomes_negative_flags_the_trial() -> None:
    # The width is 0 in round 3.
    falling = widths.Custom(function=lambda t, gain: 3 - t.astype(gain.dtype) + 0 * gain)
    run = simulate(jaxbandit.Rpol(estimator=estimators.Bounds(reward_width=falling)))
    assert np.all(np.asarray(run.status) & jaxbandit.Status.NEGATIVE_WIDTH != 0) and np.all(np.asarray(run.failed_round) == 4)


@jaxbandit.pytree
class Remembers(jaxbandit.Algorithm):
    """Algorithm with a best value, first -inf, and a given number."""

    step: Any = jaxbandit.static()

    def init(self, arena: Any) -> Any:
        return {"posterior": arena.surrogate.init(), "best": -jnp.inf, "own": jnp.float32(0)}

    def posterior(self, state: Any) -> Any:
        return state["posterior"]

    def select(self, arena: Any, state: Any, t: jax.Array, key: jax.Array) -> Any:
        return Decision(index=jnp.argmax(jnp.full(arena.size, state["own"])).astype(jnp.int32), widths=jnp.ones(2)), state

    def learn(self, arena: Any, state: Any, observation: Any) -> Any:
        return state

    def update(self, arena: Any, state: Any, observation: Any, t: jax.Array) -> Any:
        return state | {"own": jnp.asarray(self.step(t), jnp.float32)}


STEPS = {"late": (lambda t: jnp.where(t == 4, jnp.nan, 1), 4), "early": (lambda t: 1 / (t - 2), 2), "never": (lambda t: 0 * t, 0)}


@pytest.mark.parametrize(("step", "first"), STEPS.values(), ids=STEPS)
def test_a_state_that_is_not_finite_flags_the_trial(step: Any, first: int) -> None:
    run = simulate(Remembers(step=step))
    assert np.all(np.asarray(run.status) == (int(jaxbandit.Status.NONFINITE_STATE) if first else 0)) and np.all(
        np.asarray(run.failed_round) == first
    )


# Kernels and facts of learners.


@jaxbandit.pytree
class Shown(kernels.Kernel):
    """A user's kernel of the distance between points."""

    of: Any = jaxbandit.static()

    def __call__(self, x: Any, y: Any) -> Any:
        return self.of(jnp.abs(jnp.asarray(x)[:, None, 0] - jnp.asarray(y)[None, :, 0]))


@jaxbandit.pytree
class Steep(kernels.Matern52):
    """A user's kernel that is made of one of the library's."""

    def __call__(self, x: Any, y: Any) -> Any:
        return 2 * jnp.sqrt(super().__call__(x, y)) - 1


def test_a_key_of_the_older_form_gives_the_same_run() -> None:
    old = jaxbandit.simulate(PROBLEM, jaxbandit.RandomSearch(), MODEL, horizon=HORIZON, trials=TRIALS, key=jax.random.PRNGKey(0))
    np.testing.assert_array_equal(old.indices, simulate().indices)


# Faults that only a trace shows.


@jaxbandit.pytree
class Drawing(problems.Noise):
    """Noise whose steps are functions of a test."""

    drawn: Any = jaxbandit.static(default=None)
    applied: Any = jaxbandit.static(default=None)

    def draw(self, key: jax.Array, outputs: int, dtype: Any) -> Any:
        return jnp.zeros((outputs,), dtype) if self.drawn is None else self.drawn(outputs)

    def apply(self, drawn: Any, index: jax.Array) -> Any:
        return drawn if self.applied is None else self.applied(drawn)


@jaxbandit.pytree
class Psi(penalties.Penalty):
    """A penalty function that is one of a test."""

    function: Any = jaxbandit.static(default=None)

    def __call__(self, x: jax.Array) -> Any:
        return self.function(x)


@jaxbandit.pytree
class Hooked(jaxbandit.Algorithm):
    """An algorithm whose hooks are functions of a test."""

    started: Any = jaxbandit.static(default=None)
    shown: Any = jaxbandit.static(default=None)
    decided: Any = jaxbandit.static(default=None)

    def init(self, arena: Any) -> Any:
        return BeliefState(posterior=arena.surrogate.init()) if self.started is None else self.started()

    def select(self, arena: Any, state: Any, t: jax.Array, key: jax.Array) -> Any:
        return Decision(index=jnp.int32(1), **({"widths": jnp.ones(2)} | ({} if self.decided is None else self.decided))), state

    def diagnose(self, state: Any) -> Any:
        return {} if self.shown is None else self.shown()


@jaxbandit.pytree
class Waiting(delays.Delay):
    """Delays that are a function of a test."""

    given: Any = jaxbandit.static(default=None)

    @property
    def mean(self) -> float:
        return 1.0

    def draw(self, key: jax.Array, outputs: int) -> Any:
        return self.given(outputs)

    def quantile(self, q: float) -> int:
        return 2


def noisy(noise: problems.Noise) -> problems.Problem:
    return jaxbandit.replace(PROBLEM, noise=noise)


# The initial design.


@jaxbandit.pytree
class Digits:
    posterior: Any
    multipliers: Any


@jaxbandit.pytree
class Remembering(jaxbandit.Algorithm):
    """Write learnt points in their order as digits of a multiplier."""

    name = "remembering"

    def init(self, arena: Any) -> Digits:
        return Digits(posterior=arena.surrogate.init(), multipliers=jnp.zeros(1))

    def learn(self, arena: Any, state: Digits, observation: Any) -> Digits:
        return jaxbandit.replace(state, multipliers=10 * state.multipliers + observation.index.astype(float))

    def select(self, arena: Any, state: Digits, t: Any, key: Any) -> Any:
        return Decision(index=jnp.int32(0), widths=jnp.zeros(2)), state

    def diagnose(self, state: Digits) -> Any:
        return {"multipliers": state.multipliers}


def test_an_initial_design_is_learnt_in_its_order() -> None:
    """A state may depend on the order, and a posterior does not."""
    run = simulate(Remembering(), initial=jaxbandit.InitialDesign(indices=np.array([4, 1, 7])))
    np.testing.assert_array_equal(run.multipliers[:, 0, 0], np.full(TRIALS, 417))


def test_a_copy_of_an_algorithm_compiles_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on the module that a class comes from."""
    spec = importlib.util.spec_from_file_location("users_rpol", inspect.getfile(jaxbandit.Rpol))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "users_rpol", module)
    spec.loader.exec_module(module)

    def program(algorithm: jaxbandit.Algorithm) -> str:
        initial = jaxbandit.InitialDesign()
        cell = Cell.of(PROBLEM, [(algorithm, MODEL, None)], initial, horizon=HORIZON, room=HORIZON, block=1)

        def trial(key: jax.Array) -> Any:
            setting = cell.setting(key, np.asarray([0, 0, 1], np.int32))
            return advance(setting, begin(setting, cell.initial)[0], 1, HORIZON, record="all")

        return str(jax.make_jaxpr(trial)(KEY))

    assert module.Rpol is not jaxbandit.Rpol and program(module.Rpol()) == program(jaxbandit.Rpol())


def test_arrays_that_an_algorithm_shows_under_names_of_its_own_are_recorded_at_the_end() -> None:
    problem = jaxbandit.problems.sine(4)
    model = jaxbandit.surrogate(problem.domain, jaxbandit.kernels.Matern52(), noise_variance=0.05)
    staged, options = Hooked(shown=lambda: {"stages": jnp.arange(3)}), {"horizon": 2, "trials": 2, "key": KEY}
    assert jaxbandit.simulate(problem, staged, model, record="all", **options).shown["stages"].tolist() == [[0, 1, 2]] * 2
    assert jaxbandit.simulate(problem, staged, model, record="indices", **options).shown is None
