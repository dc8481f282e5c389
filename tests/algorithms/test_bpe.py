"""BPE and BPE-Delay against dense NumPy."""

import functools
import json
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Anytime, Bpe, InvalidArgument, delays, domains, feedback, kernels, problems, widths
from jaxbandit.algorithms import Arena, Elimination, Observation
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.engine.programs import play_all
from jaxbandit.study import Run, Study, audit
from tests.oracles import gaussian_process as gp
from tests.oracles import pure_exploration

HORIZON, TRIALS, NOISE = 60, 3, 0.05
MANY = 12
TOLERANCE = {"float32": 1e-3, "float64": 1e-8}
KERNEL = kernels.SquaredExponential(length_scale=0.35)
PAIR = {"xi": 1.0, "b": 0.2}
# The wait u_T is 4 + 3, so some feedback of a stage comes in the next one.
LATE = delays.Poisson(mean=4.0, **PAIR)


# Lengths of stages.


@functools.cache
def four_arms() -> jaxbandit.Surrogate:
    return jaxbandit.surrogate(domains.arms(4), kernels.Gram(matrix=np.eye(4)), noise_variance=1.0, outputs=1, form="features")


@jax.jit
def every_round(algorithm: Bpe, surrogate: jaxbandit.Surrogate, horizon: jax.Array) -> Any:
    """Return stage, ``q_r`` and end of stage by round, and stages."""
    arena = Arena(surrogate=surrogate, horizon=horizon)

    def one(state: Any, t: jax.Array) -> tuple[Any, Any]:
        observation = Observation(index=jnp.int32(0), values=jnp.zeros(1, state.q.dtype))
        after = algorithm.update(arena, state, observation, t)
        return after, (state.stage, state.q, state.end)

    final, seen = jax.lax.scan(one, algorithm.init(arena), jnp.arange(1, 1001, dtype=jnp.int32))
    return final.stages, seen


def played_stages(algorithm: Bpe, horizon: int) -> list[tuple[float, int]]:
    """Return ``q_r`` and the uncut length of every stage."""
    count, seen = every_round(jaxbandit.canonicalise(algorithm), four_arms(), np.int32(horizon))
    stage, q, end = (np.asarray(x)[:horizon] for x in seen)
    first = np.unique(stage, return_index=True)[1]
    assert len(first) == int(count) and np.all(first[1:] == end[first][:-1])
    return [(float(a), int(b)) for a, b in zip(q[first], np.diff(end[first], prepend=0), strict=True)]


def test_lengths_of_the_papers_experiment() -> None:
    late = Bpe(mean_delay=50.0, xi=9.0, b=1.0, delta=0.1)
    got = played_stages(late, 1000)
    assert [q for q, _ in got] == [32, 179, 424, 652]
    # The horizon cuts the last stage to 152 rounds.
    assert [length for _, length in got] == [103, 250, 495, 723]
    assert 1000 - (103 + 250 + 495) == 152
    assert [length for length, _ in late.stage_lengths(1000)] == [103, 250, 495, 152]
    assert Bpe().stage_lengths(100) == [(10, 10.0), (32, 32.0), (57, 57.0), (1, 76.0)]
    u = pure_exploration.wait(1000, 0.1, 50.0, 9.0, 1.0)
    assert u == pytest.approx(50 + 20.6, abs=0.05)
    assert [s.last - s.first + 1 for s in pure_exploration.stages(1000, u)] == [103, 250, 495, 152]


@pytest.mark.parametrize(("mean", "lengths"), [(0.0, [48, 199, 447, 676]), (25.0, [73, 225, 472, 701]), (50.0, [98, 250, 497, 726])])
def test_lengths_of_the_published_code(mean: float, lengths: list[int]) -> None:
    got = played_stages(Bpe(mean_delay=mean, xi=9.0, b=1.0, delta=0.01, lengths="code"), 1000)
    assert got == list(zip([32, 179, 424, 652], lengths, strict=True))
    # Recompute the length in float64.
    for (q, length), played in zip(got, np.cumsum([0, *lengths]), strict=False):
        assert length == int(q + min(np.sqrt(162 * np.log(150 * (played + q))), 2 * np.log(150 * (played + q))) + mean)


@pytest.mark.parametrize("algorithm", [Bpe(), Bpe(mean_delay=50.0, xi=9.0, b=1.0, aware=False), Bpe(mean_delay=0.0, xi=0.0, b=0.0)])
def test_no_wait_without_delay_or_unaware_of_it(algorithm: Bpe) -> None:
    assert played_stages(algorithm, 1000) == [(32, 32), (179, 179), (424, 424), (652, 652)]


@pytest.mark.parametrize("horizon", [1, 2, 7, 256, 300])
def test_lengths_of_other_horizons(horizon: int) -> None:
    # The cases reach both branches of psi.
    for mean, xi, b in ((0.0, 0.0, 0.0), (3.0, 1.0, 0.2), (5.5, 0.4, 9.0)):
        got = played_stages(Bpe(mean_delay=mean, xi=xi, b=b, delta=0.3), horizon)
        expected = pure_exploration.stages(horizon, pure_exploration.wait(horizon, 0.3, mean, xi, b))
        assert [q for q, _ in got] == [s.q for s in expected]
        assert np.cumsum([n for _, n in got])[:-1].tolist() == [s.last for s in expected[:-1]]


def test_what_a_delay_model_tells() -> None:
    told = Bpe().with_delays(delays.Poisson(mean=50.0), feedback.Hallucinate())
    assert (told.mean_delay, told.b) == (50.0, 1.0) and told.xi == pytest.approx(math.sqrt(2 * (math.e - 2) * 50))
    told = Bpe(xi=9.0, b=2.0).with_delays(delays.Poisson(mean=50.0), feedback.Hallucinate())
    assert (told.mean_delay, told.xi, told.b) == (50.0, 9.0, 2.0)
    told = Bpe(mean_delay=7.0, xi=9.0, b=2.0).with_delays(delays.LogNormal(), feedback.Hallucinate())
    assert (told.mean_delay, told.xi, told.b) == (7.0, 9.0, 2.0)
    unaware = Bpe(aware=False)
    assert unaware.with_delays(delays.Pareto(shape=0.5), feedback.Hallucinate()) is unaware


# Whole runs against the reference.


@functools.cache
def setting() -> tuple[domains.Domain, np.ndarray, np.ndarray]:
    """Return points without symmetry, their Gram matrix, and a reward."""
    rng = np.random.default_rng(7)
    domain = domains.product([np.sort(rng.random(8)), np.sort(rng.random(7))])
    points = np.asarray(domain.points, np.float64)
    gram = gp.squared_exponential(points, points, 0.35)
    return domain, gram, 2 * gp.random_functions(gram, 1, rng)[0]


def surrogate_of(form: str, outputs: int = 1) -> jaxbandit.Surrogate:
    return jaxbandit.surrogate(setting()[0], KERNEL, noise_variance=NOISE, outputs=outputs, form=form, horizon=HORIZON)


def problem(delay: Any = delays.NoDelay()) -> problems.Problem:
    domain, _, reward = setting()
    return problems.from_tables(domain, reward, np.zeros((0, domain.size)), noise=problems.Gaussian(variance=NOISE), delay=delay)


def run(algorithm: Any, form: str | jaxbandit.Surrogate = "features", delay: Any = LATE, **options: Any) -> jaxbandit.Trajectory:
    options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(3), "block": 1, **options}
    return jaxbandit.simulate(problem(), algorithm, surrogate_of(form) if isinstance(form, str) else form, delay=delay, **options)


@jaxbandit.pytree
class Shown(Bpe):
    """BPE that shows the candidates as its draws."""

    def select(self, arena: Arena, state: Any, t: jax.Array, key: jax.Array) -> Any:
        decision, state = Bpe.select(self, arena, state, t, key)
        return jaxbandit.replace(decision, draws=state.candidates), state


def trials_of(record: jaxbandit.Trajectory) -> list[pure_exploration.Trial]:
    indices, values = np.asarray(record.indices), np.asarray(record.values, np.float64)[..., 0]
    own = np.broadcast_to(np.arange(1, indices.shape[1] + 1), indices.shape)
    arrivals = own if record.arrivals is None else np.asarray(record.arrivals)[..., 0]
    return [pure_exploration.Trial(*parts) for parts in zip(indices, values, arrivals, strict=True)]


def plan_of(algorithm: Bpe, delay: Any, horizon: int = HORIZON) -> list[pure_exploration.Stage]:
    aware = algorithm.aware and not isinstance(delay, delays.NoDelay)
    u = pure_exploration.wait(horizon, algorithm.delta, float(delay.mean), *map(float, delay.sub_exponential)) if aware else 0.0
    return pure_exploration.stages(horizon, u)


def constant(beta: float) -> pure_exploration.Width:
    return lambda R, q: (beta, 0.0, 0.0)


@functools.cache
def shown(delay: Any = LATE, *, form: str = "features", precision: str = "float64", trials: int = TRIALS, **options: Any) -> Any:
    """Return trials of width 1, with candidates by round ``[trials, T, M]``."""
    with jax.enable_x64(precision == "float64"):
        record = jax.tree.map(np.asarray, run(Shown(width=1.0, **options), form, delay, trials=trials, record="audit"))
    assert not np.any(record.status)
    alive = np.asarray(record.draws)
    left = alive[:, -1].sum(axis=1)
    assert np.all(left >= 1) and np.any(left < alive.shape[-1]), left
    return record, list(zip(trials_of(record), alive, strict=True))


def late() -> Any:
    """Return the run with features that several tests share."""
    return shown(LATE, trials=MANY)


def check(delay: Any = LATE, *, precision: str = "float64", **options: Any) -> None:
    """Every choice of a run and every set that it goes by."""
    plan = plan_of(Bpe(aware=options.get("aware", True)), delay)
    for trial, alive in shown(delay, precision=precision, **options)[1]:
        assert pure_exploration.faults(setting()[1], NOISE, trial, plan, constant(1.0), alive, TOLERANCE[precision]) == []


@pytest.mark.full(but=("features",))
@pytest.mark.parametrize("form", ["features", "rows"])
def test_every_choice_and_elimination(form: str) -> None:
    """Feedback is late here, and comes at once below."""
    check(form=form, trials=MANY if form == "features" else TRIALS)


@pytest.mark.full
def test_bpe_under_delay_unaware_of_it() -> None:
    """Stages are short, so much feedback comes too late."""
    delay = delays.Pareto(shape=0.9, maximum=500)
    options = {"aware": False, "precision": "float32", "ties": "random"}
    check(delay, **options)
    arrivals = shown(delay, **options)[0].arrivals[..., 0]
    first = plan_of(Bpe(aware=False), delay)[0].last
    assert np.any(arrivals[:, :first] > first), "no feedback crosses the end of a stage"


def test_the_check_sees_another_algorithm() -> None:
    """Other bounds, deviations, widths or waits explain no run."""
    gram, plan = setting()[1], plan_of(Bpe(), LATE)

    def explains(stages: Any, width: float, **options: Any) -> bool:
        found = [pure_exploration.faults(gram, NOISE, trial, stages, constant(width), alive, 1e-8, **options) for trial, alive in runs]
        return not any(found)

    # Some of these runs tell any two rules apart.
    _, runs = late()
    assert explains(plan, 1.0)
    assert not explains(plan, 1.0, use_all=True)
    assert not explains(plan, 1.5)
    assert not explains([pure_exploration.Stage(1, HORIZON, 1.0)], 1.0)
    assert not explains(pure_exploration.stages(HORIZON, 0.0), 1.0)


def test_ties_are_random_or_the_first_is_taken() -> None:
    """Before any point of a stage is chosen, all deviations are equal."""
    arena, trials = Arena(surrogate=surrogate_of("features"), horizon=jnp.int32(HORIZON)), 300

    def first(ties: str) -> np.ndarray:
        algorithm = jaxbandit.canonicalise(Bpe(ties=ties))
        choose = jax.vmap(lambda key: algorithm.select(arena, algorithm.init(arena), jnp.int32(1), key)[0].index)
        return np.asarray(jax.jit(choose)(jax.random.split(jax.random.key(3), trials)))

    points = arena.surrogate.domain.size
    counts = np.bincount(first("random"), minlength=points)
    chi = np.sum((counts - trials / points) ** 2) / (trials / points)
    assert abs(chi - (points - 1)) < 5 * math.sqrt(2 * (points - 1)), chi
    assert np.all(first("first") == 0)


# Widths.

THEORY = {"norm_bound": 0.6, "noise_scale": 0.04, "delta": 0.3}


@jax.jit
def widths_of(width: Elimination, model: jaxbandit.Surrogate, stages: jax.Array, q: jax.Array) -> Any:
    """``beta`` and the terms beside it for each of ``q [n]``."""
    arena = Arena(surrogate=model, horizon=jnp.int32(HORIZON))
    return jax.vmap(lambda own: width(arena, jnp.asarray(stages, own.dtype), own))(q)


@pytest.mark.parametrize("continuous", [False, True])
def test_theory_widths(continuous: bool) -> None:
    domain, _, _ = setting()
    expected = pure_exploration.finite_width(0.6, 0.04, NOISE, 0.3, domain.size)
    if continuous:
        expected = pure_exploration.continuous_width(0.6, 0.04, NOISE, 0.3, 2, 1.0)
    algorithm = Bpe(width=Elimination(continuous=continuous, **THEORY))
    plan = plan_of(algorithm, LATE)
    with jax.enable_x64(True):
        found = widths_of(algorithm.width, surrogate_of("features"), len(plan), np.asarray([float(stage.q) for stage in plan]))
    np.testing.assert_allclose(np.transpose(found), [expected(len(plan), stage.q) for stage in plan], rtol=1e-9)


def test_largest_prior_variance_and_noise_in_the_continuous_width() -> None:
    """The least ``q`` is 1."""
    domain, _, _ = setting()
    for variance, scale in ((3.0, 0.04), (0.5, 2.0)):
        model = jaxbandit.surrogate(domain, variance * KERNEL, noise_variance=NOISE, outputs=1, form="features")
        found = widths_of(Elimination(norm_bound=2.0, noise_scale=scale, continuous=True), model, 3, np.asarray([1.0, 30.0]))
        width = pure_exploration.continuous_width(2.0, scale, NOISE, 0.1, 2, variance)
        np.testing.assert_allclose(np.transpose(found), [width(3, 1.0), width(3, 30.0)], rtol=1e-5)


def test_the_papers_numbers() -> None:
    """There are four stages, 2,500 points and ``sigma^2 = lambda``."""
    beta, _, _ = pure_exploration.finite_width(10.0, 0.02, 4e-4, 0.1, 2500)(4, 32)
    assert beta == pytest.approx(10 + math.sqrt(2 * math.log(4 * 4 * 2500 / 0.1)))
    assert 15 < beta < 17


@pytest.mark.full
def test_elimination_by_the_theorys_bounds() -> None:
    """The reward's range is wide, so points are eliminated."""
    domain, gram, reward = setting()
    wide = problems.from_tables(domain, 2 * reward, np.zeros((0, domain.size)), noise=problems.Gaussian(variance=NOISE))
    expected = pure_exploration.continuous_width(0.05, 0.002, NOISE, 0.3, 2, 1.0)
    with jax.enable_x64(True):
        algorithm = Shown(width=Elimination(continuous=True, norm_bound=0.05, noise_scale=0.002, delta=0.3))
        options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(3), "record": "audit", "block": 1}
        record = jax.device_get(jaxbandit.simulate(wide, algorithm, surrogate_of("product"), **options))
    plan = plan_of(algorithm, delays.NoDelay())
    check_widths(record, gram, NOISE, plan, expected, 1e-7)
    # Without what Theorem 6.2 adds to the bounds, another set would have survived.
    with pytest.raises(AssertionError, match="another set survives"):
        check_widths(record, gram, NOISE, plan, lambda R, q: (expected(R, q)[0], 0.0, 0.0), 1e-7)


def check_widths(record: Any, gram: np.ndarray, noise: float, plan: list[pure_exploration.Stage], width: Any, tolerance: float) -> None:
    """Check every choice, set and recorded width of an eliminating run."""
    assert np.any(record.draws[:, -1].sum(axis=1) < len(gram))
    for stage in plan:
        betas = record.widths[:, stage.first - 1 : stage.last, 0]
        np.testing.assert_allclose(betas, width(len(plan), stage.q)[0], rtol=tolerance)
    for trial, sets in zip(trials_of(record), record.draws, strict=True):
        assert pure_exploration.faults(gram, noise, trial, plan, width, sets, tolerance) == []


@pytest.mark.full
def test_the_theorys_width_seldom_strikes_out_the_maximiser() -> None:
    """At most ``delta`` of the trials lose it."""
    trials, delta, noise = 100, 0.1, 0.04
    family = problems.rkhs_2d_draws("f1", 8, side=2.0, centres=20, noise=problems.Gaussian(variance=noise), delay=LATE)
    model = jaxbandit.surrogate(family.domain, kernels.SquaredExponential(length_scale=0.8), noise_variance=noise, outputs=1)
    key = jax.random.key(5)
    draws = jax.jit(jax.vmap(lambda i: family.sample(stream_key(trial_key(key, i), Stream.PROBLEM))))(np.arange(trials))
    best = np.argmax(np.asarray(draws.means)[:, 0], axis=1)

    def struck_out(norm: float, scale: float) -> tuple[float, float]:
        algorithm = Shown(width=Elimination(norm_bound=norm, noise_scale=scale, delta=delta), delta=delta)
        options = {"horizon": HORIZON, "trials": trials, "key": key, "record": "audit", "block": 1}
        record = jax.device_get(jaxbandit.simulate(family, algorithm, model, **options))
        alive = record.draws[:, -1]
        if not alive[:TRIALS].all():
            points = np.asarray(family.domain.points)
            gram, width = gp.squared_exponential(points, points, 0.8), pure_exploration.finite_width(norm, scale, noise, delta, len(points))
            check_widths(jax.tree.map(lambda x: x[:TRIALS], record), gram, noise, plan_of(algorithm, LATE), width, 1e-3)
        return 1 - float(np.mean(alive[np.arange(trials), best])), float(np.mean(alive))

    norm = float(np.max(draws.norm))
    share, left = struck_out(norm, 0.2)
    assert share <= delta
    narrow, few = struck_out(0.05, 0.002)
    assert narrow > delta and few < left


# Promises to the engine beyond ``tests/conformance``.


@pytest.mark.full
def test_side_by_side_equals_one_by_one_in_a_sweep_under_delay() -> None:
    """Swept delays give stages of different lengths in one program.

    Under a kernel of another variance at every point: where a stage begins with a tie, rounding decides.
    """
    with jax.enable_x64(True):
        kernel = KERNEL + kernels.Linear(length_scale=np.array([1.0, 1.3]))
        model = jaxbandit.surrogate(setting()[0], kernel, noise_variance=NOISE, outputs=1, form="features")
        together = run(Shown(width=1.0), model, block=TRIALS, record="audit")
        swept = run(Shown(width=1.0), model, delay=jaxbandit.sweep(LATE, {"mean": [2.0, 4.0]}), record="audit")
    together, swept = jax.device_get((together, swept))
    assert len({x.tobytes() for x in together.indices}) > 1 and not together.draws.all()
    np.testing.assert_array_equal(together.indices, swept.indices[1])
    np.testing.assert_array_equal(together.draws, swept.draws[1])
    np.testing.assert_allclose(together.values, swept.values[1], rtol=1e-9)
    for number, mean in enumerate((2.0, 4.0)):
        plan = plan_of(Bpe(), delays.Poisson(mean=mean, **PAIR))
        changes = np.any(np.diff(swept.draws[number].astype(int), axis=1), axis=(0, 2))
        assert set(np.flatnonzero(changes) + 1) == {stage.last for stage in plan[:-1]}


def test_new_values_do_not_compile_again_under_delay() -> None:
    late()
    with jax.enable_x64(True):
        before = play_all._cache_size()
        run(Shown(width=0.4, delta=0.02), key=jax.random.key(9), trials=MANY, record="audit")
        assert play_all._cache_size() == before


@pytest.mark.full
def test_under_the_doubling_trick() -> None:
    """Stretches of 1, 2, 4, ... rounds have their own stages."""
    record = run(Anytime(algorithm=Bpe(width=1.0)), trials=2)
    assert not np.any(record.status)
    _, gram, _ = setting()
    for trial in trials_of(record):
        # The first stage of a stretch eliminates no point.
        for start in (1, 2, 4, 8, 16):
            stage = plan_of(Bpe(), LATE, start)[0]
            for t in range(start, start + stage.last):
                chosen = trial.indices[start - 1 : t - 1]
                _, sd = gp.mean_and_sd(gram, chosen, np.zeros(len(chosen)), NOISE)
                assert sd[trial.indices[t - 1]] >= sd.max() * (1 - 1e-3)


# Audit traces.


@pytest.mark.full
def test_every_choice_follows_from_the_trace() -> None:
    alg, algorithm = "bpe_delay", Bpe(width=1.0, mean_delay=4.0, **PAIR)
    traced = Run(label=alg, problem=problem(LATE), algorithm=algorithm, model=surrogate_of("features"), trace_name=alg)
    arrays = audit(Study(name="trace", runs=(traced,), horizon=HORIZON, trials=TRIALS, seed=4), traced, 2)
    params = json.loads(str(arrays["meta"]))["params"]
    assert json.loads(str(arrays["meta"]))["alg"] == alg
    assert (params["feedback"], params["delay"]["type"], params["aware"], params["lengths"]) == ("hallucinate", "Poisson", True, "paper")
    points = arrays["domain"].astype(np.float64)
    gram = params["kernel"]["var"] * gp.squared_exponential(points, points, params["kernel"]["u"])
    u = pure_exploration.wait(params["T"], params["delta"], params["E_tau"], params["xi"], params["b"])
    plan = pure_exploration.stages(params["T"], u)
    assert params["t_r"] == [stage.last - stage.first + 1 for stage in plan]
    assert np.any(arrays["arr_r"] > np.arange(1, HORIZON + 1))
    np.testing.assert_allclose(arrays["beta_f_t"], 1.0)
    trial = pure_exploration.Trial(arrays["indices"], arrays["rewards"].astype(np.float64), arrays["arr_r"])
    alive = follow(gram, params["lam"], trial, plan, arrays["beta_f_t"])
    assert pure_exploration.faults(gram, params["lam"], trial, plan, constant(1.0), alive, 1e-3) == []
    assert alive[-1].sum() < len(points)


def follow(
    gram: np.ndarray, noise: float, trial: pure_exploration.Trial, plan: list[pure_exploration.Stage], beta: np.ndarray
) -> np.ndarray:
    """The sets ``[T + 1, M]`` that a trace leads to."""
    alive = np.ones((len(trial.indices) + 1, len(gram)), bool)
    for stage in plan[:-1]:
        here = np.arange(stage.first, stage.last + 1)
        here = here[trial.arrivals[here - 1] <= stage.last] - 1
        mean, sd = gp.mean_and_sd(gram, trial.indices[here], trial.values[here], noise)
        low, high = mean - beta[stage.last - 1] * sd, mean + beta[stage.last - 1] * sd
        now = alive[stage.last - 1]
        alive[stage.last :] = now & (high >= low[now].max())
    return alive


# Bad input.

REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "infinite mean": (lambda: run(Bpe(), delay=delays.Pareto(shape=0.9)), "Bpe.mean_delay: the mean of Pareto is unknown or infinite"),
    "lost feedback": (lambda: run(Bpe(), delay=delays.Lossy(delay=LATE, never=0.1)), "Bpe.mean_delay: the mean of Lossy"),
    "no pair": (lambda: run(Bpe(), delay=delays.LogNormal()), "Bpe.xi, Bpe.b: LogNormal has no sub-exponential parameters"),
    "mean without pair": (lambda: run(Bpe(mean_delay=3.0)), "Bpe.mean_delay, Bpe.xi, Bpe.b: give xi and b together"),
    "xi alone": (lambda: run(Bpe(xi=3.0)), "Bpe.mean_delay, Bpe.xi, Bpe.b: give xi and b together"),
    "b alone": (lambda: run(Bpe(b=3.0)), "Bpe.mean_delay, Bpe.xi, Bpe.b: give xi and b together"),
    "negative mean": (lambda: run(Bpe(mean_delay=-3.0, xi=1.0, b=1.0)), "Bpe.mean_delay: must be >= 0"),
    "negative xi": (lambda: run(Bpe(xi=-1.0, b=1.0)), "Bpe.xi: must be >= 0"),
    "NaN b": (lambda: run(Bpe(xi=1.0, b=math.nan)), "Bpe.b: 1 of 1 values are NaN"),
    "two pairs": (lambda: run(Bpe(xi=np.ones(2), b=np.ones(2))), "Bpe.xi: expected one number"),
    "waiting": (lambda: run(Bpe(), feedback=feedback.Wait()), "feedback: Bpe chooses by the deviation of all points"),
    "censoring": (lambda: run(Bpe(aware=False), feedback=feedback.Censor()), "feedback: Bpe chooses by the deviation of all points"),
    "wrapped": (lambda: run(Anytime(algorithm=Bpe()), feedback=feedback.Wait()), "feedback: Bpe chooses by the deviation"),
    "no width": (lambda: run(Bpe(width=0.0)), "Bpe.width: must be > 0"),
    "negative width": (lambda: run(Bpe(width=-2.0)), "Bpe.width: must be > 0"),
    "two widths": (lambda: run(Bpe(width=np.ones(2))), "Bpe.width: expected one number"),
    "another schedule": (lambda: run(Bpe(width=widths.SqrtLog())), "Bpe.width: must be a number > 0 or the theory's bounds"),
    "no failure": (lambda: run(Bpe(delta=0.0)), "Bpe.delta: must lie in (0, 1)"),
    "sure failure": (lambda: run(Bpe(delta=1.0)), "Bpe.delta: must lie in (0, 1)"),
    "lengths": (lambda: run(Bpe(lengths="short")), "Bpe.lengths: must be one of paper, code"),
    "ties": (lambda: run(Bpe(ties="last")), "Bpe.ties: must be one of first, random"),
    "norm": (lambda: run(Bpe(width=Elimination(norm_bound=0.0))), "Elimination.norm_bound: must be > 0"),
    "noise": (lambda: run(Bpe(width=Elimination(noise_scale=-1.0))), "Elimination.noise_scale: must be > 0"),
    "failure of the width": (lambda: run(Bpe(width=Elimination(delta=2.0))), "Elimination.delta: must lie in (0, 1)"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input(name: str) -> None:
    call, words = REFUSALS[name]
    before = play_all._cache_size()
    with pytest.raises(InvalidArgument) as refusal:
        call()
    assert str(refusal.value).startswith(words)
    assert play_all._cache_size() == before
