"""The one way the library makes a pytree: frozen dataclasses whose floats are leaves and whose shapes are declared static."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import is_sequence_of_numbers

T = TypeVar("T")


def static(*, check: Any = None, symbol: str | None = None, **kwargs: Any) -> Any:
    """Declare a dataclass field static: part of the tree's structure, so a new value means a new trace.

    Args:
      check: what it may hold, a check of :mod:`jaxbandit.core.fields`.
      symbol: the paper's letter for it, under which audit traces write it.
      **kwargs: keyword arguments of ``dataclasses.field``, such as ``default``.
    """
    return dataclasses.field(metadata={"static": True, "check": check, "symbol": symbol}, **kwargs)


def param(default: Any = dataclasses.MISSING, *, check: Any, shape: Any = None, symbol: str | None = None) -> Any:
    """Declare a hyper-parameter beside its field: a leaf of the tree, or an object that holds leaves.

    ``penalty: PerConstraint = param(1.0, check=positive, shape=per_constraint, symbol="rho")`` says all that
    :meth:`~jaxbandit.core.declare.Declared.validate`, :func:`~jaxbandit.core.declare.symbols` and study files need to know of it.

    Args:
      default: value where none is given; without it the field is required.
      check: what it may hold, a check of :mod:`jaxbandit.core.fields`.
      shape: for which functions it may hold numbers of their own, a shape of :mod:`jaxbandit.core.fields`; default one number, or an
        object for all functions of its owner.
      symbol: the paper's letter for it, under which audit traces write it.
    """
    return dataclasses.field(default=default, metadata={"check": check, "shape": shape, "symbol": symbol})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, keyword-only dataclass that JAX sees as a pytree.

    Fields are leaves unless they are declared with :func:`static`. There is no conversion and no check on construction:
    JAX rebuilds the object inside ``jit`` and ``vmap`` with tracers, and with ``None``, in place of numbers.
    """
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    statics = [f.name for f in fields if f.metadata.get("static")]
    keys = [jax.tree_util.GetAttrKey(name) for name in leaves]

    def flatten(x: Any) -> tuple[tuple[Any, ...], Any]:
        return tuple(getattr(x, name) for name in leaves), (cls, *(getattr(x, name) for name in statics))

    def flatten_with_keys(x: Any) -> tuple[tuple[Any, ...], Any]:
        return tuple((key, getattr(x, key.name)) for key in keys), (cls, *(getattr(x, name) for name in statics))

    def unflatten(aux: Any, children: Any) -> Any:
        return cls(**dict(zip(leaves, children, strict=True)), **dict(zip(statics, aux[1:], strict=True)))

    # Not register_dataclass: in JAX 0.10.2 the structures of two dataclasses with equal fields compare equal, so that a cache keyed by
    # structure takes one for the other whenever their hashes share a bucket. The class in the auxiliary data tells them apart.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def replace(obj: T, **changes: Any) -> T:
    """A copy of a pytree dataclass with some fields changed; raises ``TypeError`` on an unknown field."""
    return dataclasses.replace(obj, **changes)  # type: ignore[type-var]


def float_dtype() -> np.dtype:
    """The engine's floating type: float64 when ``jax_enable_x64`` is on, float32 otherwise."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))


def canonicalise(tree: T) -> T:
    """Turn every number and array of a tree into an array of the engine's types, so equal structures share one trace.

    Without it ``beta=1``, ``beta=1.0`` and ``beta=jnp.float32(1)`` would compile three times. A list or tuple of numbers is an array.
    PRNG keys and booleans pass.
    """
    dtype = float_dtype()

    def leaf(x: Any) -> Any:
        x = np.asarray(x) if isinstance(x, list | tuple) else x
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended):
            return x
        kind = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
        if jnp.issubdtype(kind, np.floating):
            return jnp.asarray(x, dtype)
        if jnp.issubdtype(kind, np.integer):
            # A bare integer in a float field (`beta=3`) is a number, not an index; index tables are arrays.
            return jnp.asarray(x, dtype if isinstance(x, int | np.integer) else np.int32)
        return jnp.asarray(x)

    return jax.tree.map(leaf, tree, is_leaf=is_sequence_of_numbers)


def stack(trees: list[T]) -> T:
    """Stack equal-structured trees leaf by leaf along a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *trees)


def signature(tree: Any) -> Any:
    """Structure, shapes and types: equal for trees that one compiled program takes."""
    return jax.tree.structure(tree), tuple((np.shape(x), str(x.dtype)) for x in jax.tree.leaves(tree))


@pytree
class Sweep:
    """``size`` variants of one object, stacked leaf by leaf, as :func:`sweep` makes them."""

    stacked: Any
    size: int = static()


def sweep(base: Any, **values: Any) -> Sweep:
    """Variants of ``base`` that differ in some leaves, for one compiled run over all of them.

    Args:
      base: any pytree dataclass (an algorithm or a surrogate).
      **values: ``field=sequence``; a nested field is written with two underscores (``estimator__reward_width=[1, 2, 3]``).
        Several fields are zipped, so their sequences have one length.

    Raises:
      ValueError: on no field, an unknown or static field, or sequences of different lengths.
    """
    lengths = {name: len(v) for name, v in values.items()}
    if not values or len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ValueError(f"sweep: give at least one field, all with sequences of one length >= 1; got lengths {lengths}")
    size = next(iter(lengths.values()))
    variants = []
    for i in range(size):
        variant = base
        for name, sequence in values.items():
            variant = _set(variant, name.split("__"), sequence[i], name)
        variants.append(canonicalise(variant))
    return Sweep(stacked=stack(variants), size=size)


def _set(obj: Any, path: list[str], value: Any, whole: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(obj)} if dataclasses.is_dataclass(obj) else {}
    swept = [name for name, f in fields.items() if not f.metadata.get("static")]
    if path[0] not in swept:
        why = "is static" if path[0] in fields else "does not exist"
        raise ValueError(f"sweep: {whole!r}: field {path[0]!r} of {type(obj).__name__} {why}; its leaves are {swept}")
    inner = value if len(path) == 1 else _set(getattr(obj, path[0]), path[1:], value, whole)
    return dataclasses.replace(obj, **{path[0]: inner})


def unstack(item: Any, build: Callable[[Any], T] = lambda x: x) -> list[T]:
    """The variants of a :class:`Sweep` as a list (for tests and tables)."""
    return [build(jax.tree.map(lambda x, i=i: x[i], item.stacked)) for i in range(item.size)]


@pytree
class Variants:
    """``size`` trees of one structure, of which only the leaves that differ are held more than once."""

    shared: tuple[Any, ...]  # the leaves, None where trees differ
    differing: tuple[Any, ...]  # [size, ...] where they do, else None
    structure: Any = static()
    size: int = static()

    def pick(self, number: Any) -> Any:
        """Tree ``number``, which may be traced."""
        pairs = zip(self.shared, self.differing, strict=True)
        return jax.tree.unflatten(self.structure, [own if many is None else many[number] for own, many in pairs])


def variants(trees: list[Any]) -> Variants:
    """Gather trees of one structure; leaves are compared by value."""
    structure = jax.tree.structure(trees[0])
    shared: list[Any] = []
    differing: list[Any] = []
    for leaves in zip(*(jax.tree.leaves(tree) for tree in trees), strict=True):
        same = all(_equal(leaves[0], leaf) for leaf in leaves[1:])
        shared.append(leaves[0] if same else None)
        differing.append(None if same else jnp.stack([jnp.asarray(leaf) for leaf in leaves]))
    return Variants(shared=tuple(shared), differing=tuple(differing), structure=structure, size=len(trees))


def _equal(a: Any, b: Any) -> bool:
    return a is b or bool(np.array_equal(np.asarray(a), np.asarray(b)))
