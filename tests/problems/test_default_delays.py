"""Default delays of problems, through families and wrappers."""

import jax
import numpy as np
import pytest

from jaxbandit import InvalidArgument, canonicalise, delays, domains, problems, replace
from tests.support.unchecked import unchecked

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
