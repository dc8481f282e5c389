"""Roles of problems."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, canonicalise, delays, domains, estimators, kernels, problems, replace, testing
from tests.support.study_files import names
from tests.support.unchecked import unchecked

DOMAIN = domains.grid([0.0], [1.0], 8)
X = np.asarray(DOMAIN.points)[:, 0]


@jaxbandit.pytree
class Alternating(problems.AbstractProblem):
    """User's problem with two-valued noise of its own."""

    domain: domains.Domain
    means: Any
    step: Any = 0.1
    noise: problems.Noise = problems.Noiseless()
    name: str = jaxbandit.static(default="alternating")

    def draw(self, key: jax.Array) -> jax.Array:
        return self.step * jax.random.rademacher(key, (), jnp.float32)

    def observe(self, index: jax.Array, drawn: jax.Array) -> jax.Array:
        return jnp.asarray(self.means)[:, index] + drawn


def alternating() -> Alternating:
    return Alternating(domain=DOMAIN, means=np.stack([X, X - 0.5]))


def test_a_problem_of_the_users_own_runs() -> None:
    problem = alternating()
    model = jaxbandit.surrogate(DOMAIN, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.01)
    run = jaxbandit.simulate(problem, jaxbandit.RandomSearch(), model, horizon=6, trials=3, key=jax.random.key(0), block=1)
    off = np.asarray(run.values) - np.moveaxis(np.asarray(problem.means)[:, np.asarray(run.indices)], 0, -1)
    np.testing.assert_allclose(np.abs(off), 0.1, rtol=1e-5)
    np.testing.assert_allclose(off[..., 0], off[..., 1], rtol=1e-5)
    assert not np.any(np.asarray(run.status)) and {1.0, -1.0} == set(np.sign(off).ravel())


def test_the_base_class_has_defaults() -> None:
    problem = alternating()
    assert (problem.outputs, problem.is_random, problem.reveals_constraints, problem.norm) == (2, False, False, None)
    assert isinstance(problem.delay, delays.NoDelay) and problem.sample(jax.random.key(0)) is problem
    problem.validate()
    with pytest.raises(InvalidArgument, match=r"'alternating' does not show its constraint functions.*full_information"):
        problem.constraint_sample(problem.draw(jax.random.key(0)))


FAMILY = problems.rkhs_1d_binding(8)
FIXED = problems.sine(4)


@pytest.mark.parametrize(
    ("problem", "is_random", "reveals"),
    [
        (FIXED, False, False),
        (FAMILY, True, False),
        (problems.with_equalities(FIXED, tolerance=0.1), False, False),
        (problems.full_information(FIXED), False, True),
        (problems.full_information(FAMILY), True, True),
    ],
    ids=["problem", "family", "equalities", "full", "full-family"],
)
def test_wrappers_forward_the_roles_of_the_problem_inside(problem: Any, is_random: bool, reveals: bool) -> None:
    assert isinstance(problem, problems.AbstractProblem)
    assert (problem.is_random, problem.reveals_constraints) == (is_random, reveals)
    instance = problem.sample(jax.random.key(1))
    assert (instance.is_random, instance.reveals_constraints) == (False, reveals)
    assert np.shape(instance.means) == (problem.outputs, problem.domain.size)
    if reveals:
        assert instance.constraint_sample(instance.draw(jax.random.key(2))).shape == (problem.constraints, problem.domain.size)


def from_tables(**options: Any) -> problems.Problem:
    return problems.from_tables(DOMAIN, X, X - 0.5, **options)


def from_functions(**options: Any) -> problems.Problem:
    return problems.from_functions(DOMAIN, lambda x: x[0], [lambda x: x[0] - 0.5], **({"noise_variance": 0.1} | options))


@pytest.mark.parametrize("make", [from_tables, from_functions])
def test_noise_is_given_by_its_variance_or_as_a_model(make: Any) -> None:
    for given in (0.05, [0.05, 0.0]):
        assert repr(make(noise_variance=given).noise) == repr(problems.Gaussian(variance=given))
    with pytest.raises(InvalidArgument, match="noise_variance: must be >= 0, got -1"):
        make(noise_variance=-1.0)
    with pytest.raises(InvalidArgument, match=r"noise_variance: give either it or noise, got 0\.05 and Noiseless"):
        make(noise_variance=0.05, noise=problems.Noiseless())


def test_none_stands_for_the_defaults() -> None:
    problem = from_tables(noise=None, delay=None)
    assert (problem.noise, problem.delay) == (problems.Gaussian(), delays.NoDelay())


GIVEN = {"artificial": lambda: problems.artificial("P3")}
# Those that read a file are tested in test_data_tables.py.
PROBLEMS = {name: GIVEN.get(name, make) for name, make in names("problem").items() if name != "from_csv"}


@pytest.mark.full(but=("sine", "sine_delayed"))
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_keeps_its_promises(name: str) -> None:
    testing.check_problem(PROBLEMS[name])


USER_DOMAIN = domains.grid([0.0, 0.0], [1.0, 2.0], 3)
USER_X = np.asarray(USER_DOMAIN.points)
KEY = jax.random.key(0)


def with_numpy(x: Any) -> Any:
    return np.interp(x[0], [0.0, 1.0], [0.0, 2.0])


def with_branches(x: Any) -> Any:
    return 1.0 if x[0] > 0.4 else math.sin(x[1])


def of_all(points: Any) -> Any:
    return points[:, 0] - points[:, 1] ** 2


TABLES: dict[Callable[[Any], Any], np.ndarray] = {
    with_numpy: 2 * USER_X[:, 0],
    with_branches: np.where(USER_X[:, 0] > 0.4, 1.0, np.sin(USER_X[:, 1])),
}


@pytest.mark.parametrize("function", TABLES, ids=lambda function: function.__name__)
def test_what_jax_cannot_trace_is_called_point_by_point(function: Callable[[Any], Any]) -> None:
    problem = problems.from_functions(USER_DOMAIN, function, [lambda x: x[0], function], noise_variance=1.0)
    np.testing.assert_allclose(problem.means, [TABLES[function], USER_X[:, 0], TABLES[function]], rtol=1e-15, atol=1e-15)


def model() -> jaxbandit.Surrogate:
    return jaxbandit.surrogate(USER_DOMAIN, kernels.SquaredExponential(length_scale=[0.5, 1]), noise_variance=[0.1, 0.2], form="features")


def problem(**options: Any) -> problems.Problem:
    return problems.from_tables(USER_DOMAIN, [1.0] * 9, [[0.0] * 9], **options)


def test_lists_do_where_arrays_do() -> None:
    """Tables, points, length-scales, widths, noise, delays, initial points and trials."""
    domain = domains.points([[0.0, 0.0], np.array([0.5, 1.0]), jnp.array([1.0, 2.0])])
    np.testing.assert_allclose(domain.points, [[0, 0], [0.5, 1], [1, 2]])
    assert domain.nearest([0.4, 1.2]) == 1
    assert domains.product([[0, 1], np.array([0, 1, 2])]).size == 6
    assert problem(noise=problems.Gaussian(variance=[0.1, 0.2])).means.shape == (2, 9)
    widths = estimators.Bounds(cost_width=[1.0, 2])
    widths.validate(outputs=3)
    assert problems.Problem(domain=USER_DOMAIN, means=[[0.0] * 9, [1.0] * 9]).outputs == 2
    assert np.asarray(kernels.Gram(matrix=[[1.0, 0.5], [0.5, 1.0]]).matrix).shape == (2, 2)
    assert delays.Empirical(values=[0, 3]).mean == 1.5
    assert model().outputs == 2 and jaxbandit.InitialDesign(indices=[1, 2]).count == 2
    assert jaxbandit.metrics.curves(problem(), [0, 1]).regret.shape == (2,)


LATE = delays.Poisson(mean=3.0)


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def delays_of(problem, count=4000):
    """``[count, outputs]`` delays of a problem's default model."""
    model = canonicalise(problem).delay
    return np.asarray(jax.jit(jax.vmap(lambda key: model.draw(key, problem.outputs)))(keys(count)))


def test_sine_delayed_is_sine_with_independent_poisson_delays():
    problem, prompt = problems.sine_delayed(9, noise_variance=0.01), problems.sine(9)
    np.testing.assert_array_equal(problem.means, prompt.means)
    assert (problem.name, problem.noise.variance, problem.delay) == ("sine_delayed", 0.01, delays.Poisson(mean=15.0))
    drawn = delays_of(problem)
    assert np.all(np.abs(drawn.mean(0) - 15) < 5 * np.sqrt(15 / len(drawn)))
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 5 / np.sqrt(len(drawn))
    assert isinstance(prompt.delay, delays.NoDelay)


def test_a_users_problem_takes_a_delay():
    domain = domains.arms(3)
    tables = problems.from_tables(domain, np.zeros(3), np.zeros((2, 3)), delay=LATE)
    functions = problems.from_functions(domain, lambda x: x[0], [lambda x: x[0] - 1], delay=LATE, noise_variance=1.0)
    assert tables.delay == functions.delay == LATE
    assert isinstance(problems.from_tables(domain, np.zeros(3), np.zeros(3)).delay, delays.NoDelay)
    for bad in (unchecked(delays.Poisson, mean=-1.0), delays.PerOutput(delays=(LATE, LATE))):
        with pytest.raises(InvalidArgument, match=r"^delay.mean|^PerOutput.delays: must hold 3 models, one per output, got 2"):
            problems.from_tables(domain, np.zeros(3), np.zeros((2, 3)), delay=bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: problems.rkhs_1d(20),
        lambda: problems.rkhs_1d_binding(20),
        lambda: problems.gp_draws(domain=domains.grid([-2.0], [2.0], 15)),
        lambda: problems.rkhs_2d_draws("f2", 6, centres=10),
        lambda: problems.full_information(problems.rkhs_1d_binding(20)),
    ],
    ids=["rkhs_1d", "rkhs_1d_binding", "gp_draws", "rkhs_2d_draws", "full_information"],
)
def test_instances_have_the_delay_of_their_family(make):
    family = make()
    if isinstance(family, problems.FullInformation):
        family = replace(family, problem=replace(family.problem, delay=LATE))
    else:
        family = replace(family, delay=LATE)
    family.validate()
    many = jax.eval_shape(jax.vmap(family.sample), keys(3))
    assert jax.tree.structure(many.delay) == jax.tree.structure(LATE) and many.delay.mean.shape == (3,)
    assert many.norm is None if isinstance(family, problems.families.GpDraws) else many.norm.shape == (3,)
    with pytest.raises(InvalidArgument, match=r"Lossy\.never"):
        broken = delays.Lossy(never=2.0)
        wrapped = isinstance(family, problems.FullInformation)
        (replace(family.problem, delay=broken) if wrapped else replace(family, delay=broken)).validate()


def test_the_norm_of_rkhs_1d_is_the_bound_it_is_cut_at():
    family = problems.rkhs_1d(30, threshold=0.25)
    many = jax.vmap(canonicalise(family).sample)(keys(5))
    np.testing.assert_allclose(many.means[:, 0] + many.means[:, 1], np.broadcast_to(0.25 * many.norm[:, None], (5, 30)), rtol=1e-4)


def test_the_two_sides_of_an_equality_arrive_together():
    base = problems.from_tables(domains.arms(3), np.zeros(3), np.zeros((2, 3)), delay=LATE)
    problem = problems.with_equalities(base, [1], tolerance=0.1)
    problem.validate()
    drawn = delays_of(problem, 500)
    np.testing.assert_array_equal(drawn[:, 1], drawn[:, 2])
    np.testing.assert_array_equal(drawn[:, [0, 1, 3]], delays_of(base, 500))
    assert (problem.delay.mean, problem.delay.quantile(0.9)) == (3.0, LATE.quantile(0.9))
    assert problem.delay.sub_exponential == LATE.sub_exponential
    prompt = problems.with_equalities(replace(base, delay=delays.NoDelay()), tolerance=0.1)
    assert isinstance(prompt.delay, delays.NoDelay)
    with pytest.raises(InvalidArgument, match=r"Mirrored\.doubled"):
        replace(problem, delay=delays.Mirrored(delay=LATE, doubled=(3,))).validate()
    with pytest.raises(InvalidArgument, match="must hold 3 models, one per output, got 2"):
        problems.with_equalities(replace(base, delay=delays.PerOutput(delays=(LATE, LATE))), tolerance=0.1).validate()


def test_a_sweep_of_the_default_delay_needs_no_new_problem():
    problem = problems.rkhs_2d(points_per_axis=5, centres=10)
    structures = {jax.tree.structure(replace(problem, delay=delays.Poisson(mean=mean))) for mean in (0.0, 25.0, 50.0)}
    assert len(structures) == 1
