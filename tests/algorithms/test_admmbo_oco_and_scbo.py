"""ADMMBO, online convex optimisation and SCBO against their papers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import Admmbo, InitialDesign, InvalidArgument, Oco, Status, consensus, delays, domains, kernels, problems, replace
from jaxbandit.algorithms.base import Arena, Observation
from jaxbandit.algorithms.scbo import candidates
from jaxbandit.core.pytree import canonicalise
from jaxbandit.domains import grid
from jaxbandit.kernels import SquaredExponential
from tests.oracles import alternating_directions, bandit, boxes, convex_optimisation
from tests.oracles import gaussian_process as gp
from tests.support import box_runs

SIDE, LENGTH_SCALE, NOISE, TRIALS = 8, 0.4, 0.02, 2
TOLERANCE = {"float32": 1e-3, "float64": 1e-8}
LOW, HIGH = np.array([-1.0, 2.0]), np.array([3.0, 3.0])


@functools.cache
def problem_of(constraints: int) -> problems.Problem:
    """Smooth functions on a box whose axes differ in length.

    A third of the points satisfies each constraint. The grid has no symmetry, because distances on it must not tie.
    """
    rng = np.random.default_rng(constraints)
    shares = np.linspace(0, 1, SIDE) + np.pad(rng.uniform(-0.05, 0.05, (2, SIDE - 2)), ((0, 0), (1, 1)))
    domain = domains.product(list(LOW[:, None] + shares * (HIGH - LOW)[:, None]))
    points = boxes.box(np.asarray(domain.points))
    tables = gp.random_functions(gp.squared_exponential(points, points, LENGTH_SCALE), 1 + constraints, rng)
    costs = 0.7 * tables[:1] + 0.7 * tables[1:]
    costs = costs - np.quantile(costs, 0.35, axis=1)[:, None]
    return problems.from_tables(domain, tables[0], costs, noise=problems.Gaussian(variance=NOISE))


@functools.cache
def model_of(constraints: int, precision: str) -> jb.Surrogate:
    with jax.enable_x64(precision == "float64"):
        kernel = kernels.Matern52(length_scale=LENGTH_SCALE * (HIGH - LOW))
        return jb.surrogate(problem_of(constraints).domain, kernel, noise_variance=NOISE, outputs=1 + constraints, form="features")


def believed(constraints: int) -> bandit.Model:
    points, outputs = boxes.box(np.asarray(problem_of(constraints).domain.points)), 1 + constraints
    return bandit.Model(
        grams=np.stack([gp.matern52(points, points, LENGTH_SCALE)] * outputs),
        noise=np.full(outputs, NOISE),
        prior_mean=np.zeros(outputs),
        width=bandit.constant(0.0),
    )


@functools.cache
def recorded(name: str, constraints: int, precision: str, horizon: int, design: tuple[int, ...] = ()) -> jb.Trajectory:
    with jax.enable_x64(precision == "float64"):
        run = jb.simulate(
            problem_of(constraints),
            ALGORITHMS[name],
            model_of(constraints, precision),
            horizon=horizon,
            trials=TRIALS,
            key=jax.random.key(4),
            record="audit",
            initial=InitialDesign(indices=np.array(design)) if design else None,
            # Runs of two constraints are compared with trials run alone.
            block=TRIALS if constraints == 2 else 1,
        )
        assert run.values.dtype == precision
        return jax.tree.map(np.asarray, run)


def record_of(run: jb.Trajectory, trial: int) -> bandit.Record:
    return bandit.Record(
        indices=run.indices[trial],
        values=run.values[trial].astype(np.float64),
        initial_indices=run.initial_indices[trial],
        initial_values=run.initial_values[trial].astype(np.float64),
    )


# ADMMBO.

THEIRS = {"rho": 0.5, "weight": 2.0, "side": 2.0, "budgets": ((4, 2), (5, 3)), "outer_iterations": 8, "tolerance": 0.02, "absolute": 0.1}
STRICT = THEIRS | {"absolute": 1e-6, "relative": 1e-6, "relaxation": 1.0, "outer_iterations": 4}
ALGORITHMS: dict[str, Any] = {
    "admmbo": Admmbo(
        penalty=0.5,
        weight=2.0,
        side=2.0,
        agreement=consensus.Agreement(absolute=0.1),
        reward_budget=(4, 2),
        cost_budget=(5, 3),
        outer_iterations=8,
        feasibility_tolerance=0.02,
    ),
    "oco": Oco(step=0.3, regulariser=2.0),
    "oco-given": Oco(step=0.5, regulariser=0.5, perturbation=0.2, shrink=0.5, start=[0.9, 0.4]),
}
ALGORITHMS["admmbo-strict"] = replace(
    ALGORITHMS["admmbo"], agreement=consensus.Agreement(absolute=1e-6, relative=1e-6, relaxation=1.0), outer_iterations=4
)
# In float32 rounding may decide which evaluated point is a step's best, after which the runs part: only the first steps are compared.
ADMMBO_RUNS = [("admmbo", 1, "float64", 50, (3, 60)), ("admmbo-strict", 2, "float64", 60, ()), ("admmbo", 1, "float32", 9, (3, 60))]


def admmbo_replay(name: str, constraints: int, run: jb.Trajectory, trial: int, **changes: Any) -> alternating_directions.AdmmboReplay:
    given = (STRICT if name == "admmbo-strict" else THEIRS) | changes
    points = np.asarray(problem_of(constraints).domain.points)
    return alternating_directions.admmbo(believed(constraints), record_of(run, trial), points, **given)


@pytest.mark.full(but=("float32",))
@pytest.mark.parametrize(("name", "constraints", "precision", "horizon", "design"), ADMMBO_RUNS)
def test_every_evaluation_of_admmbo(name: str, constraints: int, precision: str, horizon: int, design: tuple[int, ...]) -> None:
    run = recorded(name, constraints, precision, horizon, design)
    for trial in range(TRIALS):
        expected = admmbo_replay(name, constraints, run, trial)
        gaps = bandit.score_gaps(expected.scores, run.indices[trial])
        assert gaps.max() <= TOLERANCE[precision], f"trial {trial}, round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
        shown = np.arange(1 + constraints)[None] == expected.evaluated[:, None]
        np.testing.assert_array_equal(~np.isnan(run.values[trial]), shown)
        stopped = np.flatnonzero(expected.evaluated < 0)
        assert run.evaluations[trial] == (int(stopped[0]) if len(stopped) else horizon)
        # The short run may stop after its last round.
        if precision == "float64":
            assert bool(run.status[trial] & int(Status.STOPPED)) == (len(stopped) > 0)
        neighbour = np.where(run.indices[trial] % SIDE > 0, run.indices[trial] - 1, run.indices[trial] + 1)
        assert np.mean(bandit.score_gaps(expected.scores, neighbour) > TOLERANCE[precision]) > 0.3
    assert np.all(jb.metrics.healthy(run.status))


@pytest.mark.full
def test_admmbo_stops_and_repeats_its_answer() -> None:
    run = recorded("admmbo", 1, "float64", 50, (3, 60))
    ends = np.asarray(run.evaluations)
    assert np.all(ends < 50) and np.all(run.status & int(Status.STOPPED) != 0)
    for trial, end in enumerate(ends):
        assert len(set(run.indices[trial, end:])) == 1
        assert run.indices[trial, -1] in {*run.indices[trial, :end], *run.initial_indices[trial]}, "a point that was evaluated"
    assert "stopped by itself" in jb.explain(int(run.status[0]))
    # After the algorithm has stopped, observed values change nothing. Functions that a round does not evaluate change nothing either.
    gains = [gp.information_gain(believed(1).grams[0], seen, NOISE) for seen in own_points(run, 0)]
    np.testing.assert_allclose(run.information_gain[0], gains, rtol=1e-9)


def own_points(run: jb.Trajectory, trial: int) -> list[np.ndarray]:
    """Return the evaluated points of each function."""
    functions = run.widths.shape[-1]
    return [np.concatenate([run.initial_indices[trial], run.indices[trial][~np.isnan(run.values[trial, :, k])]]) for k in range(functions)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("admmbo", {"rho": 0.6}),
        ("admmbo", {"weight": 0.5}),
        ("admmbo", {"side": 1.0}),
        ("admmbo", {"budgets": ((4, 2), (4, 3))}),
        ("admmbo", {"tolerance": 5.0}),
        ("admmbo", {"absolute": 1e-6, "relative": 1e-6}),
        ("admmbo", {"absolute": 0.3}),
        ("admmbo-strict", {"outer_iterations": 3}),
    ],
)
def test_the_check_sees_another_admmbo(name: str, changes: dict[str, Any]) -> None:
    run_of = next(run for run in ADMMBO_RUNS if run[0] == name)
    run = recorded(*run_of)
    wrong = [admmbo_replay(name, run_of[1], run, trial, **changes) for trial in range(TRIALS)]
    gaps = [bandit.score_gaps(replay.scores, run.indices[trial]).max() for trial, replay in enumerate(wrong)]
    shown = [np.any((replay.evaluated >= 0) == np.isnan(run.values[trial]).all(1)) for trial, replay in enumerate(wrong)]
    assert max(gaps) > TOLERANCE["float32"] or any(shown)


def test_rho_follows_the_residuals() -> None:
    """Boyd et al. (2011), eq. 3.13, by hand: doubled, halved and kept."""
    close = jax.jit(lambda variables: variables.close(consensus.Agreement()))
    start = consensus.Consensus.start(jnp.zeros(2), 2, jnp.asarray(0.5))
    far, nearer = jnp.asarray([3.0, 4.0]), jnp.asarray([3.0, 4.6])
    closed, agreed = close(replace(start, x=far))
    assert float(closed.rho) == 1.0 and not bool(agreed)
    moved = replace(start, x=far).with_z(far, jnp.int32(0)).with_z(far, jnp.int32(1))
    closed, agreed = close(moved)
    assert float(closed.rho) == 0.25 and not bool(agreed), "primal residual 0, dual residual 2.5"
    kept, agreed = close(replace(moved, x=nearer))
    assert float(kept.rho) == 0.5 and not bool(agreed)
    np.testing.assert_array_equal(closed.z_before, moved.z)
    again, agreed = close(closed)
    assert bool(agreed) and float(again.rho) == 0.25
    multiplied = replace(start, x=far).with_z(jnp.asarray([1.0, 1.0]), jnp.int32(1))
    np.testing.assert_allclose(multiplied.y, [[0, 0], [1.0, 1.5]])
    np.testing.assert_allclose(multiplied.z, [[0, 0], [1.0, 1.0]])
    # The mean of z_j - y_j / rho is that of (0, 0) and (1, 1) - (2, 3).
    np.testing.assert_allclose(multiplied.x_pull(jnp.asarray([[0.5, 0.5]])), [0.5 * ((0.5 + 0.5) ** 2 + (0.5 + 1.0) ** 2)])
    np.testing.assert_allclose(multiplied.z_pull(jnp.asarray([[0.0, 0.0]]), jnp.int32(1)), [0.25 * (5.0**2 + 7.0**2)])


# Bandit OCO.


@pytest.mark.parametrize(("name", "constraints", "precision"), [("oco", 1, "float32"), ("oco-given", 2, "float64"), ("oco", 2, "float64")])
def test_every_round_of_oco(name: str, constraints: int, precision: str) -> None:
    horizon, algorithm = 31, ALGORITHMS[name]
    run = recorded(name, constraints, precision, horizon)
    points = boxes.box(np.asarray(problem_of(constraints).domain.points))
    eta = algorithm.step / np.sqrt(horizon)
    delta = max(algorithm.perturbation or 0.0, 1 / (SIDE - 1))
    given = {"eta": eta, "kappa": algorithm.regulariser * eta, "delta": delta, "shrink": algorithm.shrink or 2 * delta}
    for trial in range(TRIALS):
        directions, centres = run.draws[trial, :, 0].astype(float), run.draws[trial, :, 1].astype(float)
        expected = convex_optimisation.oco(record_of(run, trial), directions, centres[0], **given)
        np.testing.assert_allclose(centres, expected.centres, rtol=0, atol=TOLERANCE[precision])
        np.testing.assert_allclose(run.multipliers[trial], expected.multipliers, rtol=0, atol=TOLERANCE[precision])
        far = np.sqrt(((points[None] - expected.targets[:, None]) ** 2).sum(-1))
        assert np.all(far[np.arange(horizon), run.indices[trial]] <= far.min(1) + TOLERANCE[precision]), "the nearest grid point"
        np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(directions[0::2][: horizon // 2], directions[1::2])
        assert np.all(centres >= given["shrink"] / 2 - 1e-6) and np.all(centres <= 1 - given["shrink"] / 2 + 1e-6)
        assert np.ptp(centres, axis=0).max() > 0.05, "it moves"
        wrong = convex_optimisation.oco(record_of(run, trial), directions, centres[0], **(given | {"eta": 1.1 * eta}))
        assert np.abs(wrong.centres - centres).max() > 0.01 or np.abs(wrong.multipliers - run.multipliers[trial]).max() > 0.01
    assert np.ptp(run.multipliers, axis=1).max() > 0.05 and np.all(run.widths == 0)
    if algorithm.start is None:
        assert not np.array_equal(run.draws[0, 0, 1], run.draws[1, 0, 1]), "trials start at different points"
    else:
        np.testing.assert_allclose(run.draws[:, 0, 1], [[0.75, 0.4]] * TRIALS, rtol=1e-6)


@pytest.mark.full
def test_oco_climbs_a_slope() -> None:
    """Two-point gradients of linear functions are right on average."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 41)
    x = np.asarray(domain.points)
    problem = problems.from_tables(domain, x[:, 0] + x[:, 1], x[:, 0] - 0.5, noise=problems.Gaussian(variance=0.0))
    model = jb.surrogate(domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=0.01)
    options = {"horizon": 600, "trials": 8, "key": jax.random.key(0), "block": 1}
    run = jb.simulate(problem, Oco(step=1.5, regulariser=0.0), model, **options)
    late = x[np.asarray(run.indices)[:, 400:]].mean(axis=(0, 1))
    assert abs(late[0] - 0.5) < 0.1 and late[1] > 0.85
    free = jb.simulate(replace(problem, means=problem.means - np.array([[0], [9]])), Oco(step=1.5), model, **options)
    assert x[np.asarray(free.indices)[:, 400:]].mean() > 0.85


# Promises to the engine.


@pytest.mark.full
@pytest.mark.parametrize(("name", "field", "horizon"), [("admmbo-strict", "penalty", 60), ("oco", "step", 31)])
def test_side_by_side_equals_one_by_one_in_a_sweep(name: str, field: str, horizon: int) -> None:
    algorithm, together = ALGORITHMS[name], recorded(name, 2, "float64", horizon)
    assert algorithm.name in name and type(algorithm)().validate(outputs=3) is None
    given = {"horizon": horizon, "key": jax.random.key(4), "record": "audit"}
    own = float(getattr(algorithm, field))
    with jax.enable_x64(True):
        swept = jb.sweep(algorithm, {field: [0.9 * own, own]})
        both = jax.device_get(jb.simulate(problem_of(2), swept, model_of(2, "float64"), trials=TRIALS, block=1, **given))
        assert both.indices.shape == (2, TRIALS, horizon)
        # One variant is the algorithm itself.
        alone = jax.tree.map(lambda x: x[1], both)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(alone.indices, together.indices)
        assert np.all(np.isfinite(together.multipliers)) and np.all(together.failed_round == 0)
        with pytest.raises(InvalidArgument, match="cannot run under delay"):
            jb.simulate(problem_of(2), algorithm, model_of(2, "float64"), delay=delays.Constant(rounds=2), **given)


def start_in_three() -> None:
    jb.simulate(problem_of(1), Oco(start=[0.5] * 3), model_of(1, "float32"), horizon=2, key=jax.random.key(0))


def learnt(algorithm: Any, arena: Arena, seen: list[tuple[int, float, float]]) -> list[Any]:
    """Return states after each value, with the next trust region."""

    @jax.jit
    def step(state: Any, index: Any, values: Any) -> Any:
        state = algorithm.learn(arena, state, Observation(index=index, values=values))
        return algorithm.moved(arena, state, arena.belief(state))

    states = [canonicalise(algorithm.init(arena))]
    for index, reward, cost in seen:
        states.append(step(states[-1], jnp.int32(index), jnp.asarray([reward, cost], arena.dtype)))
    return states[1:]


def test_the_trust_region_doubles_and_halves_as_in_the_paper() -> None:
    """Three successes double the length, and d failures halve it.

    Eriksson and Poloczek 2021, sec. 3: the length begins at 0.8 and lies in [2^-7, 1.6].
    """
    # The 25 points are nearly independent.
    domain = grid([0.0, 0.0], [1.0, 1.0], 5)
    model = jb.surrogate(domain, SquaredExponential(length_scale=0.05), noise_variance=1e-4)
    arena = Arena(surrogate=canonicalise(jb.replace(model, kernels=())), horizon=jnp.int32(40))
    # Less violation is better, whatever the reward.
    violating = [(0, 0.9, 3.0), (1, 0.0, 2.0), (2, 0.0, 1.0)]
    feasible = [(3, -1.0, -1.0), (4, 0.0, -1.0), (5, 0.5, -1.0), (6, 0.6, -1.0)]
    worse = [(n, 0.1, -1.0) for n in range(7, 25)]
    states = learnt(jb.Scbo(), arena, [*violating, *feasible, *worse])
    # The first point is no success.
    lengths, expected = [float(state.length) for state in states], [0.8] * 3 + [1.6] * 4
    # The length begins anew below 2^-7.
    expected += [*(1.6 / 2 ** (n // 2) for n in range(1, 16)), 0.8, 0.8, 0.4]
    assert lengths == pytest.approx(expected)
    assert [int(state.best) for state in states] == [0, 1, 2, 3, 4, 5, 6, *[6] * 18]


def test_choices_lie_in_the_trust_region() -> None:
    model = box_runs.model().with_room(8)
    arena = Arena(surrogate=canonicalise(jb.replace(model, kernels=())), horizon=jnp.int32(8))
    algorithm = jb.Scbo(length=0.1)

    @jax.jit
    def chosen(key: Any) -> Any:
        index, state = algorithm.place(arena, algorithm.init(arena), jnp.asarray([0.3, 0.98], arena.dtype))
        state = algorithm.learn(arena, state, Observation(index=index, values=jnp.asarray([1.0, -1.0], arena.dtype)))
        return algorithm.select(arena, state, jnp.int32(1), key)[0].point

    points = np.stack([chosen(jax.random.key(n)) for n in range(8)])
    assert np.all(np.abs(points - [0.3, 0.98]) <= 0.05 + 1e-6) and np.all(points <= 1) and len(np.unique(points[:, 0])) == 8


def test_candidates_beyond_twenty_axes_change_twenty_coordinates() -> None:
    middle = jnp.full((40,), 0.5)
    around = jax.jit(lambda middle: candidates(jax.random.key(0), middle, middle - 0.25, middle + 0.25))
    many = np.asarray(around(middle))
    changed = np.sum(many != 0.5, axis=1)
    assert many.shape == (5000, 40) and np.min(changed) >= 1 and abs(np.mean(changed) - 20.5) < 5 * np.sqrt(10 / 5000)
    assert np.all(np.abs(many - 0.5) <= 0.25)
    assert jax.eval_shape(around, middle[:3]).shape == (2000, 3)


@pytest.mark.full
def test_draws_on_a_box_have_the_mean_and_covariance_of_the_dense_posterior() -> None:
    """Tolerances are 5 standard errors and the share of omitted features."""
    draws, rng = 4000, np.random.default_rng(0)
    seen, values, at = rng.random((5, 2)), rng.standard_normal((5, 2)), rng.random((6, 2))
    surrogate = box_runs.model()
    scale = jnp.asarray([1.0, 2.0], surrogate.dtype)

    @jax.jit
    def drawn_by(keys: Any) -> Any:
        model, posterior, indices = canonicalise(jb.replace(surrogate, kernels=())).holding(jnp.asarray(surrogate.domain.from_unit(seen)))
        for n in range(5):
            posterior = model.condition(posterior, indices[n], jnp.asarray(values[n], model.dtype))
        there = model.belief(posterior).at(jnp.asarray(at, model.dtype))
        return jax.vmap(lambda key: there.draw(key, scale))(keys)

    drawn = np.asarray(drawn_by(jax.random.split(jax.random.key(0), draws)), np.float64)

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-np.sum((x[:, None] - y[None]) ** 2, axis=-1) / (2 * 0.3**2))

    gain = kernel(at, seen) @ np.linalg.inv(kernel(seen, seen) + 0.01 * np.eye(5))
    covariance = kernel(at, at) - gain @ kernel(seen, at)
    sd = np.sqrt(np.diag(covariance))
    for j, size in enumerate((1.0, 2.0)):
        mean, sizes = drawn[:, j].mean(axis=0), size * sd
        np.testing.assert_array_less(np.abs(mean - gain @ values[:, j]), 5 * sizes / np.sqrt(draws))
        error = np.abs(np.cov(drawn[:, j].T) / size**2 - covariance)
        np.testing.assert_array_less(error, 5 * np.outer(sd, sd) * np.sqrt(2.5 / draws) + 1e-6)
    # Outputs are drawn independently.
    assert abs(np.mean((drawn[:, 0] - drawn[:, 0].mean(0)) * (drawn[:, 1] - drawn[:, 1].mean(0)))) < 0.05


def test_random_search_is_uniform_on_a_box() -> None:
    run = jb.simulate(
        box_runs.valley(), jb.RandomSearch(), box_runs.model(), horizon=40, key=jax.random.key(0), trials=10, record="indices"
    )
    unit = np.asarray(box_runs.small_box().to_unit(np.asarray(run.points)))
    assert np.max(np.abs(np.mean(unit, axis=(0, 1)) - 0.5)) < 5 / np.sqrt(12 * 400) and np.all((unit > 0) & (unit < 1))
    assert np.max(np.abs(np.std(unit, axis=(0, 1)) - 1 / np.sqrt(12))) < 0.05
    assert int(np.max(run.status)) == 0
