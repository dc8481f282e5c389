"""Benchmarks on boxes."""

import jax
import numpy as np
import pytest

from jaxbandit import problems
from jaxbandit.core import codec
from jaxbandit.domains import box
from jaxbandit.problems import benchmarks
from jaxbandit.problems.boxes import certified

# Each entry has the best reward, its published digits, and whether searches from many points find it.
PUBLISHED = {
    "ackley10": (0.0, 9, False),
    "gramacy": (-0.5998, 4, True),
    "hartmann6": (3.32237, 5, True),
    "keane_bump": (0.747310, 6, False),
    "pressure_vessel": (-6059.714335, 6, False),
    "speed_reducer": (-2996.348165, 6, True),
    "tension_spring": (-0.012665, 6, True),
    "welded_beam": (-1.724852, 6, True),
}


def outputs(problem, point):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(problem.values)(np.asarray(point, np.float64)))


def test_every_benchmark_is_here():
    assert list(PUBLISHED) == benchmarks.__all__


@pytest.mark.parametrize("name", PUBLISHED)
def test_best_points_are_feasible_and_as_good_as_published(name):
    problem, (published, digits, _) = getattr(problems, name)(), PUBLISHED[name]
    point = np.asarray(problem.best.point)
    unit = np.asarray(problem.domain.to_unit(point))
    assert np.all((unit > -1e-6) & (unit < 1 + 1e-6)), "on the box"
    reward, *constraints = outputs(problem, point)
    np.testing.assert_allclose(reward, problem.best.value, rtol=1e-7, atol=1e-11)
    assert max(constraints) <= 1e-7
    assert abs(problem.best.value - published) <= 0.51 * 10.0**-digits
    assert problem.noise.variance == 0 and codec.to_plain(problem) == {"type": name}
    assert np.all(np.isfinite(problem.means)) and problem.outputs == len(problem.functions) == len(constraints) + 1


def test_problems_of_one_benchmark_share_programs():
    assert problems.gramacy().functions == problems.gramacy(noise_variance=0.01).functions != problems.hartmann6().functions


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name, (_, _, is_found) in PUBLISHED.items() if is_found])
def test_searches_find_the_best_point(name):
    problem = getattr(problems, name)()
    found = certified(problem.domain, problem.functions)
    np.testing.assert_allclose(found.value, problem.best.value, rtol=1e-6)
    np.testing.assert_allclose(found.point, problem.best.point, rtol=1e-3)
    assert found.gradient < 1e-5


@pytest.mark.full
def test_no_thinner_vessel_holds_enough():
    """Cost grows with both thicknesses, so the least feasible ones are best."""
    problem = problems.pressure_vessel()
    plane = box({"radius": (10, 200), "length": (10, 200)}, candidates=8)

    def best(shell, head):
        whole = jax.numpy.asarray([shell, head])
        functions = [lambda x, f=f: f(jax.numpy.concatenate([whole.astype(x.dtype), x])) for f in problem.functions]
        return certified(plane, functions)

    found = best(13, 7)
    np.testing.assert_allclose(found.value, problem.best.value, rtol=1e-7)
    np.testing.assert_allclose(found.point, problem.best.point[2:], rtol=1e-6)
    assert np.isnan([float(best(*thinner).value) for thinner in ((12, 99), (99, 6))]).all()
