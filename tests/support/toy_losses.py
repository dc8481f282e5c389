"""An algorithm whose regret is a given function of its parameters."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from jaxbandit.algorithms.base import Decision, Traits

# Rewards are 1, 0.999, ..., -1, so regrets are 0 to 2 in steps of 0.001.
POINTS = 2001
SPACING = 2.0 / (POINTS - 1)


@jb.pytree
class Follow(jb.Algorithm):
    """Choose the point of regret ``1 + place``, sometimes a random one.

    It learns nothing.
    """

    name = "follow"
    traits = Traits(learns=False)
    place: Any
    spread: Any

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        wanted = 1 + self.place + self.spread * jax.random.normal(key)
        index = jnp.clip(jnp.round(wanted / SPACING), 0, POINTS - 1).astype(jnp.int32)
        return Decision(index=index, widths=jnp.ones(arena.constraints + 1)), state


@functools.cache
def toy() -> tuple[jb.problems.Problem, jb.Surrogate]:
    domain = jb.domains.product([np.linspace(0.0, 1.0, POINTS)])
    problem = jb.problems.from_tables(
        domain, np.linspace(1.0, -1.0, POINTS), np.zeros((0, POINTS)), noise=jb.problems.Gaussian(variance=0.01)
    )
    kernel = jb.kernels.SquaredExponential(length_scale=1.0)
    # The model is quick to build and not used.
    return problem, jb.surrogate(domain, kernel, noise_variance=0.01, outputs=1, form="features")
