"""Kernels of some of the axes of a domain, of which products are kernels of mixed domains."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import whole
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Array
from jaxbandit.kernels.base import Axes, Kernel, on_points
from jaxbandit.kernels.elementary import Constant


@pytree
class OnAxes(Kernel):
    """A kernel of some of the axes: ``kernel(x[axes], y[axes])``.

    Products of them are kernels of mixed domains, sums are additive kernels::

        OnAxes(kernel=SquaredExponential(length_scale=0.5), axes=(0, 1)) * OnAxes(kernel=Categorical(), axes=(2,))

    Attributes:
      kernel: the kernel; what it has one per axis belongs to ``axes``, in their order.
      axes: numbers of the axes, from 0.
    """

    kernel: Kernel
    axes: tuple[Annotated[int, whole(0)], ...] = static(default=(0,))

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        own = np.asarray(self.axes)
        return self.kernel(jnp.asarray(x)[:, own], jnp.asarray(y)[:, own])

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return self.kernel.diag(jnp.asarray(x)[:, np.asarray(self.axes)])

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...] | None:
        inner = self.kernel.along_axes(len(self.axes))
        if inner is None:
            return None
        own: dict[int, Kernel] = dict(zip(self.axes, inner, strict=True))
        return tuple(own.get(axis, Constant(variance=1.0)) for axis in range(dimension))

    @checked
    def check_axes(self, dimension: Axes) -> None:
        if max(self.axes) >= dimension:
            raise checks.InvalidArgument(
                f"OnAxes.axes: must be among 0..{dimension - 1} for points of {dimension} axes, got {checks.short(list(self.axes))}"
            )
        self.kernel.check_axes(len(self.axes))

    def _check(self, name: str, outputs: int | None) -> None:
        if not self.axes or len(set(self.axes)) < len(self.axes):
            raise checks.InvalidArgument(f"{name}.axes: must be at least one axis, each once, got {list(self.axes)}")


@checked
def parts_on_axes(kernel: Kernel, axes: tuple[Annotated[int, whole(0)], ...]) -> Iterator[tuple[Kernel, tuple[int, ...]]]:
    """Return the kernels that a kernel on ``axes`` is made of and that are made of no others, each with the axes that it sees."""
    if isinstance(kernel, OnAxes):
        yield from parts_on_axes(kernel.kernel, tuple(axes[number] for number in kernel.axes))
        return
    held = [getattr(kernel, field.name) for field in dataclasses.fields(kernel)]  # type: ignore[arg-type]
    inner = [value for value in held if isinstance(value, Kernel)]
    if not inner:
        yield kernel, axes
    for part in inner:
        yield from parts_on_axes(part, axes)
