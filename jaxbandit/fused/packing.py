"""Arrays as kernels of accelerators take them: rows by themselves, and all numbers of a trial side by side in one array of each type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.fused.equations import Name, Operand, Unsupported, on_grid
from jaxbandit.fused.rows import Cells, as_numbers, outer_shape

Array = jax.Array


def stored(dtype: Any) -> np.dtype:
    """Return the type in which values are kept in memory: booleans as float32 on the grid and as int32 elsewhere, see ``Slots``."""
    return np.dtype(np.float32) if np.issubdtype(dtype, np.bool_) else np.dtype(dtype)


def kind_of(dtype: Any) -> np.dtype:
    """Return the type of the array that takes numbers of a type in.

    Raises:
      Unsupported: on numbers that are neither real, int32 nor booleans.
    """
    if jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(dtype)
    if dtype in (bool, np.int32):
        return np.dtype(np.int32)
    raise Unsupported(f"it passes numbers of type {dtype} to the grid")


@dataclasses.dataclass(frozen=True)
class Slots:
    """Places of the numbers of several variables in one array for each type.

    Attributes:
      places: for each variable its type, its first place, and how many places it takes.
      widths: length of the array of each type.
    """

    places: dict[Name, tuple[np.dtype, int, int]]
    widths: dict[np.dtype, int]

    @classmethod
    def of(cls, names: Sequence[Name]) -> Slots:
        """Return the places of variables, one after the other."""
        places, widths = {}, dict[np.dtype, int]()
        for name in names:
            kind, count = kind_of(name.aval.dtype), int(np.prod(name.aval.shape))
            places[name] = kind, widths.get(kind, 0), count
            widths[kind] = widths.get(kind, 0) + count
        return cls(places, {kind: widths[kind] for kind in sorted(widths, key=str)})

    def pack(self, values: dict[Name, Array], trials: int) -> list[Array]:
        """Return ``[trials, width]`` for each type, from arrays with a leading axis of trials, which may be 1."""
        parts: dict[np.dtype, list[Array]] = {kind: [] for kind in self.widths}
        for name, (kind, _, count) in self.places.items():
            flat = values[name].reshape(-1, count).astype(kind)
            parts[kind].append(jnp.broadcast_to(flat, (trials, count)))
        return [jnp.concatenate(own, axis=1) if len(own) > 1 else own[0] for own in parts.values()]

    def unpack(self, arrays: Sequence[Array], name: Name) -> Array:
        """Return the values of one variable, with a leading axis of trials."""
        kind, start, count = self.places[name]
        part = arrays[list(self.widths).index(kind)][:, start : start + count]
        return part.reshape(-1, *name.aval.shape).astype(name.aval.dtype)

    def load(self, read: Callable[[int, int], Any], known: dict[Operand, Cells]) -> None:
        """Take numbers into ``known``; ``read(array, place)`` reads one of them."""
        kinds = list(self.widths)
        for name, (kind, start, _) in self.places.items():
            cells = np.empty(name.aval.shape, object)
            for n, place in enumerate(np.ndindex(cells.shape)):
                x = read(kinds.index(kind), start + n)
                cells[place] = x != 0 if name.aval.dtype == bool else x
            known[name] = cells

    def store(self, write: Callable[[int, int, Any], None], known: dict[Operand, Cells]) -> None:
        """Write numbers of ``known``; ``write(array, place, number)`` writes one of them."""
        kinds = list(self.widths)
        for name, (kind, start, _) in self.places.items():
            for n, place in enumerate(np.ndindex(name.aval.shape)):
                x = jnp.asarray(known[name][place])
                write(kinds.index(kind), start + n, (as_numbers(x) if x.dtype == bool else x).astype(kind))


def load_rows(name: Name, size: int, read: Callable[[int], Any], known: dict[Operand, Cells]) -> None:
    """Take the rows of a variable into ``known``; ``read(n)`` reads the ``n``-th."""
    cells = np.empty(outer_shape(name.aval, size), object)
    for n, place in enumerate(np.ndindex(cells.shape)):
        cells[place] = read(n) != 0 if name.aval.dtype == bool else read(n)
    known[name] = cells


def rows_in(name: Name, size: int) -> int:
    """Return the number of rows of a variable."""
    return int(np.prod(outer_shape(name.aval, size)))


def split_names(names: Sequence[Name], size: int) -> tuple[list[Name], list[Name]]:
    """Return the functions of the grid among variables, and the rest."""
    return [name for name in names if on_grid(name.aval, size)], [name for name in names if not on_grid(name.aval, size)]
