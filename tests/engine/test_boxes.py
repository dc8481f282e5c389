"""Simulations on boxes and parts of boxes against SciPy in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import qmc

import jaxbandit as jb
from jaxbandit import InvalidArgument, domains, estimators, kernels, problems
from jaxbandit.algorithms.base import Algorithm, Arena, Scored
from jaxbandit.core.pytree import canonicalise, pytree
from jaxbandit.numerics.ascent import ascend, to_edge
from jaxbandit.problems import BoxProblem
from jaxbandit.rules.estimators import Estimate
from jaxbandit.rules.scores import Score, best_of_box, best_of_strides, hilltops
from tests.oracles.gaussian_process import squared_exponential

NOISE, LENGTH, ROUNDS = 1e-2, 0.3, 16
BETA = 2.0
SIDES = {"a": (0.0, 2.0), "b": (-1.0, 1.0)}
BOX = domains.box(SIDES, candidates=64, steps=30)


def reward(x: jax.Array) -> jax.Array:
    return jnp.sin(3 * x[0]) + jnp.cos(4 * x[1]) * x[0]


def cost(x: jax.Array) -> jax.Array:
    return x[0] ** 2 + x[1] ** 2 - 2.0


PROBLEM = problems.on_box(BOX, reward, [cost], noise_variance=NOISE)
MODEL = jb.surrogate(BOX, kernels.SquaredExponential(length_scale=LENGTH), noise_variance=NOISE, precision="float64")


def test_the_optimum_is_certified() -> None:
    """The gradients satisfy Lagrange's condition, and no grid point is better."""
    a, b = np.meshgrid(np.linspace(0, 2, 801), np.linspace(-1, 1, 801), indexing="ij")
    values = np.where(a**2 + b**2 <= 2, np.sin(3 * a) + np.cos(4 * b) * a, -np.inf)
    best = PROBLEM.best
    assert values.max() <= best.value <= values.max() + 1e-4
    assert best.gradient < 1e-5
    a, b = best.point
    assert np.sin(3 * a) + np.cos(4 * b) * a == pytest.approx(best.value, abs=1e-9)
    assert a**2 + b**2 - 2 <= 1e-7


def beliefs(seen: np.ndarray, values: np.ndarray) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return mean ``[2, n]`` and deviation ``[n]`` of a dense posterior."""

    def at(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cross = squared_exponential(np.atleast_2d(points), seen, LENGTH)
        solved = np.linalg.solve(squared_exponential(seen, seen, LENGTH) + NOISE * np.eye(len(seen)), cross.T)
        return values.T @ solved, np.sqrt(np.maximum(1 - np.sum(cross * solved.T, axis=1), 0))

    return at


def score_of(algorithm: Scored, mean: np.ndarray, sd: np.ndarray, penalty: float) -> np.ndarray:
    lower = mean[1] - BETA * sd
    if isinstance(algorithm, jb.Config):
        return np.where(lower <= 0, mean[0] + BETA * sd, -np.inf)
    return np.asarray(mean[0] + BETA * sd - penalty * np.maximum(lower, 0))


@pytest.mark.parametrize("algorithm", [jb.Rpol, pytest.param(jb.Config, marks=pytest.mark.full)])
def test_every_choice_is_the_best_of_the_box(algorithm: type[Scored]) -> None:
    """Polished random points score higher by at most 1e-3 of the range."""
    bounds = estimators.Bounds(reward_width=BETA, cost_width=BETA)
    run = jb.simulate(PROBLEM, algorithm(estimator=bounds), MODEL, horizon=ROUNDS, key=jax.random.key(1))
    cube = np.asarray(BOX.to_unit(run.points[0]), np.float64)
    values = np.asarray(run.values[0], np.float64)
    rng, rule = np.random.default_rng(0), algorithm(estimator=bounds)
    for t in range(ROUNDS):
        at = beliefs(cube[:t], values[:t])
        penalty = float(run.multipliers[0, t, 0])
        many = rng.uniform(size=(3000, 2))
        scores = score_of(rule, *at(many), penalty)
        best = many[np.argmax(scores)]
        polished = minimize(
            lambda x, at=at, penalty=penalty: -float(score_of(rule, *at(np.clip(x, 0, 1)), penalty)[0]), best, method="Nelder-Mead"
        )
        most = max(scores.max(), -polished.fun)
        finite = scores[np.isfinite(scores)]
        mine = float(score_of(rule, *at(cube[t]), penalty)[0])
        # The point is at the edge of the certified set, within rounding.
        if isinstance(rule, jb.Config) and not np.isfinite(mine):
            mine = float(score_of(rule, *(lambda m, s: (m - np.array([[0.0], [1e-4]]), s))(*at(cube[t])), penalty)[0])
        assert mine >= most - 1e-3 * np.ptp(finite), (t, mine, most)


@pytest.mark.full
def test_trials_by_themselves_and_in_a_batch_are_the_same() -> None:
    """A run repeats itself, too."""
    start = {"horizon": 5, "key": jax.random.key(2), "initial": jb.InitialDesign(random=3), "record": "indices"}
    several, alone = (jb.simulate(PROBLEM, jb.Rpol(), MODEL, trials=trials, **start) for trials in (3, [2]))
    assert np.array_equal(several.points[2], alone.points[0])
    assert len(np.unique(np.asarray(several.initial_points[:, 0, 0]))) == 3


@pytest.mark.full
@pytest.mark.parametrize(
    ("algorithm", "precision"), [(jb.Rpol(), "float32"), (jb.Refitted(algorithm=jb.Cei(), every=16), "float64")], ids=["fixed", "refitted"]
)
def test_a_longer_run_begins_with_the_same_bits(algorithm: Algorithm, precision: str) -> None:
    """Posteriors have room for 64 points, all in use, or 128."""
    model = jb.surrogate(
        domains.box(SIDES, candidates=64, steps=3),
        kernels.SquaredExponential(length_scale=LENGTH),
        noise_variance=NOISE,
        precision=precision,
    )
    start = {"key": jax.random.key(2), "trials": 2, "record": "all"}
    short, long = (jax.tree.map(np.asarray, jb.simulate(PROBLEM, algorithm, model, horizon=points, **start)) for points in (64, 65))
    assert np.array_equal(long.points[:, :-1], short.points) and np.array_equal(long.values[:, :-1], short.values)


def test_regret_is_against_the_optimum_of_the_box() -> None:
    run = jb.simulate(
        PROBLEM, jb.Rpol(), MODEL, horizon=5, key=jax.random.key(2), initial=jb.InitialDesign(random=3), record="indices", trials=3
    )
    points = np.asarray(run.points, np.float64)
    gaps = PROBLEM.best.value - (np.sin(3 * points[..., 0]) + np.cos(4 * points[..., 1]) * points[..., 0])
    row = run.summary(PROBLEM).rows[0]
    assert row["R/t"] == pytest.approx(gaps.mean(), abs=1e-4)
    assert row["V/t"] == pytest.approx(np.maximum((points**2).sum(-1) - 2, 0).mean(), abs=1e-4)


def test_the_last_point_of_a_repeated_design_is_nearly_the_first() -> None:
    """It moves by 1e-4 of continuous sides, and elsewhere not at all."""
    box = domains.box({"a": (0.0, 2.0), "b": domains.log(1e-3, 1.0), "n": domains.integers(1, 8)})
    grid = domains.grid([0.0], [1.0], 50)
    for domain in (box, grid):
        plain, again = (
            np.asarray(jb.InitialDesign(random=5, repeated_within=each).places(jax.random.key(3), domain)) for each in (None, 1e-4)
        )
        assert np.array_equal(plain[:4], again[:4]) and not np.allclose(plain[4], plain[0], atol=1e-2)
        if domain is grid:
            assert again[4] == again[0]
        else:
            assert np.abs(again[4] - again[0]) == pytest.approx([1e-4, 1e-4, 0], abs=1e-6)
            assert np.all((again >= 0) & (again <= 1))
    for random in (0, 1):
        with pytest.raises(InvalidArgument, match=r"InitialDesign\.repeated_within: needs two random points or more, got"):
            jb.simulate(PROBLEM, jb.Rpol(), MODEL, horizon=2, initial=jb.InitialDesign(random=random, repeated_within=1e-4))
    with pytest.raises(InvalidArgument, match=r"InitialDesign\.repeated_within: must be at most half of a side"):
        jb.simulate(PROBLEM, jb.Rpol(), MODEL, horizon=2, initial=jb.InitialDesign(random=5, repeated_within=0.6))


def _ripples(points: jax.Array) -> jax.Array:
    return 0.2 * jnp.sum(jnp.cos(60 * points), axis=1)


def test_ascents_end_at_maxima_and_never_below_their_starts() -> None:
    """Maxima of quadratics lie inside, on faces and in corners."""
    peaks = jnp.array([[0.3, 0.6], [1.4, 0.2], [-0.5, 1.7]])

    def score(points: jax.Array) -> jax.Array:
        away = points - peaks
        return -jnp.sum(jnp.array([[1.0, 30.0]]) * away * away, axis=1) - 10 * away[:, 0] * away[:, 1] * 0.5

    starts = jnp.full((3, 2), 0.5)
    places, values = jax.jit(lambda x: ascend(score, x, 30)[:2])(starts)
    for place, peak in zip(np.asarray(places), np.asarray(peaks), strict=True):
        exact = minimize(
            lambda x, peak=peak: (x[0] - peak[0]) ** 2 + 30 * (x[1] - peak[1]) ** 2 + 5 * (x[0] - peak[0]) * (x[1] - peak[1]),
            [0.5, 0.5],
            bounds=[(0, 1), (0, 1)],
        )
        assert place == pytest.approx(exact.x, abs=2e-3)
    assert np.all(np.asarray(values) >= np.asarray(jax.jit(score)(starts)))
    many = np.random.default_rng(0).uniform(size=(64, 2)).astype(np.float32)
    # The first steps lead over crests into troughs.
    before, after = jax.jit(lambda x: (_ripples(x), ascend(_ripples, x, 3)[1]))(many)
    # One value may round differently in two programs.
    assert np.all(np.asarray(after) >= np.asarray(before) - 1e-6)
    in_two, in_one = (jax.jit(lambda x, one=one: ascend(_ripples, x, 9, first=4, best=8, in_one=one)[:2])(many) for one in (False, True))
    for two, one in zip(in_two, in_one, strict=True):
        assert np.asarray(one) == pytest.approx(np.asarray(two), abs=1e-6)
    wall = jax.jit(lambda x: ascend(lambda p: jnp.where(p[:, 0] > 0.6, -jnp.inf, p[:, 0]), x, 20))(starts)
    assert np.all(np.asarray(wall[0])[:, 0] <= 0.6) and np.all(np.asarray(wall[1]) > 0.59)


@pytree
class Peaks(jb.Unconstrained):
    """Scores with a broad hill and a narrow, higher one."""

    def estimate(self, arena: Arena, state: Any, t: jax.Array, key: jax.Array) -> Estimate:
        points = arena.belief(state).pool if arena.points is None else arena.points
        low, high = (jnp.sum((points - centre) ** 2, axis=1) for centre in (0.2, 0.7))
        reward = jnp.exp(-4 * low) + 3 * jnp.exp(-30 * high)
        return Estimate(reward=reward, costs=jnp.zeros((1, len(points))), widths=jnp.zeros((2,)))


@pytree
class Ridge(jb.Unconstrained):
    """Scores ``-(a - 2.4)^2 - 25 (x - a / 10)^2``."""

    def estimate(self, arena: Arena, state: Any, t: jax.Array, key: jax.Array) -> Estimate:
        points = arena.belief(state).pool if arena.points is None else arena.points
        a, x = 4 * points[:, 0] + 0.5, points[:, 1]
        return Estimate(
            reward=-jnp.square(a - 2.4) - 25 * jnp.square(x - a / 10), costs=jnp.zeros((1, len(points))), widths=jnp.zeros((2,))
        )


def test_other_axes_are_ascended_again_once_whole_numbers_are_chosen() -> None:
    """The best point is (2, 0.2), and rounded ascents reach (2, 0.24)."""
    box = domains.box({"a": domains.integers(1, 4), "x": (0.0, 1.0)}, candidates=4, starts=2)
    model = jb.surrogate(box, kernels.SquaredExponential(length_scale=LENGTH), noise_variance=NOISE).with_room(1)
    arena, rule = Arena(surrogate=canonicalise(jb.replace(model, kernels=())), horizon=jnp.int32(9)), Ridge()
    point = jax.jit(lambda: rule.select(arena, rule.init(arena), jnp.int32(1), jax.random.key(0))[0].point)()
    assert point is not None and box.from_unit(np.asarray(point)) == pytest.approx([2.0, 0.2], abs=1e-3)


def test_the_whole_numbers_beside_points() -> None:
    two = domains.box({"a": domains.integers(1, 4), "x": (0.0, 1.0), "b": domains.integers(0, 9), "c": ["u", "v"]}, candidates=2)
    # The coordinates are 2.5 and -0.2.
    found = two.from_unit(np.asarray(jax.jit(two.corners)(np.float32([[0.5, 0.3, 0.03, 0.25]]))))
    assert found[0] == pytest.approx(np.asarray([[a, 0.3, b, 0.0] for a in (2, 3) for b in (0, 0)]))
    # Every axis is at 2.1, and in turn at 3.
    five = domains.box({name: domains.integers(1, 4) for name in "abcde"}, candidates=2)
    found = five.from_unit(np.asarray(jax.jit(five.corners)(np.full((1, 5), 0.4, np.float32))))
    assert np.array_equal(found[0], 2 + np.concatenate([np.zeros((1, 5)), np.eye(5)]))


def test_ascents_start_away_from_the_trials_own_points_too() -> None:
    """More of its points than starts lie on the lower hill."""
    box = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=4, starts=4)
    model = jb.surrogate(box, kernels.SquaredExponential(length_scale=LENGTH), noise_variance=NOISE).with_room(9)
    arena, rule = Arena(surrogate=canonicalise(jb.replace(model, kernels=())), horizon=jnp.int32(9)), Peaks()

    @jax.jit
    def chosen(own: jax.Array) -> jax.Array:
        state = rule.init(arena)
        for point in own:
            _, state = rule.place(arena, state, point)
        point = rule.select(arena, state, jnp.int32(1), jax.random.key(0))[0].point
        assert point is not None
        return point

    own = 0.2 + 0.01 * np.random.default_rng(0).standard_normal((8, 2))
    assert chosen(jnp.asarray(own, model.dtype)) == pytest.approx([0.7, 0.7], abs=0.01)


def test_starts_are_the_best_of_every_so_many() -> None:
    values = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    values[3] = np.nan
    expected = [max((n for n in range(start, 50, 7) if n != 3), key=lambda n: values[n]) for start in range(7)]
    assert jax.jit(lambda v: best_of_strides(v, 7))(values).tolist() == expected
    assert jax.jit(lambda v: best_of_strides(v, 80))(values).tolist() == list(range(50))


def test_choices_on_the_edge_are_the_best_of_it() -> None:
    """Lagrange's conditions give the best point of a circle."""

    def look(points: jax.Array) -> tuple[Score, None]:
        reward, cost = -30 * (points[:, 0] - 0.9) ** 2 - 2 * (points[:, 1] - 0.8) ** 2, jnp.sum(points**2, axis=1)[None] - 0.6
        return Score(jnp.where(cost[0] <= 0, reward, -jnp.inf), limited=(reward, cost)), None

    with jax.enable_x64(True):
        box = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=64)
        points, best, _ = jax.jit(lambda pool: best_of_box(box, pool, look(pool)[0], look))(jnp.asarray(np.tile(box.points, (2, 1))))
        x = np.asarray(points[best])
    multiplier = 30 * (0.9 - x[0]) / x[0]
    assert multiplier > 0 and abs(np.sum(x**2) - 0.6) < 1e-4
    assert 2 * (0.8 - x[1]) / x[1] == pytest.approx(multiplier, rel=1e-3)


def test_the_best_of_the_pool_is_chosen_where_no_ascent_leads_to_it() -> None:
    """All other points violate a constraint."""
    box = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=64)
    cube = np.asarray(box.points, np.float32)
    alone, worst = np.argsort(cube[:, 0])[:2]
    assert alone >= box.starts, "the first candidates are started from where a trial has no points"

    def look(points: jax.Array) -> tuple[Score, None]:
        at = [jnp.all(points == cube[number][None], axis=1) for number in (alone, worst)]
        cost, reward = jnp.where(at[0], -1.0, jnp.where(at[1], 1.0, 0.01)), points[:, 0]
        return Score(jnp.where(cost <= 0, reward, -jnp.inf), limited=(reward, cost[None])), None

    points, best, _ = jax.jit(lambda pool: best_of_box(box, pool, look(pool)[0], look))(np.tile(cube, (2, 1)))
    assert np.array_equal(points[best], cube[alone])


def test_penalties_are_softened_to_parabolas_up_to_where_those_are_as_steep() -> None:
    """The penalty is a parabola, and a line beyond costs of 1.

    Its slope is 4 and its price 2. Edges are sought from costs below 1 alone.
    """

    @jax.jit
    def softened(prices: jax.Array) -> tuple[jax.Array, jax.Array]:
        costs = jnp.array([[-1.0, 0.5, 1.0, 3.0], [-2.0, -2.0, -2.0, 0.5]])
        score = Score(jnp.zeros(4), limited=(jnp.full(4, 7.0), costs), slopes=jnp.array([4.0, 4.0]))
        return score.softened(prices).values, score.largest_cost(prices)

    values, largest = softened(np.float32([2.0, 2.0]))
    assert values == pytest.approx([7.0, 6.5, 5.0, -3.5]) and largest == pytest.approx([-1.0, 0.5, 1.0, 0.5])
    assert softened(np.float32([0.0, 0.0]))[0] == pytest.approx([7.0, 5.0, 3.0, -7.0]), "where no point of the pool has a positive cost"


def test_a_third_of_the_candidates_of_many_axes_lies_near_faces() -> None:
    sides = {"a": (0.0, 2.0), "b": (-1.0, 1.0), "c": (1.0, 3.0), "d": ["u", "v", "w"]}
    box, few = domains.box(sides, candidates=384), domains.box({"a": (0.0, 2.0)}, candidates=384)
    unit, moved = box.to_unit(np.asarray(box.points)), np.arange(384) >= 256
    near = np.mean(np.abs(unit[:, :3] - 0.5) > 0.45, axis=1)
    assert near[~moved].mean() < 0.15 and 0.5 < near[moved].mean() < 0.65, "0.1, and 1 - 0.9^8 = 0.57, of uniform points"
    assert len(np.unique(unit[:, :3], axis=0)) == 384 and np.bincount(box.points[moved, 3].astype(int)).min() > 35
    assert np.mean(np.abs(few.points - 1) > 0.9) < 0.15, "one axis has enough"
    boxes = [domains.box({str(axis): (0.0, 1.0) for axis in range(axes)}) for axes in (1, 2, 6, 8, 10)]
    assert [(box.size, box.starts) for box in boxes] == [(1024, 6), (1024, 6), (3072, 6), (82 * 64, 8), (8192, 10)]


def test_ascents_start_on_hilltops() -> None:
    """The best points of a coarse choice all lie on one hill."""
    box, random = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=512), np.random.default_rng(0)
    unit, centres = box.to_unit(np.asarray(box.points)), np.array([[0.4, 0.4], [0.9, 0.9]])
    between = np.sum((unit[:, None] - unit[None]) ** 2, axis=-1)
    assert np.array_equal(np.sort(box.neighbours, axis=1), np.sort(np.argsort(between, axis=1)[:, 1:7], axis=1))
    from_tops = np.sum((unit[:, None] - centres[None]) ** 2, axis=-1)
    heights = np.max(np.array([2.0, 1.9]) - from_tops * np.array([2.0, 20.0]), axis=1).astype(np.float32)
    chosen = jax.jit(hilltops, static_argnums=2)
    wide, narrow = np.argmin(from_tops, axis=0).tolist()
    assert {wide, narrow} <= set(np.asarray(chosen(heights, box.neighbours, box.brief)).tolist())
    assert narrow not in jax.jit(best_of_strides, static_argnums=1)(heights, box.brief).tolist()
    noise = np.where(random.uniform(size=512) < 0.5, np.nan, random.standard_normal(512)).astype(np.float32)
    known = np.where(np.isnan(noise), -np.inf, noise)
    expected = [n for n in np.argsort(-known) if np.all(known[box.neighbours[n]] <= known[n])]
    assert np.asarray(chosen(noise, box.neighbours, 5)).tolist() == expected[:5]


def test_points_go_to_just_within_an_edge_from_both_sides_and_stay_where_there_is_none() -> None:
    points = np.float32([[0.5, 0.3], [0.9, 0.7], [0.0, 0.0]])
    moved = np.asarray(jax.jit(lambda x: to_edge(lambda p: jnp.sum(p * p, axis=1) - 0.64, x))(points))
    assert np.all(np.abs(np.linalg.norm(moved[:2], axis=1) - 0.8) < 2e-5) and np.all(np.linalg.norm(moved[:2], axis=1) <= 0.8)
    # The gradient vanishes there.
    assert np.array_equal(moved[2], points[2])


def test_random_search_draws_all_over_the_box() -> None:
    box = domains.box({"a": (0.0, 2.0), "b": domains.integers(1, 3)}, candidates=4)
    problem = problems.on_box(box, lambda x: x[0], [lambda x: x[1] - 2], noise_variance=NOISE, best=(2.0, (2.0, 1.0)))
    model = jb.surrogate(box, kernels.SquaredExponential(length_scale=LENGTH), noise_variance=NOISE)
    options = {"horizon": 40, "key": jax.random.key(0), "trials": 2}
    a, b = np.moveaxis(np.asarray(jb.simulate(problem, jb.RandomSearch(), model, **options).points), -1, 0)
    assert a.min() >= 0 and 1.8 < a.max() <= 2 and len(np.unique(a)) == a.size
    assert set(np.unique(b)) == {1.0, 2.0, 3.0} and np.abs(np.mean(b) - 2) < 0.3, "2 +- 0.3, 3 standard errors of 80 draws"
    with pytest.raises(InvalidArgument, match=r"RandomSearch.allowed: is a mask of points, which a box has none of"):
        jb.simulate(problem, jb.RandomSearch(allowed=np.ones(box.size, bool)), model, **options)


BEST_NOISE, NOISY, BEST_BETA, FIRST, HORIZON, STARTS = 1e-4, 0.01, 2.0, 12, 31, 128
BOUNDS = estimators.Bounds(reward_width=BEST_BETA, cost_width=BEST_BETA)

BestScore = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def best_score_of(seen: np.ndarray, values: np.ndarray, length: float, penalties: np.ndarray) -> BestScore:
    """Return ``UCB_f - sum_j penalty_j LCB_gj^+`` and gradients, by dense posteriors."""
    inverse = np.linalg.inv(squared_exponential(seen, seen, length) + BEST_NOISE * np.eye(len(seen)))
    weights = inverse @ values

    def at(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        k = squared_exponential(points, seen, length)
        solved = k @ inverse
        sd = np.sqrt(np.maximum(1 - np.sum(k * solved, axis=1), 1e-12))
        mean = k @ weights
        lower = mean[:, 1:] - BEST_BETA * sd[:, None]
        prices = penalties * (lower > 0)
        by_k = weights[:, 0] - prices @ weights[:, 1:].T - BEST_BETA * ((1 + prices.sum(axis=1)) / sd)[:, None] * solved
        # The factors multiply the differences ``seen - points``.
        slopes = by_k * k / length**2
        return mean[:, 0] + BEST_BETA * sd - np.sum(prices * lower, axis=1), slopes @ seen - slopes.sum(axis=1)[:, None] * points

    return at


def best_by_scipy(score: BestScore, many: np.ndarray) -> tuple[float, float]:
    """Return the best of many L-BFGS-B ascents, and the scores' range.

    All ascend in one call, by the sum of their scores, and the best four go on alone: as good as by a call for each of 64, in a sixth of
    the time. Of 48 scores two were found better by more than 1e-4 of their ranges and two worse.
    """
    values, axes = score(many)[0], many.shape[1]
    starts = many.reshape(STARTS, -1, axes)[np.arange(STARTS), values.reshape(STARTS, -1).argmax(axis=1)]

    def ascended(points: np.ndarray, steps: int) -> np.ndarray:
        def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            found, slopes = score(x.reshape(-1, axes))
            return -float(found.sum()), -slopes.ravel()

        bounds = [(0, 1)] * points.size
        return minimize(loss, points.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps}).x.reshape(-1, axes)

    ends = ascended(starts, 50)
    alone = [ascended(ends[n], 1000) for n in np.argsort(-score(ends)[0])[:4]]
    return float(score(np.concatenate([many, ends, *alone]))[0].max()), float(np.ptp(values))


def ackley10_of_unit_size() -> BoxProblem:
    raw = problems.ackley10()
    reward, *costs = raw.functions
    scaled = [lambda x, cost=cost, size=size: cost(x) / size for cost, size in zip(costs, (25.0, 5.0), strict=True)]
    return problems.on_box(raw.domain, lambda x: (reward(x) + 13) / 3, scaled, noise_variance=0.0, best=(13 / 3, raw.best.point))


CASES = {
    "gramacy": (problems.gramacy, 0.3, jb.Rpol),
    "hartmann6": (problems.hartmann6, 0.5, jb.Rpol),
    "ackley10": (ackley10_of_unit_size, 0.7, jb.Unconstrained),
}


def played(problem: Any, length: float, rule: type[Scored] = jb.Rpol, *, trials: int = 4, first: int = FIRST, **options: Any) -> Any:
    """Return a run from random points, because the prior ties all."""
    model = jb.surrogate(problem.domain, kernels.SquaredExponential(length_scale=length), outputs=problem.outputs, **options)
    start = {"key": jax.random.key(1), "initial": jb.InitialDesign(random=first)}
    return jb.simulate(problem, rule(estimator=BOUNDS), model, horizon=HORIZON, trials=trials, **start)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_choices_are_as_good_as_the_best_of_many_ascents_of_scipy(name: str) -> None:
    """At least 14 of 16 lose at most 1e-3 of the range.

    It was so in 98%, 98% and 100% of 128 other choices. Fewer than 14 of 16 have a probability of 1%.
    """
    make, length, rule = CASES[name]
    gaps = gaps_of(make(), length, rule)
    assert np.sum(gaps <= 1e-3) >= 14 and len(gaps) == 16, np.sort(gaps)[::-1]


def gaps_of(problem: BoxProblem, length: float, rule: type[Scored]) -> np.ndarray:
    """Return losses against SciPy's best score, in ranges of the score."""
    run = jax.tree.map(np.asarray, played(problem, length, rule, noise_variance=BEST_NOISE, precision="float64"))
    points = np.concatenate([run.initial_points, run.points], axis=1).astype(float)
    values = np.concatenate([run.initial_values, run.values], axis=1).astype(float)
    cube = problem.domain.to_unit(points)
    many, gaps = qmc.Sobol(cube.shape[-1], seed=7).random(4096), []
    for trial in range(4):
        for t in range(0, HORIZON, 10):
            seen = FIRST + t
            penalties = run.multipliers[trial, t] if rule is jb.Rpol else np.zeros(problem.outputs - 1)
            score = best_score_of(cube[trial, :seen], values[trial, :seen], length, np.asarray(penalties, float))
            best, extent = best_by_scipy(score, many)
            gaps.append((best - score(cube[trial, seen, None])[0][0]) / extent)
    return np.array(gaps)


def best_reward(x: jax.Array) -> jax.Array:
    return jnp.sin(9 * x[0]) * jnp.cos(3 * x[0])


def best_cost(x: jax.Array) -> jax.Array:
    return jnp.cos(7 * x[0]) - 0.3 + x[0]


@pytest.mark.full
def test_regret_on_a_box_is_that_on_a_fine_grid() -> None:
    """Means over 24 trials differ by at most four standard errors.

    On one axis; choices on several are compared with those of SciPy above.
    """
    box, grid, known = domains.box({"a": (0.0, 1.0)}), domains.grid([0.0], [1.0], 401), {"noise_variance": NOISY}
    curves = []
    for problem in (
        problems.on_box(box, best_reward, [best_cost], **known),
        problems.from_functions(grid, best_reward, [best_cost], **known),
    ):
        data = played(problem, 0.2, trials=24, first=3, **known, precision="float32").to_xarray()
        curves.append(np.stack([data.regret.values[0], data.hard_violation.values[0]])[..., [14, 30]])
    means, errors = [curve.mean(axis=1) for curve in curves], [curve.std(axis=1, ddof=1) / np.sqrt(24) for curve in curves]
    assert np.all(np.abs(means[0] - means[1]) <= 4 * np.hypot(*errors)), (means, errors)


def part_reward(x):
    return -((x[0] - 0.6) ** 2) - (x[1] - 0.7) ** 2 - (x[2] - 0.1) ** 2


SUCH_THAT = {"inequality": ["a + b + c <= 1"], "equality": ["a + b + c = 1", "a <= 2 * b"]}
INSIDE = {
    f"{type(one).__name__} {kind}": (one, part) for one in (jb.Cei(), jb.Scbo(), jb.RandomSearch()) for kind, part in SUCH_THAT.items()
}


@pytest.mark.full(but=("Cei equality",))
@pytest.mark.parametrize(("algorithm", "such_that"), INSIDE.values(), ids=INSIDE)
def test_every_point_of_a_trial_is_inside(algorithm, such_that):
    part = domains.box(dict.fromkeys("abc", (0.0, 1.0)), such_that=such_that)
    problem = jb.problems.on_box(part, part_reward, [], noise_variance=1e-2)
    # The projection of (0.6, 0.7, 0.1) takes 0.15 off two coordinates and 0.1 off the third.
    np.testing.assert_allclose(problem.best.point, [0.45, 0.55, 0.0], atol=1e-6)
    assert problem.best.gradient < 1e-3
    model = jb.surrogate(part, jb.kernels.Matern52(length_scale=0.5), noise_variance=1e-2, outputs=1, precision="float32")
    run = jb.simulate(problem, algorithm, model, horizon=6, trials=2, key=0, initial=jb.InitialDesign(random=4))
    points = np.asarray(run.points, np.float64).reshape(-1, 3)
    total = points.sum(axis=1)
    # An equality holds up to the rounding of float32; inequalities hold exactly.
    assert np.max(np.abs(total - 1)) < 3e-7 if "=" in such_that[0].replace("<=", "") else np.max(total) <= 1
    assert points.min() >= 0 and (len(such_that) == 1 or np.max(points[:, 0] - 2 * points[:, 1]) <= 0)
