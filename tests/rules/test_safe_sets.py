"""Expanders of a safe set, by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from jaxbandit import domains, estimators, kernels, replace, safety

# Safe sets by hand.


@jax.jit
def before_data(model: jaxbandit.Surrogate) -> tuple[Any, safety.Intervals]:
    """The posterior and the intervals of round 1."""
    posterior = model.init()
    return posterior, safety.intervals(model, posterior, estimators.Bounds(), jnp.int32(1), jax.random.key(0))


def test_expansion_without_anything_outside_or_to_examine() -> None:
    domain = domains.grid([0.0], [1.0], 5)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.1, form="features")
    posterior, known = before_data(model)
    everything, nothing = np.ones(5, bool), np.zeros(5, bool)
    for expansion in (safety.Expansion(), safety.Expansion(lipschitz=1.0), safety.Expansion(together=False)):
        widest = jax.jit(lambda safe, expansion=expansion: expansion.widest(model, posterior, known, safe, safe))
        assert int(widest(everything)) == int(widest(nothing)) == 5


def test_the_widest_of_many_blocks() -> None:
    """More candidates than a block holds; the first block has no expander."""
    domain = domains.grid([0.0], [10.0], 201)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.5), noise_variance=0.1, form="features")
    posterior, known = jax.device_get(before_data(model))
    lower = np.full(201, -1.0)
    lower[150] = -9.0  # only this point, with L = 1, reaches a point outside, 7.5 away
    mean, sd = known.mean.copy(), known.sd.copy()
    mean[1], sd[0] = lower + known.widths[1] * sd[1], np.linspace(2, 1, 201)
    safe = np.ones(201, bool)
    safe[:3] = False
    by_hand = replace(known, mean=mean, sd=sd)
    widest = jax.jit(lambda *sets: safety.Expansion(lipschitz=1.0).widest(model, posterior, jax.tree.map(jnp.asarray, by_hand), *sets))
    near = safe & (np.asarray(domain.points)[:, 0] - 0.1 <= 1.0)
    assert int(widest(safe, safe)) == 3 and near[3], "wider, and near enough"
    assert int(widest(safe, safe & ~near)) == 150


def test_an_expander_is_judged_by_the_noise_at_its_own_point() -> None:
    """Before any data, a point expands under a table of noise as it does under its own entry for all points."""
    domain = domains.grid([0.0], [2.0], 12)
    kernel = kernels.SquaredExponential(length_scale=0.4)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=0.1, form="features")
    table = np.where(np.arange(12) % 2 == 0, 1e-3, 30.0)[None]
    posterior, known = jax.device_get(before_data(model))
    known = replace(known, mean=np.stack([known.mean[0], np.linspace(-2.0, 2.5, 12, dtype=np.float32)]))
    safe, points = np.arange(12) < 6, np.arange(12)
    expands = jax.jit(lambda noise: safety.Expansion().expands(replace(model, noise_variance=noise), posterior, known, safe, points))
    found = np.asarray(expands(table))
    alone = [np.asarray(expands(np.full(1, value))) for value in (1e-3, 30.0)]
    np.testing.assert_array_equal(found, np.where(np.arange(12) % 2 == 0, *alone))
    assert 0 < found.sum() < 12 and np.any(alone[0] != alone[1])
