"""Variants of one object that one compiled program runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument, integer, is_traced, short, short_enough
from jaxbandit.core.declare import Array
from jaxbandit.core.fields import Described, boolean
from jaxbandit.core.pytree import canonicalise, pytree, remember, set_field, static
from jaxbandit.core.text import in_brief


@pytree
class Sweep(Described):
    """Objects of one structure that store equal leaves only once.

    :func:`sweep` makes a sweep of an algorithm, a surrogate or a delay model; ``jaxbandit.simulate`` takes it in place of the object.
    """

    described: ClassVar[str] = "a sweep of one, jaxbandit.sweep(...)"
    # A leaf is in ``shared`` if all objects agree, else in ``differing``; the other entry is None.
    shared: tuple[object, ...]
    differing: tuple[Array | np.ndarray | None, ...]  # [size, ...]
    structure: jax.tree_util.PyTreeDef = static()
    size: int = static()
    # The values of every variant by their paths, where they are known.
    tried: ClassVar[Sequence[Mapping[str, object]]] = ()

    def __repr__(self) -> str:
        numbered = jax.tree.unflatten(self.structure, range(len(self.differing)))
        paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree_util.tree_leaves_with_path(numbered)]
        fields = [f"{path}={in_brief(many)}" for path, many in zip(paths, self.differing, strict=True) if many is not None]
        return f"{type(self).__name__}({self.size} variants of {type(numbered).__name__}: {', '.join(fields)})"

    def pick(self, number: Array | int) -> Any:
        """Return object ``number``, an index ``[]`` that may be traced."""
        traced = is_traced(number)
        if not traced:
            integer("number", number, least=0, most=self.size - 1)
        pairs = zip(self.shared, self.differing, strict=True)
        leaves = [one if many is None else (jnp.asarray(many) if traced else many)[number] for one, many in pairs]
        return jax.tree.unflatten(self.structure, leaves)

    def unstack(self) -> list[Any]:
        """Return all objects, on the host."""
        return [self.pick(number) for number in range(self.size)]


def sweep(base: object, values: Mapping[str, Sequence[object]], *, zipped: bool = False) -> Sweep:
    """Return variants of ``base`` that one compiled program runs.

    One compiled program runs all of them.

    Args:
      base: an algorithm, a surrogate or a delay model.
      values: for the dotted paths of fields (``"estimator.reward_width"``) the values to try. The paths are those of study files.
      zipped: whether values of several fields go together, the first with the first; by default every combination is a variant, and the
        last field varies fastest.

    Raises:
      InvalidArgument: on no field, no value, text for a value, an unknown or static field, or zipped fields with different numbers of
        values.
    """
    if not dataclasses.is_dataclass(base) or isinstance(base, type):
        raise InvalidArgument(f"sweep: base must be an algorithm, a surrogate or a delay model, got {short(base)}")
    boolean("zipped", zipped)
    if not isinstance(values, Mapping) or not values or not all(isinstance(path, str) for path in values):
        example = '{"estimator.reward_width": [1.0, 2.0]}'
        raise InvalidArgument(f"sweep: as values give a mapping from fields to values, as in {example}, got {short(values)}")
    variants, tried = [], combinations(values, zipped=zipped, where="sweep")
    for chosen in tried:
        variant = base
        for path, value in chosen.items():
            variant = set_field(variant, path, value, f"sweep.{path}")
        try:
            variants.append(canonicalise(variant))
        except (TypeError, InvalidArgument) as error:
            raise InvalidArgument(f"sweep: values: expected numbers, or objects that hold numbers, got {short(chosen)}") from error
    for path, given in values.items():
        gather_variants([canonicalise(value) for value in given], f"sweep.{path}")
    return remember(gather_variants(variants), tried=tried)


def combinations(values: Mapping[str, Sequence[object]], *, zipped: bool, where: str) -> list[dict[str, object]]:
    """Return the values of every variant by their paths.

    There is a variant for every combination, or if ``zipped`` for the first values, the second values and so on. Raises
    ``InvalidArgument``, with ``where`` as the place, on a field without a list of values, or zipped lists of different lengths.
    """
    for path, given in values.items():
        short_enough(f"{where}.{path}", given)
        is_list = given.ndim if isinstance(given, np.ndarray | jax.Array) else isinstance(given, Sequence) and not isinstance(given, str)
        if not is_list or not len(given):
            raise InvalidArgument(f"{where}.{path}: expected a list of values, got {short(given)}")
    lengths = {path: len(given) for path, given in values.items()}
    if zipped and len(set(lengths.values())) > 1:
        raise InvalidArgument(f"{where}: zipped lists of values have one length, got {lengths}")
    count = 1 if zipped else math.prod(lengths.values())
    if count > 10**6:
        raise InvalidArgument(f"{where}: must be at most 1,000,000 combinations of values, got {count:,} of {lengths}")
    rows = zip(*values.values(), strict=True) if zipped and values else itertools.product(*values.values())
    return [dict(zip(values, row, strict=True)) for row in rows]


def gather_variants(trees: Sequence[object], where: str = "sweep") -> Sweep:
    """Return objects of one structure as a :class:`Sweep`, comparing leaves by value."""
    structure: Any = jax.tree.structure(trees[0])
    if any(jax.tree.structure(tree) != structure for tree in trees):
        raise InvalidArgument(f"{where}: values of one field are of different kinds; all numbers, or all schedules of one class")
    shared: list[object] = []
    differing: list[Array | np.ndarray | None] = []
    for leaves in zip(*map(jax.tree.leaves, trees), strict=True):
        shapes = sorted({np.shape(leaf) for leaf in leaves})
        if len(shapes) > 1:
            raise InvalidArgument(f"{where}: values of one field must have one shape, got {shapes}")
        are_keys = isinstance(leaves[0], jax.Array) and jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key)
        numbers = jax.random.key_data if are_keys else np.asarray
        same = all(leaf is leaves[0] or np.array_equal(numbers(leaf), numbers(leaves[0])) for leaf in leaves[1:])
        shared.append(leaves[0] if same else None)
        # Leaves stay on the host, where a run picks variants one by one; NumPy cannot store keys.
        differing.append(None if same else jnp.stack(leaves) if are_keys else np.stack(list(map(np.asarray, leaves))))
    return Sweep(shared=tuple(shared), differing=tuple(differing), structure=structure, size=len(trees))
