"""Simulations on parts of boxes: every point of a trial is inside, and the certified optimum is that of the part."""

import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import domains


def reward(x):
    return -((x[0] - 0.6) ** 2) - (x[1] - 0.7) ** 2 - (x[2] - 0.1) ** 2


@pytest.mark.parametrize("such_that", [["a + b + c <= 1"], ["a + b + c = 1", "a <= 2 * b"]])
def test_every_point_of_a_trial_is_inside(such_that):
    part = domains.box(dict.fromkeys("abc", (0.0, 1.0)), such_that=such_that)
    problem = jb.problems.on_box(part, reward, [], noise_variance=1e-2)
    # The projection of (0.6, 0.7, 0.1) takes 0.15 off two coordinates and 0.1 off the third.
    np.testing.assert_allclose(problem.best.point, [0.45, 0.55, 0.0], atol=1e-6)
    assert problem.best.gradient < 1e-3
    model = jb.surrogate(part, jb.kernels.Matern52(length_scale=0.5), noise_variance=1e-2, outputs=1, precision="float32")
    for algorithm in (jb.Cei(), jb.Scbo(), jb.RandomSearch()):
        run = jb.simulate(problem, algorithm, model, horizon=6, trials=2, key=0, initial=jb.InitialDesign(random=4))
        points = np.asarray(run.points, np.float64).reshape(-1, 3)
        total = points.sum(axis=1)
        # An equality holds up to the rounding of float32; inequalities hold exactly.
        assert np.max(np.abs(total - 1)) < 3e-7 if "=" in such_that[0].replace("<=", "") else np.max(total) <= 1
        assert points.min() >= 0 and (len(such_that) == 1 or np.max(points[:, 0] - 2 * points[:, 1]) <= 0)
