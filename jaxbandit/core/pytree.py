"""Frozen dataclasses as pytrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, check_known, short
from jaxbandit.core.checks import float_dtype as float_dtype
from jaxbandit.core.declare import T
from jaxbandit.core.text import fields_in_brief, html_fields


def static(**kwargs: Any) -> Any:
    """Declare a dataclass field static: a new value means a new trace.

    Args:
      **kwargs: keyword arguments of ``dataclasses.field``, such as ``default``.
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, keyword-only dataclass that JAX sees as a pytree.

    Fields are leaves unless :func:`static` declares them. Nothing is converted. The text of an object, and its table in notebooks, name the
    fields, with the type and shape of an array of many numbers. JAX rebuilds objects inside ``jit`` and ``vmap``, with tracers and with
    ``None`` in place of numbers, without the checks of construction (see ``jaxbandit.core.declare.Declared``).
    """
    if not isinstance(cls, type):
        raise InvalidArgument(f"cls: must be a class, got {short(cls)}; write @jaxbandit.pytree above a class")
    cls = dataclasses.dataclass(frozen=True, kw_only=True, repr=False)(cls)
    if not any("__repr__" in vars(base) for base in cls.__mro__[:-1]):
        cls.__repr__ = lambda self: f"{type(self).__name__}({', '.join(map('='.join, fields_in_brief(self)))})"  # type: ignore[method-assign]
    if not any("_repr_html_" in vars(base) for base in cls.__mro__):
        cls._repr_html_ = lambda self: html_fields(type(self).__name__, fields_in_brief(self))  # type: ignore[attr-defined]
    register(cls)
    return cls


PYTREES = set[type]()


def register(cls: type) -> None:
    """Register a dataclass with JAX as a pytree, unless it already is."""
    if cls in PYTREES:
        return
    PYTREES.add(cls)
    fields = dataclasses.fields(cls)
    statics = [f.name for f in fields if f.metadata.get("static")]
    leaves = [f.name for f in fields if f.name not in statics]
    keys = [jax.tree_util.GetAttrKey(name) for name in leaves]

    def flatten(x: Any) -> tuple[tuple[Any, ...], Any]:
        return tuple(getattr(x, name) for name in leaves), (cls, *(getattr(x, name) for name in statics))

    def flatten_with_keys(x: Any) -> tuple[tuple[Any, ...], Any]:
        return tuple((key, getattr(x, key.name)) for key in keys), (cls, *(getattr(x, name) for name in statics))

    def unflatten(aux: Any, children: Any) -> Any:
        # The constructor would check the values that JAX fills in.
        item: Any = object.__new__(cls)
        for name, value in (*zip(leaves, children, strict=True), *zip(statics, aux[1:], strict=True)):
            object.__setattr__(item, name, value)
        return item

    # With register_dataclass (JAX 0.10.2) the structures of two dataclasses with equal fields compare equal, and a cache keyed by structure
    # confuses them whenever their hashes share a bucket. The class in the auxiliary data keeps them apart.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def remember(item: T, **facts: object) -> T:
    """Add facts of its origin to a new frozen object.

    A class declares such a fact as a ``ClassVar``, with the default of objects of unknown origin, as ``Role.made_from``. The fact is no
    field. So it has no part in equality and in compiled programs, and changed copies, and copies that JAX makes, are of unknown origin.
    """
    for name, fact in facts.items():
        object.__setattr__(item, name, fact)
    return item


def replace(obj: T, **changes: Any) -> T:
    """Return a copy of a pytree dataclass with some fields changed.

    Raises:
      InvalidArgument: on an object of another kind, an unknown field, and a value that the class refuses.
    """
    if not dataclasses.is_dataclass(obj) or isinstance(obj, type):
        raise InvalidArgument(f"obj: must be an object of a pytree dataclass, got {short(obj)}")
    known = [field.name for field in dataclasses.fields(obj)]
    for name in changes:
        check_known(name, known, f"replace.{name}", f"{type(obj).__name__} has")
    return dataclasses.replace(obj, **changes)


def set_field(item: Any, path: str, value: object, where: str) -> Any:
    """Return a copy of a dataclass or table with one field set.

    A path has dots between names. Raises ``InvalidArgument`` on a field that is unknown, static or fixed, and on a value that is refused.
    """
    first, dot, rest = path.partition(".")
    if isinstance(item, Mapping):
        if dot and first not in item:
            raise InvalidArgument(f"{where}: there is no such field")
        return {**item, first: set_field(item[first], rest, value, where) if dot else value}
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        raise InvalidArgument(f"{where}: a {type(item).__name__} has no fields")
    kind = type(item).__name__
    fields = {f.name: f for f in dataclasses.fields(item)}
    free = ", ".join(name for name, f in fields.items() if not f.metadata.get("static") and not f.metadata.get("fixed"))
    check_known(first, fields, where, f"{kind} can sweep {free}; its fields are")
    if fields[first].metadata.get("static"):
        raise InvalidArgument(f"{where}: {first} of {kind} is static, part of the program; it can sweep {free}")
    if fields[first].metadata.get("fixed"):
        raise InvalidArgument(f"{where}: {first} of {kind} cannot be set: {fields[first].metadata['fixed']}; it can sweep {free}")
    inner = set_field(getattr(item, first), rest, value, where) if dot else value
    with checks.naming(where):
        return dataclasses.replace(item, **{first: inner})


def as_argument(given: Any) -> Any:
    """Return an array that a compiled program takes as it is.

    Unlike this, ``jnp.asarray`` compiles a program for each shape. An array of the host becomes a view, because a jitted ``vmap`` that
    returns its argument leaves JAX (0.10 to 0.12) with a float32 copy, used for the same object in later programs in float64, too.
    """
    return given if isinstance(given, jax.Array) else np.asarray(given).view()


def canonicalise(tree: T) -> T:
    """Turn a tree's numbers and arrays into arrays of the engine's types.

    Equal structures then share one trace: without it ``beta=1``, ``beta=1.0`` and ``beta=jnp.float32(1)`` would compile three times. A list
    or tuple of numbers is an array. PRNG keys and booleans pass. Numbers on the host stay there, as NumPy's arrays, because a program takes
    all of them over at once, much cheaper than one by one.
    """
    checks.check_not_forked()
    dtype = float_dtype()

    def leaf(x: Any) -> Any:
        if isinstance(x, list | tuple):
            checks.shape_of("tree", x)
            x = np.asarray(x)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended):
            return x
        if isinstance(x, int) and not isinstance(x, bool):
            # A bare integer in a float field, as in `beta=3`, is a number and not an index.
            return np.asarray(x, dtype)
        kind = x.dtype if isinstance(x, jax.Array | np.ndarray) else np.asarray(x).dtype
        if kind.kind not in "biufcV":
            raise InvalidArgument(f"tree: must hold numbers, got {short(x)}")
        asarray = jnp.asarray if isinstance(x, jax.Array) else np.asarray
        if jnp.issubdtype(kind, np.floating):
            return as_argument(asarray(x, dtype))
        if jnp.issubdtype(kind, np.integer):
            # Tables of indices are arrays, unlike single integers.
            return asarray(x, dtype if isinstance(x, np.integer) else np.int32)
        return jnp.asarray(x)

    # A number that is too large becomes infinite; the check of its field has refused it before.
    with np.errstate(over="ignore"):
        converted: T = jax.tree.map(leaf, tree, is_leaf=lambda x: checks.is_sequence_of_numbers(x) or checks.is_iterator(x))
    return converted


def signature(tree: Any) -> Any:
    """Return structure, shapes and types, equal for trees that share a program."""
    return jax.tree.structure(tree), tuple((np.shape(x), str(x.dtype)) for x in jax.tree.leaves(tree))
