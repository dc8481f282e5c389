"""The package's names for types: what a field or an argument may hold, so that signatures say it in one word.

Hyper-parameters are leaves of pytrees. A user gives numbers, lists or arrays; inside a compiled program each is a ``jax.Array``, because
:func:`jaxbandit.core.pytree.canonicalise` has turned it into one. Code that calculates with a ``PerConstraint``, ``PerOutput``, ``PerAxis``
or ``Table`` starts with ``jnp.asarray(...)``, which costs nothing there; a ``Scalar`` needs no conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np
import numpy.typing

from jaxbandit.core.fields import key, path, per_axis, per_constraint, per_function, per_output

Array: TypeAlias = jax.Array
"""An array of JAX, concrete or traced. Comments and docstrings give its shape, such as ``[M, d]``."""

Key: TypeAlias = Annotated[jax.Array, key]
"""A PRNG key of ``jax.random.key``, shape ``[]``."""

Device: TypeAlias = Any
"""A ``jax.Device``, of which jaxlib tells type checkers nothing."""

FilePath: TypeAlias = Annotated[str | Path, path]
"""Where a file or a directory is, or is to be."""

Scalar: TypeAlias = float | jax.Array
"""One number: a Python or NumPy float, an int, or an array of shape ``[]``."""

PerConstraint: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, per_constraint]
"""One number for all constraints, or one for each: shape ``[]`` or ``[m]``."""

PerOutput: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, per_output]
"""One number for all outputs, or one for each, reward first: shape ``[]`` or ``[1 + m]``."""

PerFunction: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, per_function]
"""One number for all functions that an object serves, or one for each: shape ``[]`` or ``[n]``."""

PerAxis: TypeAlias = Annotated[float | Sequence[float] | np.ndarray | jax.Array, per_axis]
"""One number for all axes of the inputs, or one for each: shape ``[]`` or ``[d]``."""

Indices: TypeAlias = Sequence[int] | np.ndarray | jax.Array
"""Numbers of points of a domain, counted from 0: shape ``[n]``."""

Numbers: TypeAlias = numpy.typing.ArrayLike
"""Whatever ``numpy.asarray`` turns into an array on the host: a number, an array, or a sequence of such. Not for traced values."""

Table: TypeAlias = np.ndarray | jax.Array
"""An array of values given by the user or made on the host (NumPy) and used inside compiled programs (JAX)."""
