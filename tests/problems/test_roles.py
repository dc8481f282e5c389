"""The base class of problems: a problem of the user's own, the roles that wrappers forward, and what is refused for noise and delay."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, delays, domains, kernels, problems

DOMAIN = domains.grid([0.0], [1.0], 8)
X = np.asarray(DOMAIN.points)[:, 0]


@jaxbandit.pytree
class Alternating(problems.AbstractProblem):
    """A problem of the user's own: noise that takes one of two values, the same for all outputs, with its own way to draw it."""

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
