"""Steps of the posterior as GPUs compute them."""

import dataclasses
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import delays, domains, estimators, feedback, kernels, problems
from jaxbandit.engine import simulation
from jaxbandit.engine.cell import Cell
from jaxbandit.surrogates import Prediction, features, posterior
from tests.oracles import gaussian_process as gp

RNG = np.random.default_rng(0)


def test_the_square_root_update_is_the_same() -> None:
    with jax.enable_x64(True):
        root, phi, noise = RNG.standard_normal((7, 7)), RNG.standard_normal(7), np.float64(0.1)
        for ours, theirs in zip(*(jax.jit(way)(root, phi, noise) for way in (features._update_on_gpus, features._update)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (3, 2, 5)])
def test_contractions_are_the_same(shape: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        given = RNG.standard_normal(shape), RNG.standard_normal((6, shape[0]))
        found = jax.jit(features._contract_by_sum)(*given)
        assert found.shape == (*shape[1:], 6)
        np.testing.assert_allclose(found, jax.jit(features._contract_by_product)(*given), rtol=1e-12, atol=1e-12)


def test_features_and_columns_are_read_alike() -> None:
    axis, columns = jnp.asarray(RNG.standard_normal((5, 3))), jnp.asarray([2, 0, 1, 2])
    for read in (features._features_at, features._features_by_column):
        np.testing.assert_array_equal(read(axis, columns, jnp.int32(3)), axis[3][columns])
    table = jnp.asarray(RNG.standard_normal((2, 9)))
    np.testing.assert_array_equal(posterior._column_by_sum(table, jnp.int32(4)), table[:, 4])


@jax.jit
def believed(model: jaxbandit.Surrogate, indices: jax.Array, values: jax.Array) -> Prediction:
    step = lambda state, seen: (model.condition(state, *seen), None)  # noqa: E731
    return model.belief(jax.lax.scan(step, model.init(), (indices, values))[0]).prediction


def test_rows_in_one_block_are_the_dense_posterior() -> None:
    domain = domains.product([np.linspace(0, 1, 7), np.linspace(-1, 2, 5)])
    points, noise = np.asarray(domain.points), 0.05
    indices, values = RNG.integers(domain.size, size=25), RNG.standard_normal((25, 1))
    with jax.enable_x64(True):
        kernel = kernels.Matern32(length_scale=0.2)
        model = jaxbandit.surrogate(domain, kernel, noise_variance=noise, outputs=1, form="rows", horizon=25)
        model = dataclasses.replace(model, forms=tuple(form.in_one_block() for form in model.forms))
        assert model.forms[0].blocks == 1 and not model.forms[0].skips
        belief = jax.device_get(believed(model, indices.astype(np.int32), values))
    gram = gp.matern32(points, points, 0.2)
    mean, sd = gp.mean_and_sd(gram, indices, values[:, 0], noise, 0.0)
    np.testing.assert_allclose(belief.mean[0], mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(belief.sd[0], sd, rtol=0, atol=1e-7)


def test_accelerators_keep_rows_in_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU builds the model with several blocks."""
    problem = problems.sine(8)
    model = jaxbandit.surrogate(problem.domain, kernels.Matern12(), noise_variance=0.1, outputs=2, form="rows", horizon=40)
    played: list[int] = []
    on: Any = Cell.on

    def stop(cell: Cell, *_: object, **__: object) -> None:
        played.append(cell.variants.pick(0)[1].forms[0].blocks)
        raise InterruptedError

    monkeypatch.setattr(simulation, "play_all", stop)
    for platform in ("cpu", "cuda"):
        device = SimpleNamespace(platform=platform, device_kind=platform)
        monkeypatch.setattr(Cell, "on", lambda cell, _, *how, device=device: on(cell, device, *how))
        with pytest.raises(InterruptedError):
            jaxbandit.simulate(problem, jaxbandit.Rpol(), model, horizon=40, key=jax.random.key(0))
    assert played[0] > 1 and played[1] == 1


LATE = {"delay": delays.Geometric(mean=3.0), "capacity": 14}
ON_ACCELERATORS = {
    "wait": (jaxbandit.Rpol(), LATE | {"feedback": feedback.Wait()}),
    "hallucinate": (jaxbandit.Rpol(), LATE | {"feedback": feedback.Hallucinate()}),
    "safeopt": (jaxbandit.SafeOpt(seeds=[49], estimator=estimators.Bounds(reward_width=1.0, cost_width=1.0)), {}),
}


@pytest.mark.full
@pytest.mark.parametrize("name", ON_ACCELERATORS)
def test_loops_of_known_length_choose_alike(name: str) -> None:
    """The horizons differ, so that the two runs share no program."""
    domain = domains.product([np.linspace(0, 1, 10), np.linspace(0, 1, 9)])
    points = np.asarray(domain.points)
    reward, cost = np.sin(5 * points[:, 0]) + points[:, 1], np.cos(4 * points[:, 1]) - 0.2
    problem = problems.from_tables(domain, reward, cost[None], noise=problems.Gaussian(variance=0.05))
    algorithm, options = ON_ACCELERATORS[name]

    def play(horizon: int) -> np.ndarray:
        with jax.enable_x64(True):
            model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.05, outputs=2)
            run = jaxbandit.simulate(problem, algorithm, model, horizon=horizon, trials=3, block=3, key=jax.random.key(0), **options)
        return np.asarray(run.indices)[:, :20]

    with mock.patch.object(jax.lax, "platform_dependent", lambda *given, default, **_: default(*given)):
        as_accelerators = play(21)
    np.testing.assert_array_equal(as_accelerators, play(20))
    assert len(np.unique(as_accelerators)) > 5
