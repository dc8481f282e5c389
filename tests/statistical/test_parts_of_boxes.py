"""Points on parts of boxes lie inside up to 1e-9 sides."""

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import domains

SIDES = {"seven": "abcdefg", "mixture": "abcde", "several": "abcde"}
SUCH_THAT = {
    "seven": ["a + b + c + d + e + f + g <= 1"],
    "mixture": ["a + b + c + d + e = 1"],
    "several": ["a + b + c + d + e = 1", "a <= 2 * b", "0.1 <= a + c <= 0.6"],
}
# Number of trials; each has ten points of the design and 57 rounds.
TRIALS, DESIGN, HORIZON = 50, 10, 57


@pytest.mark.full
@pytest.mark.parametrize("name", SIDES)
def test_no_point_of_thousands_is_outside(name):
    """The cases choose 50 * 67 * 3 = 10,050 points."""
    part = domains.box(dict.fromkeys(SIDES[name], (0.0, 1.0)), such_that=SUCH_THAT[name], candidates=1024, starts=2)
    kernel = jb.kernels.Matern52(length_scale=0.4)
    family = jb.problems.gp_draws(domain=part, kernel=kernel, noise=jb.problems.Gaussian(variance=1e-4))
    with jax.enable_x64(True):
        model = jb.surrogate(part, kernel, noise_variance=1e-4, precision="float64")
        run = jb.simulate(family, jb.Cei(), model, horizon=HORIZON, trials=TRIALS, key=0, initial=jb.InitialDesign(random=DESIGN))
        points = np.concatenate([np.asarray(run.initial_points), np.asarray(run.points)], axis=1).reshape(-1, part.dimension)
    assert points.dtype == np.float64 and len(points) == TRIALS * (DESIGN + HORIZON)
    excess = points @ np.asarray(part.region.rows).T - np.asarray(part.region.bounds)
    outside = np.where(np.asarray(part.region.equal), np.abs(excess), np.maximum(excess, 0)) * part.dimension
    print(f"{name}: {len(points):,} points, the furthest {outside.max():.1e} of a side outside")
    assert max(outside.max(), -points.min(), points.max() - 1) <= 1e-9
