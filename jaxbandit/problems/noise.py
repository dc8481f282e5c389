"""Noise models: what is added to the mean values of ``k = 1 + m`` outputs, reward first.

A model works in two steps. ``draw`` makes a round's randomness without knowing which point will be chosen, so that it cannot depend
on the policy and all rounds are drawn at once, outside the loop; ``apply`` turns it into the noise at the chosen point.

All models have mean zero, or the mean of their table; scales are in the units of the outputs. ``validate`` raises ``InvalidArgument``.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static

__all__ = [
    "CentredPoisson",
    "Gaussian",
    "Mirrored",
    "Noise",
    "Noiseless",
    "PerOutput",
    "PerPoint",
    "Residuals",
    "StudentT",
    "Uniform",
    "check_points",
]

Array = jax.Array


class Noise(Protocol):
    """The protocol of noise models."""

    def draw(self, key: Array, outputs: int, dtype: Any) -> Any:
        """A round's randomness, a pytree of arrays."""
        ...

    def apply(self, drawn: Any, index: Array) -> Array:
        """Noise ``[outputs]`` of an observation at grid ``index``."""
        ...

    def validate(self, outputs: int) -> None:
        """Raise ``InvalidArgument`` on parameters outside their range."""
        ...


@pytree
class Gaussian:
    """Independent Gaussian noise of given ``variance >= 0``: one number, or ``[k]``, one per output.

    Papers write ``N(0, 0.05)`` for either; say which you mean by ``Gaussian(variance=...)`` or :meth:`from_sd`.
    """

    variance: Any = 1.0

    @classmethod
    def from_sd(cls, sd: Any) -> Gaussian:
        """Gaussian noise of standard deviation ``sd >= 0``, one number or ``[k]``."""
        checks.nonnegative("sd", sd)
        return cls(variance=np.square(np.asarray(sd, np.float64)))

    def draw(self, key: Array, outputs: int, dtype: Any) -> Array:
        scale = jnp.broadcast_to(jnp.sqrt(jnp.asarray(self.variance, dtype)), (outputs,))
        return scale * jax.random.normal(key, (outputs,), dtype)

    def apply(self, drawn: Array, index: Array) -> Array:
        return drawn

    def validate(self, outputs: int) -> None:
        checks.nonnegative("Gaussian.variance", self.variance)
        _check_per_output("Gaussian.variance", self.variance, outputs)


@pytree
class Noiseless:
    """No noise: observations are the mean values."""

    def draw(self, key: Array, outputs: int, dtype: Any) -> Array:
        return jnp.zeros((outputs,), dtype)

    def apply(self, drawn: Array, index: Array) -> Array:
        return drawn

    def validate(self, outputs: int) -> None:
        """Nothing to check."""


@pytree
class Uniform:
    """Independent uniform noise on ``[-half_width, half_width]``, ``half_width >= 0``: one number, or ``[k]``, one per output."""

    half_width: Any = 1.0

    def draw(self, key: Array, outputs: int, dtype: Any) -> Array:
        scale = jnp.broadcast_to(jnp.asarray(self.half_width, dtype), (outputs,))
        return scale * jax.random.uniform(key, (outputs,), dtype, -1, 1)

    def apply(self, drawn: Array, index: Array) -> Array:
        return drawn

    def validate(self, outputs: int) -> None:
        checks.nonnegative("Uniform.half_width", self.half_width)
        _check_per_output("Uniform.half_width", self.half_width, outputs)


@pytree
class StudentT:
    """Independent heavy-tailed noise ``scale * t_df``: each of ``df > 0`` and ``scale >= 0`` one number, or ``[k]``, one per output.

    The variance is ``scale^2 df / (df - 2)``, infinite for ``df <= 2``; ``df = 1`` is Cauchy and has no mean either.
    """

    df: Any = 3.0
    scale: Any = 1.0

    def draw(self, key: Array, outputs: int, dtype: Any) -> Array:
        df, scale = (jnp.broadcast_to(jnp.asarray(value, dtype), (outputs,)) for value in (self.df, self.scale))
        return scale * jax.random.t(key, df, (outputs,), dtype)

    def apply(self, drawn: Array, index: Array) -> Array:
        return drawn

    def validate(self, outputs: int) -> None:
        checks.positive("StudentT.df", self.df)
        checks.nonnegative("StudentT.scale", self.scale)
        _check_per_output("StudentT.df", self.df, outputs)
        _check_per_output("StudentT.scale", self.scale, outputs)


@pytree
class CentredPoisson:
    """Counts less their mean, ``Poisson(rate) - rate`` with ``rate >= 0``: one number, or ``[k]``, one per output.

    Needs JAX's default PRNG (threefry), the only one that ``jax.random.poisson`` knows.
    """

    rate: Any = 1.0

    def draw(self, key: Array, outputs: int, dtype: Any) -> Array:
        rate = jnp.broadcast_to(jnp.asarray(self.rate, dtype), (outputs,))
        return jax.random.poisson(key, rate, (outputs,)).astype(dtype) - rate

    def apply(self, drawn: Array, index: Array) -> Array:
        return drawn

    def validate(self, outputs: int) -> None:
        checks.nonnegative("CentredPoisson.rate", self.rate)
        _check_per_output("CentredPoisson.rate", self.rate, outputs)


@pytree
class Residuals:
    """Bootstrap from data: a random row of a table of residuals, read at the chosen point.

    Attributes:
      table: ``[n, M]`` residuals (data minus their mean), in the units of the outputs; every row is equally likely.
      weights: what multiplies a residual, one number or ``[k]``; ``(1, -1)`` goes with a constraint ``g = -f + h``.
      shared: whether all outputs read one row, as one reading gives both reward and cost, or each draws its own.
    """

    table: Any
    weights: Any = 1.0
    shared: bool = static(default=True)

    def draw(self, key: Array, outputs: int, dtype: Any) -> tuple[Array, Array]:
        """Row numbers ``[k]`` and weights ``[k]``; which row does not depend on the point, what it says does."""
        rows = jax.random.randint(key, (1,) if self.shared else (outputs,), 0, np.shape(self.table)[0])
        return jnp.broadcast_to(rows, (outputs,)), jnp.broadcast_to(jnp.asarray(self.weights, dtype), (outputs,))

    def apply(self, drawn: tuple[Array, Array], index: Array) -> Array:
        rows, weights = drawn
        return weights * jnp.asarray(self.table)[rows, index].astype(weights.dtype)

    def validate(self, outputs: int) -> None:
        checks.shape("Residuals.table", self.table, (None, None), remedy="one row per sample, one column per point")
        if 0 in np.shape(self.table):
            raise checks.InvalidArgument(f"Residuals.table: no samples (shape {list(np.shape(self.table))}); give at least one row")
        checks.finite("Residuals.table", self.table)
        checks.finite("Residuals.weights", self.weights)
        _check_per_output("Residuals.weights", self.weights, outputs)


@pytree
class PerOutput:
    """A model of its own for every output: ``PerOutput(models=(Gaussian(variance=0.01), Noiseless()))``, reward first."""

    models: tuple[Any, ...]

    def draw(self, key: Array, outputs: int, dtype: Any) -> tuple[Any, ...]:
        keys = jax.random.split(key, len(self.models))
        return tuple(model.draw(keys[number], 1, dtype) for number, model in enumerate(self.models))

    def apply(self, drawn: tuple[Any, ...], index: Array) -> Array:
        return jnp.concatenate([model.apply(part, index) for model, part in zip(self.models, drawn, strict=True)])

    def validate(self, outputs: int) -> None:
        if len(self.models) != outputs:
            raise checks.InvalidArgument(f"PerOutput.models: {len(self.models)} models for {outputs} outputs; give one per output")
        for model in self.models:
            model.validate(1)


@pytree
class PerPoint:
    """Noise drawn afresh at every point of the domain, where other models share a round's draw between points.

    It matters only where more than one point of a round is seen (:class:`~jaxbandit.problems.FullInformation`). ``draw`` keeps a key
    and ``apply`` draws from it and the point's number, so nothing of size ``M`` is stored.
    """

    model: Any = Gaussian()

    def draw(self, key: Array, outputs: int, dtype: Any) -> tuple[Array, Array]:
        """The round's key, and zeros ``[k]`` that carry shape and type."""
        return key, jnp.zeros((outputs,), dtype)

    def apply(self, drawn: tuple[Array, Array], index: Array) -> Array:
        key, zeros = drawn
        return self.model.apply(self.model.draw(jax.random.fold_in(key, index), zeros.shape[0], zeros.dtype), index)

    def validate(self, outputs: int) -> None:
        self.model.validate(outputs)


@pytree
class Mirrored:
    """Some outputs twice, the second time with the sign turned, as two inequalities that share one reading see it.

    Attributes:
      model: the noise of the ``k - e`` outputs before any is doubled.
      doubled: ``e`` of those outputs, by number from 0; each is followed by its negative.
    """

    model: Any = Gaussian()
    doubled: tuple[int, ...] = static(default=())

    def draw(self, key: Array, outputs: int, dtype: Any) -> Any:
        return self.model.draw(key, outputs - len(self.doubled), dtype)

    def apply(self, drawn: Any, index: Array) -> Array:
        noise = self.model.apply(drawn, index)
        return jnp.stack([part for number, value in enumerate(noise) for part in ((value, -value) if number in self.doubled else (value,))])

    def validate(self, outputs: int) -> None:
        single = outputs - len(self.doubled)
        if len(set(self.doubled)) < len(self.doubled) or any(not 0 <= number < single for number in self.doubled):
            raise checks.InvalidArgument(f"Mirrored.doubled: must be different outputs among 0..{single - 1}, got {list(self.doubled)}")
        self.model.validate(single)


def check_points(noise: Any, size: int) -> None:
    """Raise ``InvalidArgument`` when a table of residuals inside ``noise`` has another number of points than ``size``."""
    for part in jax.tree.leaves(noise, is_leaf=lambda node: isinstance(node, Residuals)):
        if isinstance(part, Residuals):
            checks.shape("Residuals.table", part.table, (None, size), remedy="one column per point of the domain")


def _check_per_output(name: str, value: Any, outputs: int) -> None:
    if np.shape(value) not in ((), (outputs,)):
        raise checks.InvalidArgument(f"{name}: expected one number or [{outputs}], got shape {list(np.shape(value))}")
