"""Whole runs in one kernel choose as XLA does, under JAX's interpreter; no device is needed."""

from __future__ import annotations

import functools
import re
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, fused, kernels, problems
from jaxbandit.algorithms.base import Algorithm, Arena, Observation
from jaxbandit.core.pytree import canonicalise
from jaxbandit.engine.rounds import take_in
from jaxbandit.fused import whole_gpu
from jaxbandit.fused.rounds import State
from tests.support.algorithms import ALGORITHMS
from tests.support.scores import scored

ROUNDS, TRIALS = 40, 2  # after a few rounds points are near others, and a wrong root shows
PLATFORMS = ("gpu", "tpu")


@functools.cache
def problem() -> problems.FullInformation:
    """18 x 35 points: on a GPU several tiles along both axes, with cells that repeat points behind either."""
    rng = np.random.default_rng(1)
    domain = domains.product([np.sort(rng.random(18)), np.sort(rng.random(35))])
    features = rng.standard_normal((3, 5)) @ np.sin(np.outer(np.arange(1, 6), domain.points @ np.array([3.0, 4.0])))
    return problems.full_information(problems.from_tables(domain, features[0], features[1:] - 0.3, noise=problems.Gaussian(variance=0.05)))


@functools.cache
def model(form: str) -> jaxbandit.Surrogate:
    """A model of rank 32 to 64, two chunks of a root, whose features on an axis are more than a tile is high."""
    kernel = kernels.SquaredExponential(length_scale=0.35)
    return jaxbandit.surrogate(problem().domain, kernel, noise_variance=0.05, outputs=3, form=form)


def noise_of(trials: int) -> Any:
    """``[T, k, trials]`` normal numbers."""
    return 0.2 * jax.random.normal(jax.random.key(5), (ROUNDS, 3, trials))


def played_by_xla(algorithm: Algorithm, indices: Any, noise: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """The last states of XLA, without what is believed, and how far points are below its best score; it learns what is seen at them."""
    algorithm = canonicalise(algorithm)
    arena = Arena(surrogate=canonicalise(model("product").without_kernels()), horizon=jnp.int32(ROUNDS))

    def trial(points: Any, noise: Any) -> Any:
        def one(state: Any, given: Any) -> Any:
            t, point, eps = given
            by_xla, score = scored(algorithm, arena, state, t, jax.random.key(0))
            seen = Observation(index=point, values=jnp.asarray(problem().means)[:, point] + eps)
            return take_in(algorithm, arena, by_xla.state, seen, t), jnp.max(score) - score[point]

        last, gaps = jax.lax.scan(one, algorithm.init(arena), (jnp.arange(1, ROUNDS + 1, dtype=jnp.int32), points, noise))
        return State.of(last).others, gaps

    return jax.jit(jax.vmap(trial, in_axes=(0, -1)))(indices, noise)


# A product form has an expansion of its own on GPUs; another form has the general one.
@pytest.mark.full
@pytest.mark.parametrize(("name", "form"), [("rpol", "product"), ("cbo", "features"), ("config", "product")])
def test_whole_runs_in_a_kernel_choose_as_well_as_xla(name: str, form: str) -> None:
    algorithm, means, noise = ALGORITHMS[name](), np.asarray(problem().means), noise_of(TRIALS)
    play = functools.partial(fused.whole_run, algorithm, model(form), interpret=True)
    on_gpu, on_tpu = (jax.jit(functools.partial(play, platform=platform))(means, noise) for platform in PLATFORMS)
    assert on_gpu[0].shape == (TRIALS, ROUNDS) and len(np.unique(on_gpu[0])) > TRIALS + 1
    points = np.concatenate([on_gpu[0], on_tpu[0], (np.asarray(on_gpu[0]) + 1) % means.shape[1]])
    states, gaps = played_by_xla(algorithm, points, np.concatenate([noise] * 3, axis=-1))
    assert np.max(gaps[: 2 * TRIALS]) < 2e-5
    assert np.max(gaps[2 * TRIALS :]) > 1e-3  # the points beside those chosen are worse
    for by_xla, *by_kernels in zip(states, on_gpu[1], on_tpu[1], strict=True):
        np.testing.assert_allclose(np.concatenate(by_kernels), by_xla[: 2 * TRIALS], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("axes", [(3, 5), None])
def test_cells_that_repeat_a_point_count_once(axes: tuple[int, int] | None) -> None:
    """The grid of 15 points is a table of 16 x 32 cells."""
    cut = whole_gpu.Cut.of(15, axes)
    rows = whole_gpu.TiledRows(size=15, shape=cut.shape, axis=None, places=jnp.asarray(cut.places))
    assert cut.shape == (16, 32)
    for point in range(15):
        score = -jnp.abs(jnp.asarray(cut.repeats, jnp.float32) - point)
        assert rows.first_largest(score) == point and rows.sum(score) == -sum(abs(other - point) for other in range(15))
        assert rows.first_largest(rows.select(rows.iota(jnp.int32) == point, np.float32(-99), score)) == (1 if point == 0 else point - 1)
        assert rows.at(score - 1, point) == -1
        assert divmod(point, cut.width) == tuple(int(place[0]) for place in np.nonzero(cut.places == point))


@pytest.mark.full
@pytest.mark.parametrize(("platform", "call"), [("gpu", "mosaic_gpu_v2"), ("tpu", "tpu_custom_call")])
def test_whole_runs_lower_to_one_kernel(platform: str, call: str) -> None:
    play = jax.jit(functools.partial(fused.whole_run, ALGORITHMS["rpol"](), model("product"), platform=platform))
    lowered = play.trace(np.asarray(problem().means), noise_of(128)).lower(lowering_platforms=({"gpu": "cuda"}.get(platform, platform),))
    text = lowered.as_text()
    assert re.findall(r"custom_call @([\w$.]+)", text) == [call] and not re.search("[x<]f64>", text)


@pytest.mark.parametrize(("name", "words"), [("rpol-thompson", "random numbers"), ("bpe", "functions of the grid"), ("se3", "branch")])
def test_whole_runs_that_no_kernel_plays(name: str, words: str) -> None:
    with pytest.raises(fused.Unsupported, match=words):
        fused.whole_run(ALGORITHMS[name](), model("features"), np.asarray(problem().means), noise_of(1), platform="tpu", interpret=True)


def test_tables_of_another_shape_are_refused() -> None:
    means, noise = np.asarray(problem().means), noise_of(1)
    for given, words in (((means[:, 1:], noise), "means: expected shape"), ((means, noise[:, 1:]), "noise: expected shape")):
        with pytest.raises(jaxbandit.InvalidArgument, match=words):
            fused.whole_run(ALGORITHMS["rpol"](), model("product"), *given, platform="gpu", interpret=True)


def test_a_trial_that_a_block_of_a_gpu_cannot_hold() -> None:
    """The figure is that of the shared memory, which the compiler would refuse otherwise."""
    with (
        mock.patch.object(whole_gpu, "SHARED", 40_000),
        pytest.raises(fused.Unsupported, match=r"takes \d{2},\d{3} bytes of shared memory, of which a block has 40,000"),
    ):
        fused.whole_run(ALGORITHMS["rpol"](), model("product"), np.asarray(problem().means), noise_of(1), platform="gpu", interpret=True)
