"""Problems drawn at random on boxes: their best feasible points against SciPy's, moments of draws, and runs on them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import jaxbandit as jb
from jaxbandit import InvalidArgument, canonicalise, domains, kernels, problems
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.numerics.ascent import to_edge
from jaxbandit.problems.drawn import SEARCH

BOX = domains.box({"a": (0.0, 2.0), "b": (-1.0, 1.0)}, candidates=16, starts=2, steps=3)
FAMILY = problems.gp_draws(domain=BOX, kernel=kernels.Matern52(length_scale=0.3), constraints=2)


@functools.cache
def instances() -> Any:
    """Instances that several tests look at, from one program: of 6 keys, and of the first 3 trials of a run with key 2."""

    @jax.jit
    def sampled(family: problems.AbstractProblem) -> Any:
        trials = jax.vmap(lambda trial: stream_key(trial_key(jax.random.key(2), trial), Stream.PROBLEM))(jnp.arange(3))
        return jax.vmap(family.sample)(jnp.concatenate([jax.random.split(jax.random.key(0), 6), trials]))

    return jax.tree.map(np.asarray, sampled(canonicalise(FAMILY)))


def functions(waves: Any, trial: int) -> Any:
    """The means ``[3, ...]`` of an instance at points of the unit cube, and their gradients at one, in float64."""
    frequencies, phases, sizes = (np.asarray(part, np.float64)[trial] for part in jax.tree.leaves(waves))

    def turns(unit: np.ndarray) -> np.ndarray:
        return np.asarray(2 * np.pi * (np.einsum("kfd,...d->k...f", frequencies, unit) + phases.reshape(3, *[1] * (unit.ndim - 1), -1)))

    def values(unit: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("k...f,kf->k...", np.cos(turns(unit)), sizes))

    def slopes(unit: np.ndarray) -> np.ndarray:
        return np.asarray(-2 * np.pi * np.einsum("kf,kf,kfd->kd", np.sin(turns(unit)), sizes, frequencies))

    return values, slopes


def climbed(values: Any, slopes: Any, start: np.ndarray) -> np.ndarray:
    limits = {"type": "ineq", "fun": lambda x: -values(x)[1:], "jac": lambda x: -slopes(x)[1:]}
    given = {"jac": lambda x: -slopes(x)[0], "bounds": [(0, 1)] * len(start), "constraints": limits}
    return np.clip(minimize(lambda x: -values(x)[0], start, **given).x, 0, 1)


@pytest.mark.full
def test_the_best_feasible_point_is_that_of_scipy_from_many_starts() -> None:
    """Short of it by at most 1e-3, where deviations are 1: 2e-4 is the most of 32 draws, and constraints are to hold by 1e-5.

    Its gradient is below .1 but where a corner of constraints is met to 1e-5 only.
    """
    many = jax.tree.map(lambda leaf: leaf[:6], instances())
    for trial in range(6):
        values, slopes = functions(many.waves, trial)
        unit = np.random.default_rng(trial).uniform(size=(1000, 2))
        table = values(unit)
        order = np.argsort(-(table[0] - 5 * np.sum(np.maximum(table[1:], 0), axis=0)))[:100:10]
        best, found = jax.tree.map(lambda leaf, trial=trial: leaf[trial].astype(np.float64), many.best), []
        for start in [*unit[order], np.asarray(BOX.to_unit(best.point))]:
            reached = values(climbed(values, slopes, start))
            found += [reached[0]] if np.all(reached[1:] <= 1e-7) else []
        assert max(found) - 1e-3 < best.value < max(found) + 1e-5
        at_best = np.asarray(values(np.asarray(BOX.to_unit(best.point))))
        np.testing.assert_allclose(at_best[0], best.value, atol=1e-5)
        assert np.all(at_best[1:] <= 1e-6)
        np.testing.assert_allclose(np.asarray(many.means)[trial], values(np.asarray(BOX.to_unit(BOX.points))), atol=2e-5)
    assert np.median(many.best.gradient) < 0.05 and np.nanmin(many.best.gap) >= 0


def test_points_beyond_two_constraints_reach_their_corner() -> None:
    """Of edges whose normals are 105 degrees apart, each step to one of which leads away from the other."""
    turn, corner, away = np.deg2rad(105), np.array([0.4, 0.5]), np.array([[0.05, 0.2], [0.2, 0.05], [0.1, 0.1]])
    normals = np.array([[1.0, 0.0], [np.cos(turn), np.sin(turn)]])
    points = corner + away @ np.linalg.inv(normals).T  # beyond the edges by as much

    def worst(x: jax.Array) -> jax.Array:
        return jnp.max((x - corner[None].astype(np.float32)) @ normals.T.astype(np.float32), axis=1)

    reached = jax.jit(lambda points: to_edge(worst, points, SEARCH.to_corner))(points.astype(np.float32))
    assert np.all((np.asarray(reached, np.float64) - corner) @ normals.T <= 1e-7)
    assert np.allclose(reached, corner, atol=1e-4)


@pytest.mark.full
def test_draws_have_the_covariance_of_the_kernel() -> None:
    """Means of products over 400 draws, within 5 of their standard errors."""
    # Nobody looks at optima here, nor whether any point is feasible: 192 of 4,112 points, in one attempt.
    family = jb.replace(FAMILY, looked_at=FAMILY.looked_at[:192], constraint_count=1, attempts=1)
    draw = jax.jit(lambda keys: jax.vmap(family.sample)(keys).means)
    reward = np.asarray(draw(jax.random.split(jax.random.key(1), 400)), np.float64)[:, 0]
    unit = np.asarray(BOX.to_unit(BOX.points))
    distance = np.sqrt(5 * np.sum((unit[:, None] - unit[None]) ** 2, axis=-1)) / 0.3
    expected = (1 + distance + distance**2 / 3) * np.exp(-distance)
    products = reward[:, :, None] * reward[:, None]
    assert np.all(np.abs(products.mean(0) - expected) < 5 * products.std(0) / np.sqrt(400))


@pytest.mark.full
def test_runs_have_instances_of_their_own_and_the_same_bits_beside_others() -> None:
    """In whatever company: on a CPU trials on a box are played one after the other, by one program for as many."""
    options: dict[str, Any] = {"horizon": 4, "key": jax.random.key(2)}
    model = FAMILY.model(noise_variance=0.01, precision="float32")  # for draws differ between precisions
    several, others = (jb.simulate(FAMILY, jb.RandomSearch(), model, trials=trials, **options) for trials in (3, [2, 5, 9]))
    np.testing.assert_array_equal(several.points[2], others.points[0])
    np.testing.assert_array_equal(several.values[2], others.values[0])
    assert len(np.unique(np.asarray(several.values)[:, 0, 0])) == 3
    own, points = jax.tree.map(lambda leaf: leaf[6:], instances()), np.asarray(several.points)
    means = np.stack([functions(own.waves, trial)[0](BOX.to_unit(points[trial])) for trial in range(3)], axis=2)  # [3, 4, 3]
    np.testing.assert_allclose(several.values, means.T, atol=0.25)  # noise has a deviation of 0.05, functions of 1
    gaps = own.best.value[:3, None] - means[0].T
    assert several.summary().rows[0]["R/t"] == pytest.approx(np.mean(gaps), abs=1e-4)


def test_an_infeasible_family_and_what_is_refused() -> None:
    family = problems.gp_draws_infeasible("code", domain=domains.box({"x": (-10.0, 10.0)}, candidates=8))
    assert isinstance(family, problems.families.BoxDraws) and family.slack == 0.1
    np.testing.assert_allclose(family.model().kernels[0].kernel.length_scale, [0.05])
    np.testing.assert_allclose(family.looked_at[family.start], [0.5])
    curved = domains.box({"x": domains.log(1.0, 2.0)}, candidates=8)
    for make, words in (
        (lambda: problems.gp_draws(domain=curved), "kernel: must be given on a box with sides that are not linear"),
        (lambda: problems.gp_draws(domain=curved, kernel=kernels.RationalQuadratic()), "kernel: RationalQuadratic has no draws on a box"),
        (lambda: problems.gp_draws(domain=BOX, noise=problems.PerPoint(model=problems.Gaussian())), r"BoxDraws\.noise: PerPoint has a"),
        (lambda: problems.full_information(FAMILY), r"FullInformation\.domain"),
    ):
        with pytest.raises(InvalidArgument, match=f"^{words}"):
            make()


@pytest.mark.full
def test_infeasible_instances_are_shifted_from_the_least_value_of_the_box() -> None:
    instance = problems.gp_draws_infeasible(domain=domains.box({"x": (-5.0, 5.0)}, candidates=16)).sample(jax.random.key(0))
    means = np.asarray(instance.means_of(np.linspace(-5, 5, 5001)[:, None]))
    assert np.isnan(instance.best.value) and means[1].min() == pytest.approx(0.1, abs=1e-4)
