"""Noise models: random terms added to the mean values of outputs.

There are ``k = 1 + m`` outputs, reward first, and noise is in their units. ``draw`` makes a round's randomness before a point is chosen, so
that it cannot depend on the policy and all rounds are drawn at once, outside the loop; ``apply`` turns it into the noise at the chosen
point. All models have mean zero, or the mean of their table.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from jaxbandit.core import checks, declare, fields
from jaxbandit.core.declare import Array, Declared, Key, Table, checked
from jaxbandit.core.keys import threefry
from jaxbandit.core.pytree import pytree, static
from jaxbandit.delays.models import OutputCount, check_count, single_outputs
from jaxbandit.domains import Domain, tabulate
from jaxbandit.domains.finite import tables

__all__ = [
    "CentredPoisson", "Gaussian", "Heteroscedastic", "Mirrored", "Noise", "Noiseless", "PerOutput", "PerPoint", "Residuals", "StudentT",
    "Uniform",
]  # fmt: skip


def is_number_or_key(dtype: DTypeLike) -> bool:
    """Return whether a type is one of real numbers or of keys."""
    return jnp.issubdtype(dtype, jax.dtypes.prng_key) or jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)


def _are_arrays(value: object) -> bool:
    leaves = checks.leaves(value) if checks.is_shallow(value) else []
    return bool(leaves) and all(isinstance(leaf, np.ndarray | jax.Array) and is_number_or_key(leaf.dtype) for leaf in leaves)


drawn_arrays = fields.Check("what draw(...) returns, arrays", _are_arrays)
function_of_point = fields.function("(x [d])")

Drawn: TypeAlias = Annotated[Any, drawn_arrays]
"""Randomness of one round, in a structure that each model chooses."""
Function: TypeAlias = Callable[[Array], ArrayLike]
"""Function of one point ``x [d]`` in the units of the axes."""
FloatingType: TypeAlias = Annotated[DTypeLike, fields.floating_type]
"""Type of the numbers drawn."""
Index: TypeAlias = Annotated[Array, fields.index, fields.scalar]
"""Number ``[]`` of a point."""


class Noise(Declared, abc.ABC):
    """Abstract base of noise models, pytree dataclasses that draw noise.

    The noise is added to the mean values of every output.
    """

    described: ClassVar[str] = "a noise model of jaxbandit.problems, such as Gaussian(variance=0.05)"
    in_files: ClassVar[bool] = True
    # True if :meth:`apply` depends on the number of the point.
    by_point: ClassVar[bool] = False

    @abc.abstractmethod
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Drawn:
        """Return a round's randomness for ``outputs`` functions, before a point is chosen."""

    def apply(self, drawn: Drawn, index: Array) -> Array:
        """Return the noise ``[outputs]`` at grid ``index []``, by default ``drawn``."""
        result: Array = drawn
        return result

    def variances(self, outputs: int) -> np.ndarray | None:
        """Return the variance ``[outputs]`` on the host, or ``None`` (the default).

        It is a mean over points, and ``None`` if it is not known.
        """
        return None


def _broadcast_to_outputs(value: declare.PerOutput, outputs: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(value, np.float64), (outputs,))


@pytree
class Gaussian(Noise):
    """Independent Gaussian noise.

    Papers write ``N(0, 0.05)`` for either variance or standard deviation. ``Gaussian(variance=...)`` has the variance, a number >= 0 or
    ``[k]`` numbers, one per output; :meth:`from_sd` has the standard deviation.
    """

    variance: Annotated[declare.PerOutput, fields.nonnegative] = 1.0

    @classmethod
    @checked
    def from_sd(cls, sd: Annotated[declare.PerOutput, fields.nonnegative_numbers]) -> Gaussian:
        """Return Gaussian noise of standard deviation ``sd``.

        It is ``>= 0``, one number or ``[k]``. Raises ``InvalidArgument`` on another ``sd``.
        """
        return cls(variance=np.square(np.asarray(sd, np.float64)))

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Array:
        return jnp.sqrt(jnp.asarray(self.variance, dtype)) * jax.random.normal(key, (outputs,), dtype)

    def variances(self, outputs: int) -> np.ndarray | None:
        return _broadcast_to_outputs(self.variance, outputs)


@pytree
class Noiseless(Noise):
    """No noise: observations are the mean values."""

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Array:
        return jnp.zeros((outputs,), dtype)

    def variances(self, outputs: int) -> np.ndarray | None:
        return np.zeros(outputs)


@pytree
class Uniform(Noise):
    """Independent uniform noise on ``[-half_width, half_width]``.

    ``half_width >= 0`` is one number, or ``[k]``, one per output.
    """

    half_width: Annotated[declare.PerOutput, fields.nonnegative] = 1.0

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Array:
        return jnp.asarray(self.half_width, dtype) * jax.random.uniform(key, (outputs,), dtype, -1, 1)

    def variances(self, outputs: int) -> np.ndarray | None:
        return np.square(_broadcast_to_outputs(self.half_width, outputs)) / 3


@pytree
class StudentT(Noise):
    """Independent heavy-tailed noise ``scale * t_df``.

    The variance is ``scale^2 df / (df - 2)``, infinite for ``df <= 2``; ``df = 1`` is Cauchy and has no mean either. Degrees of freedom
    ``df > 0`` and ``scale >= 0`` are one number, or ``[k]``, one per output.
    """

    df: Annotated[declare.PerOutput, fields.positive] = 3.0
    scale: Annotated[declare.PerOutput, fields.nonnegative] = 1.0

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Array:
        return jnp.asarray(self.scale, dtype) * jax.random.t(key, jnp.asarray(self.df, dtype), (outputs,), dtype)


@pytree
class CentredPoisson(Noise):
    """Counts less their mean, ``Poisson(rate) - rate``.

    ``rate`` is one number from 0 to 1e9, because counts are int32, or ``[k]``.
    """

    rate: Annotated[declare.PerOutput, fields.between(0, 1e9, open_low=False)] = 1.0

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Array:
        rate = jnp.broadcast_to(jnp.asarray(self.rate, dtype), (outputs,))
        return jax.random.poisson(threefry(key), rate, (outputs,)).astype(dtype) - rate

    def variances(self, outputs: int) -> np.ndarray | None:
        return _broadcast_to_outputs(self.rate, outputs)


def _one_per_point(words: str, *dimensions: int) -> fields.Shape:
    """Return shapes with these numbers of dimensions, the last for points."""
    return fields.Shape(
        words, lambda actual, n: len(actual) in dimensions and 0 not in actual and n in (None, actual[-1]), lambda place: place.points
    )


@pytree
class Residuals(Noise):
    """Bootstrap from data: a random row of a table of residuals.

    The entry of the chosen point is the residual of all outputs.

    Attributes:
      table: ``[n, M]`` residuals (data minus their mean), in the units of the outputs; every row is equally likely.
      weights: factor of a residual, one number or ``[k]``; ``[1, -1]`` fits a constraint ``g = -f + h``.
    """

    by_point: ClassVar[bool] = True
    table: Annotated[Table, fields.finite, _one_per_point("shape [n, M], one row per sample, one column for each of {n} points", 2)]
    weights: Annotated[declare.PerOutput, fields.finite] = 1.0

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> tuple[Array, Array]:
        """Return row numbers ``[k]`` and weights ``[k]``, whatever the point."""
        rows = jax.random.randint(key, (1,), 0, np.shape(self.table)[0])
        return jnp.broadcast_to(rows, (outputs,)), jnp.broadcast_to(jnp.asarray(self.weights, dtype), (outputs,))

    def apply(self, drawn: tuple[Array, Array], index: Array) -> Array:
        rows, weights = drawn
        return weights * jnp.asarray(self.table)[rows, index].astype(weights.dtype)

    def variances(self, outputs: int) -> np.ndarray | None:
        return np.square(_broadcast_to_outputs(self.weights, outputs)) * np.asarray(self.table).var(axis=0).mean()


@pytree
class PerOutput(Noise):
    """Noise with a model for every output, reward first.

    An example is ``PerOutput(models=(Gaussian(variance=0.01), Noiseless()))``.
    """

    models: Annotated[Sequence[Noise], fields.one_function]

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> tuple[Drawn, ...]:
        keys = jax.random.split(key, len(self.models))
        return tuple(model.draw(keys[number], 1, dtype) for number, model in enumerate(self.models))

    def apply(self, drawn: tuple[Drawn, ...], index: Array) -> Array:
        return jnp.concatenate([model.apply(part, index) for model, part in zip(self.models, drawn, strict=True)])

    def variances(self, outputs: int) -> np.ndarray | None:
        parts = [model.variances(1) for model in self.models]
        return None if any(part is None for part in parts) else np.concatenate(parts)  # type: ignore[arg-type]

    def _check(self, name: str, outputs: int | None) -> None:
        check_count(f"{name}.models", self.models, outputs)


@pytree
class PerPoint(Noise):
    """Noise of a ``model`` drawn afresh at every point of the domain.

    Other models share a round's draw between points. The difference matters only if the learner observes several points in a round
    (:class:`~jaxbandit.problems.FullInformation`). ``draw`` returns a key, and ``apply`` draws by the key and the point's number, so no
    array of size ``M`` is stored.
    """

    by_point: ClassVar[bool] = True
    model: Noise = Gaussian()

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> tuple[Array, Array]:
        """Return the round's key, and zeros ``[k]`` that carry shape and type."""
        return key, jnp.zeros((outputs,), dtype)

    def apply(self, drawn: tuple[Array, Array], index: Array) -> Array:
        key, zeros = drawn
        return self.model.apply(self.model.draw(jax.random.fold_in(key, index), zeros.shape[0], zeros.dtype), index)

    def variances(self, outputs: int) -> np.ndarray | None:
        return self.model.variances(outputs)


@pytree
class Heteroscedastic(Noise):
    """Noise whose variance differs between points: ``sqrt(variance(x))`` times that of a model.

    :meth:`of` makes it from functions of a point.

    Attributes:
      variance: ``[M]`` factor >= 0 on the model's variance at each point, the same for all outputs, or ``[k, M]``.
      model: the noise at ``variance`` 1, by default standard Gaussian.
    """

    by_point: ClassVar[bool] = True
    variance: Annotated[Table, fields.nonnegative, _one_per_point("shape [M] or [k, M], one number for each of {n} points", 1, 2)]
    model: Annotated[Noise, fields.per_output] = Gaussian()

    @classmethod
    @checked
    def of(
        cls,
        domain: Domain,
        variance: Annotated[Function | Sequence[Function], function_of_point | fields.each(function_of_point, least=1)],
        *,
        model: Noise = Gaussian(),
    ) -> Heteroscedastic:
        """Return noise with functions of a point ``x [d]`` as variances.

        ``variance`` is one function, or a list with a function for each output.

        Raises:
          InvalidArgument: when a function cannot be traced, or is not finite and >= 0 at some point of the domain.
        """
        if callable(variance):
            table = tabulate("variance", variance, domain)
        else:
            table = np.stack(tables({f"variance[{number}]": each for number, each in enumerate(variance)}, domain))
        return cls(variance=table, model=model)

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Drawn:
        return self.model.draw(key, outputs, dtype)

    def apply(self, drawn: Drawn, index: Array) -> Array:
        noise = self.model.apply(drawn, index)
        return jnp.sqrt(jnp.asarray(self.variance, noise.dtype)[..., index]) * noise

    def variances(self, outputs: int) -> np.ndarray | None:
        variances = self.model.variances(outputs)
        return None if variances is None else variances * np.asarray(self.variance, np.float64).mean(axis=-1)

    def _check(self, name: str, outputs: int | None) -> None:
        rows = np.shape(self.variance)[:-1]
        if rows and outputs not in (None, rows[0]):
            raise checks.InvalidArgument(f"{name}.variance: must have a row for each of the {outputs} functions, got {rows[0]}")


@pytree
class Further(Noise):
    """Noise of a problem with one more noiseless output.

    Attributes:
      model: the noise of the other outputs.
    """

    in_files = False
    model: Annotated[Noise, fields.unknown] = Gaussian()

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Drawn:
        return self.model.draw(key, outputs - 1, dtype)

    def apply(self, drawn: Drawn, index: Array) -> Array:
        return jnp.append(jnp.asarray(self.model.apply(drawn, index)), 0)

    def variances(self, outputs: int) -> np.ndarray | None:
        variances = self.model.variances(outputs - 1)
        return None if variances is None else np.append(variances, 0)

    def _check(self, name: str, outputs: int | None) -> None:
        self.model.validate(f"{name}.model", None if outputs is None else outputs - 1)


@pytree
class Mirrored(Noise):
    """Noise with some outputs doubled, the copy with the opposite sign.

    Two inequalities share one reading in this way.

    Attributes:
      model: the noise of the ``k - e`` outputs before doubling.
      doubled: numbers from 0 of the ``e`` doubled outputs; each is followed by its negative.
    """

    model: Annotated[Noise, fields.unknown] = Gaussian()
    doubled: tuple[Annotated[int, fields.whole(0)], ...] = static(default=())

    @checked
    def draw(self, key: Key, outputs: OutputCount, dtype: FloatingType) -> Drawn:
        return self.model.draw(key, outputs - len(self.doubled), dtype)

    def apply(self, drawn: Drawn, index: Array) -> Array:
        noise = self.model.apply(drawn, index)
        return jnp.stack([part for number, value in enumerate(noise) for part in ((value, -value) if number in self.doubled else (value,))])

    def _check(self, name: str, outputs: int | None) -> None:
        self.model.validate(f"{name}.model", single_outputs(name, self.doubled, outputs))
