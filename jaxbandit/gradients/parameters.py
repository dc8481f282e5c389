"""Named hyper-parameters on a logarithmic scale, as a differentiable study takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import of_class
from jaxbandit.core.fields import text as text_check
from jaxbandit.core.paths import check_known, set_field
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.types import Array
from jaxbandit.surrogates import Surrogate

Build: TypeAlias = Callable[[Any], tuple[Algorithm, Surrogate]]
"""Pure function that makes an algorithm and a model from parameters, a pytree of floating-point arrays."""

MODEL = "model."  # what the path of a field of the model begins with, as in study files


@takes(algorithm=of_class(Algorithm), model=of_class(Surrogate, "a model, jaxbandit.surrogate(...)"))
def logarithms(algorithm: Algorithm, model: Surrogate, *paths: str) -> tuple[dict[str, Array], Build]:
    """Return positive hyper-parameters on a logarithmic scale, and the function that builds an algorithm and a model from them.

    Args:
      algorithm: the algorithm; its values are where the parameters start.
      model: the GP model.
      *paths: dotted paths of fields, as for :func:`~jaxbandit.sweep`; one that begins with ``"model."`` names a field of the model, such
        as ``"model.noise_variance"``.

    Returns:
      The logarithms of the fields by path, and the ``build`` that :class:`SmoothedLoss` takes.

    Raises:
      InvalidArgument: on no path, or one that names no field, a static one, or one that does not hold positive numbers.
    """
    if not paths:
        raise InvalidArgument('paths: give at least one field, such as "estimator.reward_width"')
    for number, path in enumerate(paths):
        text_check(f"paths[{number}]", path)
    params = {path: jnp.log(jnp.asarray(_positive(algorithm, model, path), float_dtype())) for path in paths}

    def build(params: Mapping[str, Array]) -> tuple[Algorithm, Surrogate]:
        made: tuple[Algorithm, Surrogate] = algorithm, model
        for path, logarithm in params.items():
            made = _with_field(*made, path, jnp.exp(logarithm))
        return made

    return params, build


def _with_field(algorithm: Algorithm, model: Surrogate, path: str, value: Any) -> tuple[Algorithm, Surrogate]:
    """Return algorithm and model with the field at ``path`` set."""
    if path.startswith(MODEL):
        return algorithm, set_field(model, path.removeprefix(MODEL), value, f"paths.{path}")
    return set_field(algorithm, path, value, f"paths.{path}"), model


def _positive(algorithm: Algorithm, model: Surrogate, path: str) -> np.ndarray:
    """Return the positive numbers in the field at ``path``."""
    item: Any = model if path.startswith(MODEL) else algorithm
    for name in path.removeprefix(MODEL).split("."):
        names = [f.name for f in dataclasses.fields(item)] if dataclasses.is_dataclass(item) else []
        check_known(name, names, f"paths.{path}", f"{type(item).__name__} has")
        item = getattr(item, name)
    _with_field(algorithm, model, path, item)  # refuses static fields by name
    leaves = jax.tree.leaves(item)
    values = np.asarray(leaves[0], np.float64) if len(leaves) == 1 and leaves[0] is item else np.asarray(np.nan)
    if not (np.all(np.isfinite(values)) and np.all(values > 0)):
        raise InvalidArgument(f"paths.{path}: expected positive numbers, whose logarithms exist, got {short(item)}")
    return values
