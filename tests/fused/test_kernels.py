"""Kernels that play all rounds choose as XLA does, without any device."""

import functools
import re
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas
from jax.experimental.pallas import mosaic_gpu as pallas_gpu

import jaxbandit
from jaxbandit import domains, feedback, fused, kernels, problems
from jaxbandit.algorithms.base import Algorithm, Arena, Observation, Scored
from jaxbandit.core.pytree import canonicalise
from jaxbandit.engine import cell as cells
from jaxbandit.engine import programs, simulation
from jaxbandit.engine.learner import choose_point
from jaxbandit.fused import gpu, plan, tpu
from jaxbandit.rules import scores as scoring
from jaxbandit.rules.scores import Score
from tests.support.algorithms import ALGORITHMS
from tests.support.compiled import SCORED, Program, lowered

# After some rounds points are near others, so that a wrong root shows.
ROUNDS, TRIALS = 30, 2
PLATFORMS = ("gpu", "tpu")
# These run on both platforms and the others on one, and all compile for both.
BOTH = ("rpol", "cbo")


@functools.cache
def problem() -> problems.Problem:
    """Return a problem of 630 points, several tiles of a GPU.

    Cells that repeat points lie behind either axis.
    """
    rng = np.random.default_rng(1)
    domain = domains.product([np.sort(rng.random(18)), np.sort(rng.random(35))])
    tables = rng.standard_normal((3, 5)) @ np.sin(np.outer(np.arange(1, 6), domain.points @ np.array([3.0, 4.0])))
    return problems.from_tables(domain, tables[0], tables[1:] - 0.3, noise=problems.Gaussian(variance=0.05))


@functools.cache
def model(form: str) -> jaxbandit.Surrogate:
    """Return a model of rank 48, with 8 features an axis.

    The rank is two chunks of a root, and 8 is half of a tile's height.
    """
    kernel = kernels.SquaredExponential(length_scale=0.35)
    return jaxbandit.surrogate(problem().domain, kernel, noise_variance=0.05, outputs=3, form=form)


def played(algorithm: Any, platform: str | None, form: str = "product", **options: Any) -> jaxbandit.Trajectory:
    """Return a simulation by a platform's kernel, or by XLA."""

    def plan_of(*given: Any) -> Any:
        return plan.plan_of(*given[:-1], platform)._replace(interpret=True)

    given = {"horizon": ROUNDS, "trials": TRIALS, "initial": jaxbandit.InitialDesign(random=2), "key": jax.random.key(3)} | options
    task, learner = given.pop("problem", problem()), given.pop("learner", model(form))
    with mock.patch.object(cells, "plan_of", plan_of), mock.patch.object(tpu, "PART_ROUNDS", 8):
        return jaxbandit.simulate(task, algorithm, learner, **given, fused=platform is not None)


def believed(arena: Arena, state: Any) -> list[jax.Array]:
    """Return a posterior's shift, variance, variance by the root, and gain."""
    posterior = plan.parted(state)[0]
    [form] = arena.surrogate.model.forms
    return [posterior.shift, posterior.variance, form.spread(posterior.factors[0]), posterior.gain]


def played_and_judged(algorithm: Algorithm, platform: str, form: str) -> Any:
    """Return a kernel's run and XLA's judgement of it.

    The points, what is recorded of them, how far below the best score they are, and those beside them, what XLA would record,
    and the beliefs after the last round of both.
    """
    given = plan.plan_of(algorithm, model(form), problem(), None, platform)._replace(interpret=True)
    algorithm = canonicalise(algorithm)
    means = np.asarray(problem().means, np.float32)
    noise = np.sqrt(0.05) * np.random.default_rng(3).standard_normal((TRIALS, ROUNDS, len(means)))
    own, xlas = (
        Arena(surrogate=canonicalise(jaxbandit.replace(model(each), kernels=())), horizon=jnp.int32(ROUNDS)) for each in (form, "product")
    )

    def shown(state: Any) -> Any:
        return algorithm.diagnose(state).get("multipliers")

    def one(state: Any, given: Any) -> Any:
        t, index, values = given
        scores: list[Any] = []
        with mock.patch.object(scoring, "pick", lambda score, pick=scoring.pick: (scores.append(score), pick(score))[1]):
            choice = choose_point(algorithm, xlas, state, t, jax.random.key(0))
        gaps = [jnp.max(scores[-1]) - scores[-1][(index + beside) % xlas.size] for beside in (0, 1)]
        after = algorithm.update(xlas, choice.state, Observation(index=index, values=values), t)
        return after, (*gaps, choice.decision.widths, shown(state))

    def trial(noise: Any) -> Any:
        tables = jnp.asarray(means)
        run = plan.play(given, algorithm, own, algorithm.init(own), tables, noise, 1)
        seen = jnp.arange(1, ROUNDS + 1, dtype=jnp.int32), run.indices, tables[:, run.indices].T + noise
        last, rounds_played = jax.lax.scan(one, algorithm.init(xlas), seen)
        return run.indices, run.widths, jax.vmap(shown)(run.before), *rounds_played, believed(own, run.last), believed(xlas, last)

    with mock.patch.object(tpu, "PART_ROUNDS", 8):
        return jax.device_get(jax.jit(jax.vmap(trial))(noise.astype(np.float32)))


@pytest.mark.full(but=("rpol",))
@pytest.mark.parametrize("name", SCORED)
def test_choices_are_as_good_as_those_of_xla(name: str) -> None:
    """Widths and multipliers are XLA's, too."""
    ways = list(zip(PLATFORMS, ("features", "product") if name == "cbo" else ("product", "features"), strict=True))
    for platform, form in ways if name in BOTH else [ways[SCORED.index(name) % 2]]:
        points, widths, multipliers, gaps, beside, expected, shown, *ends = played_and_judged(ALGORITHMS[name](), platform, form)
        assert len(np.unique(points)) > TRIALS + 1 and np.max(gaps) < 2e-5
        assert np.max(beside) > 1e-3
        np.testing.assert_allclose(widths, expected, rtol=1e-5)
        if multipliers is not None:
            np.testing.assert_allclose(multipliers, shown, rtol=1e-5, atol=1e-4)
        for by_kernel, by_xla in zip(*ends, strict=True):
            np.testing.assert_allclose(by_kernel, by_xla, rtol=1e-5, atol=2e-5)


def same(one: Any, other: Any) -> None:
    """Check that two trajectories or states differ by rounding only."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, x), y in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(other), strict=True):
        assert x.dtype == y.dtype, path
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4, err_msg=jax.tree_util.keystr(path))


@jaxbandit.pytree
class Burst(problems.Noise):
    """Uniform noise, and infinite noise now and then."""

    rate: Any = 0.02

    def draw(self, key: Any, outputs: int, dtype: Any) -> jax.Array:
        u = jax.random.uniform(key, (outputs,), dtype)
        return jnp.where(u < self.rate, jnp.inf, u - 0.5)


@pytest.mark.full
def test_a_trajectory_is_that_of_xla() -> None:
    """Instances, flags, declarations and hyper-parameters differ between trials.

    Some trials fail: once a value is infinite, so is the score.
    """
    kernel = kernels.SquaredExponential(length_scale=0.3)
    drawn = problems.gp_draws(domain=problem().domain, kernel=kernel, constraints=2, noise=Burst())
    pessimist = jaxbandit.replace(model("product"), prior_mean=np.asarray([0.1, 0.2, 0.3]))
    options = {"problem": drawn, "learner": pessimist, "horizon": 8, "record": "audit", "key": jax.random.key(10)}
    wide = jaxbandit.sweep(jaxbandit.Config(), {"estimator.cost_width": [0.1, 2.0]})
    by_kernel, by_xla = (jax.device_get(played(wide, platform, **options)) for platform in ("tpu", None))
    assert np.any(by_kernel.declared_round > 0) and by_kernel.indices.shape == (2, TRIALS, 8)
    assert np.any(by_kernel.status & jaxbandit.Status.NONFINITE_SCORE) and np.any(by_kernel.failed_round == 0)
    same(by_kernel, by_xla)


@pytest.mark.full
@pytest.mark.parametrize("platform", PLATFORMS)
def test_parts_of_a_run_are_the_run(platform: str) -> None:
    """A part may end within an epoch."""
    with mock.patch.object(simulation, "play_all", side_effect=programs.play_all) as play_all:
        whole = jax.device_get(played(jaxbandit.Se2(epoch=2), platform, horizon=6, initial=None))
    cell, key, pairs = play_all.call_args.args

    def begun() -> Any:
        # On the device where parts leave their state, too: all parts are of one program.
        return jax.device_put(programs.begin_all(cell, key, pairs, mesh=None)[0], jax.devices()[0])

    in_one, _ = programs.advance_all(cell, key, begun(), pairs, np.int32(1), rounds=6, record="all", mesh=None)
    carry = begun()
    for first in (1, 4):
        carry, part = programs.advance_all(cell, key, carry, pairs, np.int32(first), rounds=3, record="all", mesh=None)
        rounds_played = slice(first - 1, first + 2)
        np.testing.assert_array_equal(part["indices"], whole.indices[:, rounds_played])
        np.testing.assert_allclose(part["multipliers"], whole.multipliers[:, rounds_played], rtol=1e-5)
    same(carry, in_one)
    ended = programs.conclude_all(cell, key, carry, pairs, mesh=None)
    np.testing.assert_allclose(ended["information_gain"], whole.information_gain, rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(("platform", "call"), [("gpu", "mosaic_gpu_v2"), ("tpu", "tpu_custom_call")])
def test_simulations_lower_to_one_kernel(platform: str, call: str) -> None:
    for name in SCORED:
        text = lowered(Program(name, fused=True), platform).as_text()
        assert re.findall(r"custom_call @([\w$.]+)", text) == [call], name
        assert not re.search("[x<]f64>", text), name


REASONS = {
    "rpol-thompson": "draws functions",
    "rpol-randomised": "random numbers",
    "se3": "forgets",
    "cei": "holds a number for every point",
    "constrained-thompson": "draws functions",
    "anytime-cbo": "Anytime declares no score",
}


@pytest.mark.parametrize("name", REASONS)
def test_what_no_kernel_plays_has_a_reason(name: str) -> None:
    words = fused.describe(ALGORITHMS[name](), model("features"))
    assert words.startswith("by XLA, because ") and REASONS[name] in words


def test_runs_that_no_kernel_plays_are_refused_by_name() -> None:
    def refused(words: str, **options: Any) -> None:
        with pytest.raises(jaxbandit.InvalidArgument, match=f"fused: no kernel can play the rounds of Rpol, because .*{words}"):
            played(jaxbandit.Rpol(), "tpu", **options)

    refused("late", delay=jaxbandit.delays.Constant(rounds=1))
    refused("depends on the point", problem=jaxbandit.replace(problem(), noise=problems.PerPoint()))
    assert fused.describe(jaxbandit.Rpol(), model("product"), feedback.Wait()) == "by XLA, because its feedback is late"
    assert fused.describe(jaxbandit.Rpol(), model("product")).startswith("one kernel plays all rounds")


def test_a_trial_that_a_block_of_a_gpu_cannot_hold() -> None:
    """The message has the number of bytes of shared memory."""
    # An earlier test may have made the trace.
    plan._trace_one_round.clear_cache()
    with (
        mock.patch.object(gpu.Tiles, "shared_bytes", 40_000),
        pytest.raises(jaxbandit.InvalidArgument, match=r"takes \d{2},\d{3} bytes of shared memory, of which a block has 40,000"),
    ):
        played(jaxbandit.Rpol(), "gpu")


def test_masks_and_whole_numbers_of_a_state_pass_through_the_numbers_of_a_kernel() -> None:
    arrays = [np.asarray([True, False]), np.asarray([[7], [-3]], np.int32), np.float32(0.25)]
    numbers = plan.FlatNumbers.of(arrays)
    table = jnp.asarray([1, 0, 7, -3, 0.25], np.float32)
    cells = numbers.boxes(table)
    flat = numbers.flat(cells)
    # Values that a kernel has compared are masks already.
    assert [bool(x) for x in numbers.flat([np.asarray([jnp.asarray(True), jnp.asarray(False)], object), *cells[1:]])[:2]] == [True, False]
    assert [x.dtype for x in flat] == [bool, bool, np.int32, np.int32, np.float32] and [float(x) for x in flat] == table.tolist()
    for own, back in zip(arrays, numbers.arrays(jnp.stack([table, table])), strict=True):
        assert own.dtype == back.dtype
        np.testing.assert_array_equal(back, np.stack([own, own]))


@jaxbandit.pytree
class Mine(Scored):
    """User's algorithm whose score depends on all points."""

    name = "mine"
    estimator: Any = jaxbandit.estimators.Bounds()

    def score(self, state: Any, estimate: Any) -> Score:
        return Score(estimate.reward - jnp.mean(estimate.reward))


def test_a_score_that_depends_on_other_points_is_refused() -> None:
    assert "the score of a point depends on other points (reduce_sum)" in fused.describe(Mine(), model("features"))


@pytest.mark.parametrize("axes", [(3, 5), None])
def test_cells_that_repeat_a_point_count_once(axes: tuple[int, int] | None) -> None:
    """The grid of 15 points is a table of 512 cells."""
    cut = gpu.Cut.of(15, axes)
    at = np.divmod(np.arange(15), cut.width)
    rows = gpu.TiledRows(size=15, shape=cut.shape, numbers=cut.repeats.astype(np.float32))
    assert cut.shape == (16, 32) and cut.repeats[at].tolist() == list(range(15))
    assert all(divmod(point, cut.width) == tuple(int(cells[point]) for cells in at) for point in range(15))

    def picked(point: jax.Array) -> Any:
        score = -jnp.abs(rows.points() - point)
        return rows.pick(score), rows.pick(rows.select(rows.points() == point, np.float32(-99), score))

    points = np.arange(15, dtype=np.float32)
    best, second, of_nan = jax.jit(lambda: (*jax.vmap(picked)(points), rows.pick(np.float32(np.nan))))()
    np.testing.assert_array_equal(np.ravel(best), points)
    np.testing.assert_array_equal(np.ravel(second), [1, *points[:-1]])
    assert np.asarray(of_nan) == 15


def test_sums_have_all_their_terms() -> None:
    """Odd lengths leave a term over."""
    length = 2 * gpu.Tiles.unrolled_terms + 1
    assert int(jax.jit(lambda: gpu._sum(length, lambda i: np.int32(1) << i, np.int32(0)))()) == 2**length - 1


def test_functions_of_more_features_on_an_axis_than_a_tile_is_high() -> None:
    """Float64 features of every point give the expected values."""
    domain = domains.product([np.linspace(0, 1, 40), np.linspace(0, 1, 5)])
    kernel = kernels.SquaredExponential(length_scale=[0.06, 0.9])
    [form] = jaxbandit.surrogate(domain, kernel, noise_variance=0.05, form="product").forms
    counts = np.bincount(np.asarray(form.columns)[1])
    assert counts.max() > gpu.Tiles.rows and counts.min() < gpu.Tiles.rows
    cut = gpu.Cut.of(domain.size, (40, 5))
    weights = np.random.default_rng(0).standard_normal(form.rank).astype(np.float32)

    def expanded() -> tuple[jax.Array, jax.Array]:
        expansion = gpu.along_two_axes(form, cut, counts)

        def kernel_of_one(u: Any, *refs: Any) -> None:
            *tables, found, table = refs
            found[...] = expansion.run(gpu.TiledRows(size=cut.size, shape=cut.shape), tables, table, u)

        given = (jnp.pad(jnp.asarray(weights)[expansion.order], (0, expansion.beyond)), *expansion.tables)
        result = jax.ShapeDtypeStruct(cut.shape, np.float32)
        scratch = [pallas_gpu.SMEM(expansion.scratch, np.float32)]
        found = pallas.pallas_call(kernel_of_one, out_shape=result, scratch_shapes=scratch, interpret=True)(*given)
        return jax.vmap(form.row, (None, 0))(form.init(), np.arange(domain.size)), found

    phi, found = (np.asarray(x, np.float64) for x in jax.jit(expanded)())
    np.testing.assert_allclose(found, (phi @ weights)[cut.repeats], atol=3e-6)


def test_roots_of_gpus() -> None:
    """Mosaic GPU of JAX 0.10 has no square roots."""
    x = np.asarray([[0.0, 1e-30, 1e-9, 0.3, 1.0, 2.0, 1e30, np.nan]], np.float32)
    root = jax.jit(gpu.TiledRows(size=8, shape=(1, 8)).sqrt)
    with mock.patch.object(jax, "__version_info__", (0, 10, 2)):
        np.testing.assert_allclose(root(x), np.sqrt(np.asarray(x, np.float64)), rtol=2e-7)
        assert np.isnan(np.asarray(root(-x))[0, 3])
