"""The instances of a random family as tables, so that all families of the shoot-out are one compiled program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Options
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain
from jaxbandit.problems import Family, Noise


@jb.pytree
class Instances(Family):
    """The instances that a family gives to the trials of a study, as tables: all families are then one compiled program.

    Attributes:
      domain, noise, delay: the family's.
      keys: ``[n, ...]`` data of the keys that the trials ask by.
      means: ``[n, 1 + m, M]``; NaN, which fails the trial, stands for a key that is not among them.
    """

    domain: Domain
    keys: Any
    means: Any
    noise: Noise
    delay: Delay
    name: str = jb.static(default="instances")

    @property
    def constraints(self) -> int:
        """Number of constraints, ``m``."""
        return int(np.shape(self.means)[1]) - 1

    def sample(self, key: jax.Array) -> jb.problems.Problem:
        """Return the instance that belongs to ``key``."""
        same = jnp.all(jnp.asarray(self.keys) == _bits(key)[None], axis=1)
        means = jnp.where(jnp.any(same), jnp.asarray(self.means)[jnp.argmax(same)], jnp.nan)
        return jb.problems.Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, name=self.name)

    @staticmethod
    def of(family: Family, options: Options) -> Instances:
        """Return the instances that a family gives to a study with these options."""
        root = jax.random.key(options.seed)
        keys = jax.vmap(lambda i: jb.keys.stream_key(jb.keys.trial_key(root, i), jb.keys.Stream.PROBLEM))(jnp.arange(options.trials))
        means = jax.jit(jax.vmap(lambda key: family.sample(key).means))(keys)
        tables: dict[str, Any] = {"keys": np.asarray(_bits(keys)), "means": np.asarray(means)}
        return Instances(domain=family.domain, noise=family.noise, delay=family.delay, **tables)


def _bits(key: jax.Array) -> jax.Array:
    """Return the data of a key as signed integers, as the library holds integers."""
    return jax.lax.bitcast_convert_type(jax.random.key_data(key), jnp.int32)
