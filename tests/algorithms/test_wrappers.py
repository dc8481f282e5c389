"""Algorithms that wrap others: stretches of Anytime and fits of Refitted."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import domains, feedback, kernels, penalties, problems
from jaxbandit.algorithms import Arena, Decision, Observation, Shown, Traits
from jaxbandit.algorithms.base import BeliefState
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from tests.oracles import gaussian_process as gp
from tests.support import panel

KEY, SIZE, NOISE, LENGTH_SCALE = jax.random.key(4), 24, 0.05, 0.3
# Costs of 2 to 4 reach it at the end of a second epoch.
CAP = 7.5


@functools.cache
def problem(shift: float = 0.0) -> problems.Problem:
    """Return a wave with constraints within 1 of ``shift``."""
    x = np.sort(np.random.default_rng(6).random(SIZE))
    costs = np.stack([np.cos(5 * x + j) for j in range(2)]) + shift
    noise = problems.Gaussian(variance=np.array([NOISE, 0.0, 0.0]))
    return problems.from_tables(domains.product([x]), np.sin(7 * x), costs, noise=noise)


def surrogate() -> jb.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    return jb.surrogate(problem().domain, kernel, noise_variance=NOISE, outputs=3, form="features")


def simulate(algorithm: Any, of: Any = None, **options: Any) -> Any:
    """A run of one trial in float64."""
    with jax.enable_x64(True):
        run = jb.simulate(problem() if of is None else of, algorithm, surrogate(), key=KEY, block=1, **options)
        return jax.tree.map(lambda x: np.asarray(x)[0], run)


def beside(algorithms: dict[str, jb.Algorithm], **options: Any) -> dict[str, Any]:
    """The runs of several algorithms as :func:`simulate` gives them, from one program."""
    with jax.enable_x64(True):
        runs = panel.play(problem(), algorithms, surrogate(), trials=1, key=KEY, **options)
        return {name: jax.tree.map(lambda x: x[0], run) for name, run in runs.items()}


def anytime(algorithm: jb.Algorithm, depth: int, **options: Any) -> jb.Algorithm:
    return algorithm if depth == 0 else anytime(jb.Anytime(algorithm=algorithm, **options), depth - 1, **options)


@jb.pytree
class Keeping(jb.Unconstrained):
    """Algorithm with beliefs of a model of its own."""

    def init(self, arena: Any) -> Any:
        return BeliefState(posterior=arena.surrogate.model.init())


# Records of wrapped algorithms.

HORIZON = 14
SE2 = jb.Se2(psi=penalties.Exponential(c=0.5), epoch=2, penalty_cap=CAP)
SHOWN: dict[str, tuple[jb.Algorithm, float, set[str]]] = {
    "primal-dual": (jb.PrimalDual(initial_multiplier=0.7, step=0.5), 0.0, {"multipliers"}),
    "bpe": (jb.Bpe(width=0.4), 0.0, {"alive"}),
    "admmbo": (jb.Admmbo(reward_budget=(1, 1), cost_budget=(1, 1), outer_iterations=1), 0.0, {"flags", "evaluations"}),
    "se2": (SE2, 3.0, {"multipliers", "flags"}),
}


def place(t: int, depth: int) -> tuple[int, int]:
    """Return length of round ``t``'s innermost stretch, and its number there."""
    for _ in range(depth):
        length = 1 << (t.bit_length() - 1)
        t = t - length + 1
    return length, t


def test_where_stretches_begin() -> None:
    assert [place(t, 1) for t in range(1, 9)] == [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 3), (4, 4), (8, 1)]
    assert [place(t, 2) for t in range(4, 9)] == [(1, 1), (2, 1), (2, 2), (4, 1), (1, 1)]


@functools.partial(jax.jit, static_argnames="keep_data")
def fresh(algorithm: Any, model: Any, horizon: Any, before: Any, *, keep_data: bool) -> Any:
    state = algorithm.init(Arena(surrogate=model, horizon=horizon))
    data = [name for name in ("posterior", "visited") if keep_data and hasattr(state, name)]
    return jb.replace(state, **{name: getattr(before, name) for name in data})


@jax.jit
def play(algorithm: Any, model: Any, horizon: Any, state: Any, t: Any, index: Any, values: Any) -> tuple[Any, Any]:
    arena = Arena(surrogate=model, horizon=horizon)
    decision, state = algorithm.select(arena, state, t, jax.random.key(0))
    observation = Observation(index=index, values=values, present=decision.outputs)
    return decision.index, algorithm.update(arena, state, observation, t)


def replay(algorithm: Any, run: Any, depth: int, shown: set[str], *, keep_data: bool) -> dict[str, Any]:
    """Run the wrapped algorithm by itself over each innermost stretch."""
    found: dict[str, Any] = {"multipliers": [], "flags": 0, "evaluations": 0}
    with jax.enable_x64(True):
        algorithm, model = jb.canonicalise((algorithm, jb.replace(surrogate(), kernels=())))
        model = model.separate() if algorithm.traits.decoupled else model
        state: Any = None
        for t in range(1, len(run.indices) + 2):
            length, local = place(t, depth)
            if local == 1:
                if "evaluations" in shown and state is not None:
                    found["evaluations"] += int(state.evaluations)
                state = fresh(algorithm, model, jnp.int32(length), state, keep_data=keep_data and state is not None)
            if "multipliers" in shown:
                found["multipliers"].append(np.asarray(state.multipliers))
            if t > len(run.indices):
                break
            index, values = jnp.int32(run.indices[t - 1]), jnp.asarray(run.values[t - 1])
            chosen, state = play(algorithm, model, jnp.int32(length), state, jnp.int32(local), index, values)
            assert int(chosen) == int(index), f"round {t}"
            found["flags"] |= int(state.flags) if "flags" in shown else 0
        found["candidates"] = np.asarray(state.candidates) if "alive" in shown else None
        found["evaluations"] = found["evaluations"] + int(state.evaluations) if "evaluations" in shown else None
    return found


# A wrapper shows the diagnostics of the algorithm inside. The next test has SE2 in one wrapper.
@pytest.mark.full(but=("bpe",))
@pytest.mark.parametrize(
    ("name", "depth", "keep_data"),
    [("primal-dual", 2, False), ("bpe", 1, False), ("bpe", 2, False), ("admmbo", 2, False), ("admmbo", 1, True), ("se2", 2, False)],
)
def test_what_is_recorded_is_what_the_wrapped_algorithm_shows(name: str, depth: int, keep_data: bool) -> None:
    algorithm, shift, shown = SHOWN[name]
    run = simulate(anytime(algorithm, depth, keep_data=keep_data), problem(shift), horizon=HORIZON)
    expected = replay(algorithm, run, depth, shown, keep_data=keep_data)
    if "multipliers" in shown:
        np.testing.assert_allclose(run.multipliers, expected["multipliers"], rtol=1e-9)
        assert len(np.unique(run.multipliers)) > 2, "they move"
    else:
        np.testing.assert_array_equal(run.multipliers, np.zeros((HORIZON + 1, 2)))
    if "alive" in shown:
        np.testing.assert_array_equal(run.candidates, expected["candidates"])
        assert run.candidate_count == expected["candidates"].sum()
        assert 0 < run.candidate_count < SIZE or depth == 2, "some are struck out, unless stretches are short"
    else:
        assert run.candidates is None and run.candidate_count is None and run.optimum_kept is None
    assert run.evaluations == expected["evaluations"]
    own = int(jb.Status.PENALTY_CAPPED | jb.Status.STOPPED)
    assert run.status & own == expected["flags"]
    assert expected["flags"] == {"se2": int(jb.Status.PENALTY_CAPPED), "admmbo": int(jb.Status.STOPPED)}.get(name, 0)
    if name == "admmbo":
        assert 3 < run.evaluations < HORIZON, "of all stretches, without the rounds after a stop"


@pytest.mark.full
def test_a_flag_of_the_last_round_of_a_stretch_is_recorded() -> None:
    """The second epoch ends with the stretch, and reaches the cap."""
    assert place(7, 1) == (4, 4) and place(8, 1) == (8, 1)
    run = simulate(anytime(SE2, 1), problem(3.0), horizon=7)
    assert run.status & int(jb.Status.PENALTY_CAPPED) != 0 and np.all(run.multipliers < CAP)
    expected = replay(SE2, run, 1, {"multipliers", "flags"}, keep_data=False)
    np.testing.assert_allclose(run.multipliers, expected["multipliers"], rtol=1e-9)
    np.testing.assert_array_equal(run.multipliers[-1], np.ones(2))


# Data that are kept.


DESIGN = np.array([3, 20])


def gains_of(points: np.ndarray) -> np.ndarray:
    gram = gp.squared_exponential(problem().domain.points, problem().domain.points, LENGTH_SCALE)
    return np.array([gp.information_gain(gram, points, NOISE)])


@pytest.mark.full
def test_kept_data_are_all_that_expected_improvement_goes_by() -> None:
    """The algorithm does not use the round or the horizon."""
    cei = jb.Cei(incumbent="observed")
    algorithms = {"alone": cei, "kept": anytime(cei, 2, keep_data=True), "afresh": anytime(cei, 2)}
    runs = beside(algorithms, horizon=13, initial=jb.InitialDesign(indices=DESIGN))
    alone, kept, afresh = (runs[name] for name in algorithms)
    np.testing.assert_array_equal(kept.indices, alone.indices)
    np.testing.assert_allclose(kept.information_gain, gains_of(np.concatenate([DESIGN, kept.indices])), rtol=1e-9)
    assert not np.array_equal(afresh.indices, alone.indices), "the data matter"
    # The innermost stretch of round 14 begins there.
    begun = 15 - place(14, 2)[1]
    assert begun == 11
    np.testing.assert_allclose(afresh.information_gain, gains_of(afresh.indices[begun - 1 :]), rtol=1e-9)


@pytest.mark.full
def test_a_wrapper_keeps_the_data_that_the_wrapper_inside_has_left() -> None:
    """The inner wrapper started again after round 6."""
    assert [place(t, 2) for t in (6, 7, 8)] == [(2, 2), (4, 1), (1, 1)]
    inner = jb.Anytime(algorithm=jb.Cei())
    runs = beside({"kept": jb.Anytime(algorithm=inner, keep_data=True), "lost": jb.Anytime(algorithm=inner)}, horizon=7)
    np.testing.assert_allclose(runs["kept"].information_gain, gains_of(runs["kept"].indices[6:]), rtol=1e-9)
    np.testing.assert_array_equal(runs["lost"].information_gain, [0.0])


# Names that a user's own classes may have.


@jb.pytree
class Revealed:
    """A state whose posterior has another name."""

    seen: Any  # [m, M] the constraints of the round
    inner: Any


@jb.pytree
class Cheapest(jb.Algorithm):
    """Choose the point of least constraint in the round's sample."""

    name = "cheapest"
    traits = Traits(sees_constraints=True)
    algorithm: str = jb.static(default="the cheapest")
    flags: str = jb.static(default="none")

    def init(self, arena: Arena) -> Revealed:
        return Revealed(seen=jnp.zeros((arena.constraints, arena.size), arena.dtype), inner=arena.surrogate.init())

    def reveal(self, arena: Arena, state: Revealed, sample: jax.Array, t: jax.Array) -> Revealed:
        return jb.replace(state, seen=sample)

    def select(self, arena: Arena, state: Revealed, t: jax.Array, key: jax.Array) -> tuple[Decision, Revealed]:
        index = jnp.argmin(state.seen[0]).astype(jnp.int32)
        return Decision(index=index, widths=jnp.zeros((1 + arena.constraints,), arena.dtype)), state

    def learn(self, arena: Arena, state: Revealed, observation: Any) -> Revealed:
        return jb.replace(state, inner=arena.learn(state.inner, observation))

    def reset(self, arena: Arena, state: Revealed) -> Revealed:
        return jb.replace(self.init(arena), inner=state.inner)

    def posterior(self, state: Revealed) -> Any:
        return state.inner


@jax.jit
def samples_of(instance: Any, key: Any, rounds: Any) -> Any:
    return jax.vmap(lambda t: instance.constraint_sample(instance.draw(round_key(stream_key(trial_key(key, 0), Stream.NOISE), t))))(rounds)


@pytest.mark.full
@pytest.mark.parametrize("depth", [0, 2])
def test_a_field_called_algorithm_hides_no_sample_and_a_state_may_have_a_field_called_inner(depth: int) -> None:
    noisy = jb.replace(problem(), noise=problems.Gaussian(variance=np.array([NOISE, 1.0, 1.0])))
    shown = problems.full_information(noisy, noise="independent")
    horizon, design = 6, jb.InitialDesign(indices=DESIGN)
    run = simulate(anytime(Cheapest(), depth, keep_data=True), shown, horizon=horizon, initial=design)
    with jax.enable_x64(True):
        samples = np.asarray(samples_of(jb.canonicalise(shown), KEY, np.arange(1, horizon + 1, dtype=np.int32)))
    np.testing.assert_array_equal(run.indices, [sample[0].argmin() for sample in samples])
    np.testing.assert_allclose(run.values[:, 1], [sample[0].min() for sample in samples], rtol=1e-12)
    np.testing.assert_allclose(run.information_gain, gains_of(np.concatenate([DESIGN, run.indices])), rtol=1e-9)
    assert run.evaluations is None and run.candidates is None


@jb.pytree
class Misleading:
    """State whose field names mean something else in other algorithms."""

    posterior: Any
    inner: Any
    multipliers: Any
    alive: Any
    evaluations: Any
    flags: Any


@jb.pytree
class Alternating(jb.Algorithm):
    """Choose two points in turn, and show ``inner`` as multipliers."""

    name = "alternating"
    start: Any = 0.25

    def init(self, arena: Arena) -> Misleading:
        inner = jnp.full((arena.constraints,), self.start, arena.dtype)
        return Misleading(
            posterior=arena.surrogate.init(),
            inner=inner,
            multipliers=jnp.asarray(9.0, arena.dtype),
            alive=jnp.asarray(True),
            evaluations=jnp.asarray(0.5, arena.dtype),
            flags=jnp.int32(1),
        )

    def select(self, arena: Arena, state: Misleading, t: jax.Array, key: jax.Array) -> tuple[Decision, Misleading]:
        return Decision(index=t % 2, widths=jnp.ones((1 + arena.constraints,), arena.dtype)), state

    def update(self, arena: Arena, state: Misleading, observation: Any, t: jax.Array) -> Misleading:
        return jb.replace(self.learn(arena, state, observation), inner=state.inner + observation.total()[1:])

    def diagnose(self, state: Misleading) -> Shown:
        return {"multipliers": state.inner}


def test_only_what_is_shown_is_recorded() -> None:
    run = simulate(anytime(Alternating(), 2), horizon=9)
    sums = [np.full(2, 0.25)]
    for t, values in enumerate(run.values, start=1):
        restarted = place(t + 1, 2)[1] == 1
        sums.append(np.full(2, 0.25) if restarted else sums[-1] + values[1:])
    np.testing.assert_allclose(run.multipliers, sums, rtol=1e-12)
    assert run.status & ~int(jb.Status.NO_FEASIBLE_POINT) == 0
    assert run.evaluations is None and run.candidates is None


def test_facts_of_an_instance_and_what_is_known_of_delays_reach_the_wrapped_algorithm() -> None:
    model = jb.delays.Poisson(mean=5.0)
    for depth in (0, 1, 2):
        told = anytime(jb.Bpe(), depth).with_delays(model, jb.feedback.Hallucinate()).with_facts(delta=0.2)
        for _ in range(depth):
            assert isinstance(told, jb.Anytime)
            told = told.algorithm
        assert isinstance(told, jb.Bpe) and (told.mean_delay, told.delta) == (5.0, 0.2)
        wrapped = anytime(jb.Bpe(), depth)
        assert isinstance(wrapped.traits.feedback, jb.feedback.Hallucinate)
        assert anytime(jb.Se2(), depth).traits.joint_arrival and not wrapped.traits.joint_arrival
        assert anytime(jb.Scgp(), depth).traits.sees_constraints and not wrapped.traits.sees_constraints


def test_strategies_of_a_wrapped_algorithm_are_swept_by_a_path() -> None:
    swept = jb.sweep(anytime(jb.Rpol(), 2), {"algorithm.algorithm.estimator.reward_width": [0.5, 4.0]})
    assert [float(one.algorithm.algorithm.estimator.reward_width) for one in swept.unstack()] == [0.5, 4.0]


KERNEL = kernels.SquaredExponential(length_scale=1.0)


@functools.cache
def refit_problem() -> problems.Problem:
    return problems.sine(9)


def ranged(length_scale: float = 1.0) -> jb.Surrogate:
    model = jb.ranged(refit_problem().domain, KERNEL, low=0.5, high=2.0, noise_variance=0.05, tolerance=1e-3)
    return jb.replace(model, length_scale=length_scale)


def run(algorithm: jb.Algorithm, model: Any = None, **options: Any) -> jb.Trajectory:
    options = {"horizon": 12, "trials": 2, "key": jax.random.key(0), "block": 1} | options
    return jb.simulate(refit_problem(), algorithm, ranged() if model is None else model, **options)


@pytest.mark.full
def test_before_the_first_fit_it_is_the_algorithm_and_after_it_another() -> None:
    fitted = jb.sweep(jb.Refitted(algorithm=jb.Rpol(), first=6, points=8, steps=3), {"span": [30.0, 2.0]})
    alone = jb.sweep(ranged(), {"length_scale": [1.0, 1.0]})
    design = jb.InitialDesign(random=2)
    with pytest.warns(UserWarning, match="4 of 4 trials: a fit of hyper-parameters ended at an end of their range"):
        at = jax.device_get(run(fitted, initial=design, record="all"))
    plain = jax.device_get(run(jb.Rpol(), alone, initial=design))
    # Two points of the initial design count.
    np.testing.assert_array_equal(at.indices[..., :4], plain.indices[..., :4])
    assert not np.array_equal(at.indices[..., 5:], plain.indices[..., 5:])
    assert not np.any(at.failed_round) and np.all(np.isfinite(at.information_gain))
    assert not np.array_equal(at.information_gain[0], at.information_gain[1]), "the span bounds the fit"
    assert at.length_scales.shape == (2, 2, 12, 1, 1) and np.all(at.length_scales[:, :, :4] == 1.0)
    assert np.all(at.length_scales[:, :, 4:] != 1.0) and np.all(at.length_scales[:, :, 4:10] == at.length_scales[:, :, 4:5])
    # The next fits follow rounds 10 and 22.
    assert np.all(at.length_scales[:, :, -1] == at.fitted_length_scales)
    assert np.all(at.fitted_length_scales == 2.0) and np.all(at.status == int(jb.Status.FIT_AT_BOUND)) and not np.any(plain.status)
    assert plain.fitted_length_scales is None
    table = at.to_xarray(refit_problem())
    assert table.fitted_length_scales.dims == ("algorithm", "trial", "group", "axis")
    np.testing.assert_array_equal(table.fitted_length_scales, at.fitted_length_scales)


def test_it_can_be_wrapped_itself() -> None:
    algorithm = jb.canonicalise(jb.Anytime(algorithm=jb.Refitted(algorithm=jb.Rpol(), first=2, points=8, steps=2), keep_data=True))
    arena = Arena(surrogate=jb.canonicalise(ranged()), horizon=jnp.int32(5))
    start = jax.eval_shape(algorithm.init, arena)
    seen = Observation(index=jnp.int32(3), values=jnp.zeros(2))
    assert jax.eval_shape(algorithm.update, arena, start, seen, jnp.int32(1)) == start


@pytest.mark.full
@pytest.mark.parametrize(("inner", "late"), [(jb.Rpol(), True), (jb.Cei(), False)], ids=["rpol late", "cei at once"])
def test_a_fit_to_the_design_changes_the_model_and_counts_nothing(inner: jb.Algorithm, late: bool) -> None:
    """Hyper-parameters and belief are new, also within a wrapper."""
    algorithm = jb.canonicalise(jb.Anytime(algorithm=jb.Refitted(algorithm=inner, at_start=True, points=8, steps=2)))
    surrogate: Any = jax.jit(lambda model: model.factorised())(jb.canonicalise(jb.replace(ranged(), kernels=())))
    surrogate = feedback.Wait().bind(surrogate, separate_outputs=False, capacity=3, axis=None) if late else surrogate
    arena = Arena(surrogate=surrogate, horizon=jnp.int32(5))
    state, learn = jax.jit(algorithm.init)(arena), jax.jit(algorithm.learn)
    for index, reward in ((3, 0.5), (40, -0.2), (77, 1.0)):
        state = learn(arena, state, Observation(index=np.int32(index), values=np.asarray([reward, -1.0], np.float32)))
    begun = jax.jit(algorithm.begin)(arena, state)
    assert jax.tree.structure(begun) == jax.tree.structure(state)
    before, after = (algorithm.diagnose(each)["length_scales"] for each in (state, begun))
    assert float(before[0, 0]) == 1.0 and float(after[0, 0]) != 1.0
    held = [algorithm.algorithm._held(each.inner) for each in (state, begun)]
    np.testing.assert_array_equal(held[0].seen.counts, held[1].seen.counts)
    assert int(held[1].rounds) == 3
    if isinstance(inner, jb.Cei):
        seen = [each.inner for each in (state, begun)]
        np.testing.assert_array_equal(seen[0].visited, seen[1].visited)
        assert float(seen[0].best) == float(seen[1].best) == 1.0
