"""Sessions of one small problem, under values of its simulations."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from jaxbandit import kernels
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.session import Model, Session
from tests.support import conformance

HORIZON, SEED = 12, 5
KEY = jax.random.key(SEED)
BOUNDS = ("minimise loss", ("cost <= 0.2", "purity >= 0.5"))
MODEL = Model(kernel=kernels.SquaredExponential(length_scale=0.3), noise_variance=0.05, form="features")


def create(directory: Path, algorithm: Any = None, **options: Any) -> Session:
    """Return a session on the conformance tests' domain.

    It has a loss to minimise and two constraints, and the model is in their units.
    """
    objective, constraints = BOUNDS
    options = {"key": KEY, "horizon": HORIZON, "objective": objective, "constraints": constraints, "standardise": False} | options
    chosen = jaxbandit.Rpol() if algorithm is None else algorithm
    return Session.create(directory, conformance.study()[0].domain, chosen, options.pop("model", MODEL), **options)


@functools.cache
def noise(stream: Stream = Stream.NOISE) -> np.ndarray:
    """The noise ``[T, 3]`` of trial 0 of a simulation."""

    @jax.jit
    def drawn() -> jax.Array:
        rounds, key = jnp.arange(1, HORIZON + 1, dtype=jnp.int32), stream_key(trial_key(KEY, 0), stream)
        return jax.vmap(lambda t: conformance.study()[0].draw(round_key(key, t)))(rounds)

    return np.asarray(drawn())


def in_units(values: Any) -> dict[str, float]:
    """Return a reward and two costs in the session's units."""
    reward, first, second = (float(value) for value in values)
    return {"loss": -reward, "cost": first + 0.2, "purity": 0.5 - second}


def measured(ticket: Any) -> dict[str, float]:
    """Return a simulation's values at a ticket's point and round."""
    means = np.asarray(conformance.study()[0].means, np.float32)[:, ticket.index]
    own = noise()[ticket.round - 1] if ticket.round else noise(Stream.DESIGN)[ticket.number - 1]
    return in_units(means + own)
