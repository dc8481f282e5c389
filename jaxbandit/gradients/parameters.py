"""Named hyper-parameters on a logarithmic scale, as a differentiable study takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.checks import Interval, InvalidArgument, check_known, short
from jaxbandit.core.declare import Array, checked, parameters
from jaxbandit.core.fields import Words
from jaxbandit.core.fields import text as text_check
from jaxbandit.core.pytree import float_dtype, set_field
from jaxbandit.surrogates import RangedSurrogate, Surrogate

Params: TypeAlias = Any
"""Parameters, a pytree of floating-point arrays."""
Build: TypeAlias = Callable[[Params], tuple[Algorithm, Surrogate]]
"""Pure function that makes an algorithm and a model from parameters."""

ROUNDING = 1e-6  # by which logarithms keep away from the ends of a range, which rounding to float32 could cross
MODEL = "model."  # what the path of a field of the model begins with, as in study files


@dataclasses.dataclass(frozen=True, eq=False)  # compared and hashed by identity, as a static argument of programs
class Logarithms:
    """Function from the logarithms of hyper-parameters to an algorithm and a model; :func:`logarithms` makes one."""

    algorithm: Algorithm  # whose other fields stay, as the model's do
    model: Surrogate

    def __call__(self, params: Mapping[str, Array]) -> tuple[Algorithm, Surrogate]:
        """Return the algorithm and the model whose fields have these logarithms, by path."""
        built: Any = {"algorithm": self.algorithm, "model": self.model}
        for path, logarithm in params.items():
            built = set_field(built, _whole(path), jnp.exp(logarithm), f"paths.{path}")
        return built["algorithm"], built["model"]

    def limits(self, params: Mapping[str, Array]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the least and the largest logarithm that each field may have, each like ``params``; infinite where there is none."""
        low, high = {}, {}
        for path, value in params.items():
            least, largest = _ends(self.model if path.startswith(MODEL) else self.algorithm, path.removeprefix(MODEL), np.ndim(value))
            with np.errstate(divide="ignore"):  # no least number has the logarithm -inf
                low[path] = np.broadcast_to(np.log(np.maximum(least, 0)) + ROUNDING, np.shape(value))
            high[path] = np.broadcast_to(np.log(largest) - ROUNDING, np.shape(value))
        return low, high


@checked
def logarithms(
    algorithm: Algorithm, model: Annotated[Surrogate, Words("a model, jaxbandit.surrogate(...)")], *paths: str
) -> tuple[dict[str, Array], Logarithms]:
    """Return positive hyper-parameters on a logarithmic scale, and the function that builds an algorithm and a model from them.

    Args:
      algorithm: the algorithm; its values are where the parameters start.
      model: the GP model.
      *paths: dotted paths of fields, as for :func:`~jaxbandit.sweep`; one that begins with ``"model."`` names a field of the model, such
        as ``"model.noise_variance"``, or ``"model.length_scale"`` of a model of :func:`~jaxbandit.ranged`.

    Returns:
      The logarithms of the fields by path, and the ``build`` that :class:`SmoothedLoss` takes. Each has the shape of its field: ``[]`` for
      one number, ``[m]`` for one of each constraint, and ``[G]`` for the noise variance of a model, which has one for each group of
      outputs that share kernel and noise variance, ``[1]`` where all outputs do. :func:`descend` keeps to the range of a field that has
      one, such as a probability, or the length-scale of a ranged model.

    Raises:
      InvalidArgument: on no path, or one that names no field, a static one, or one that does not hold positive numbers.
    """
    if not paths:
        raise InvalidArgument('paths: give at least one field, such as "estimator.reward_width"')
    for number, path in enumerate(paths):
        text_check(f"paths[{number}]", path)
        if path in paths[:number]:
            raise InvalidArgument(f"paths: must name different fields, got {path!r} twice")
    params = {path: jnp.log(jnp.asarray(_positive(algorithm, model, path), float_dtype())) for path in paths}
    return params, Logarithms(algorithm, model)


def _ends(item: Any, path: str, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest value of the field at ``path``, which has ``rank`` axes."""
    *way, name = path.split(".")
    for step in way:
        item = getattr(item, step)
    if isinstance(item, RangedSurrogate) and name == "length_scale":
        low, high = np.asarray(item.low), np.asarray(item.high)
        return (low, high) if rank else (np.max(low), np.min(high))  # one for all axes, whose ranges it may not leave
    check = next(parameter.check for parameter in parameters(type(item)) if parameter.name == name)
    interval = check.interval or Interval()
    return np.asarray(interval.low), np.asarray(interval.high)


def _whole(path: str) -> str:
    return path if path.startswith(MODEL) else f"algorithm.{path}"


def _positive(algorithm: Algorithm, model: Surrogate, path: str) -> np.ndarray:
    """Return the positive numbers in the field at ``path``."""
    item: Any = model if path.startswith(MODEL) else algorithm
    for name in path.removeprefix(MODEL).split("."):
        names = [f.name for f in dataclasses.fields(item)] if dataclasses.is_dataclass(item) else []
        check_known(name, names, f"paths.{path}", f"{type(item).__name__} has")
        item = getattr(item, name)
    set_field({"algorithm": algorithm, "model": model}, _whole(path), item, f"paths.{path}")  # refuses static fields by name
    is_leaf = jax.tree.leaves(item) and jax.tree.leaves(item)[0] is item
    values = np.asarray(item if is_leaf else np.nan, np.float64)
    if not (np.all(np.isfinite(values)) and np.all(values > 0)):
        raise InvalidArgument(f"paths.{path}: expected positive numbers, whose logarithms exist, got {short(item)}")
    return values
