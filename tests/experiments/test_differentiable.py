"""Parts of the experiment on tuning by derivatives, each against what it must give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from experiments.differentiable import measurements
from experiments.differentiable.settings import Knots
from jaxbandit.gradients import SmoothedLoss, regret
from tests.support.toy_losses import SPACING, Follow, toy


def test_a_schedule_is_linear_in_the_logarithm_of_the_round():
    width = Knots(values=np.array([1.0, 3.0, 4.0]), horizon=100)
    found = [float(width(jnp.float32(t), jnp.zeros(2))[0]) for t in (1, 10, 10**1.5, 100, 1000)]
    np.testing.assert_allclose(found, [1.0, 3.0, 3.5, 4.0, 4.0], rtol=1e-5)


def test_errors_of_gradients_fall_as_the_root_of_their_number():
    gradients = 2 + np.random.default_rng(0).standard_normal((4096, 3))
    one, four = (measurements._relative_error(gradients, count) for count in (1, 4))
    np.testing.assert_allclose([one, four], [0.5, 0.25], rtol=0.05)  # sqrt(3) over 2 sqrt(3), in 4,096 and 1,024 groups


@pytest.mark.full
def test_losses_and_random_search_are_those_of_the_trials():
    problem, model = toy()

    def build(params):
        return Follow(place=params["x"][0] ** 2 + params["x"][1] ** 2 - 0.5, spread=0.0), model

    loss = SmoothedLoss(problem, build, horizon=2, pairs=4, measure=regret)
    places = np.array([[0.1, 0.0], [0.3, 0.2], [0.0, 0.0]])
    found = measurements.losses_of(loss, {"x": jnp.asarray(places)}, 3, jax.random.key(0))
    np.testing.assert_allclose(found, np.repeat(0.5 + (places**2).sum(axis=1)[:, None], 3, axis=1), atol=SPACING)
    start = {"x": jnp.asarray([0.4, -0.4])}
    best = measurements.random_search(loss, (start, build), 240, 3, 3, jax.random.key(0))
    assert float(jnp.sum(best["x"] ** 2)) < 0.01  # the best of 80 points, whose next has 0.11
    assert isinstance(build(best)[0], jb.Algorithm)
