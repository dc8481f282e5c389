"""Snapshot of a session: its setting, its state and its programs, which take long to make, kept from one process to the next.

It is a cache beside the compiled programs: without it, or where it is damaged or of anything else, all is made anew, to the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from jaxbandit.core.cache import uncached
from jaxbandit.core.files import CannotWrite, write_whole
from jaxbandit.session.session import Session

PACKAGE, SIZE = Path(__file__).parents[1], hashlib.sha256().digest_size


@contextlib.contextmanager
def remembered(session: Session, directory: Path | None) -> Iterator[None]:
    """Let a session take what it needs from what is kept in ``directory``, and keep there what the block makes.

    Nobody else may write to the directory, for programs are run from it. Nothing is kept without one, on accelerators, and where classes of
    the user's own take part, whose code may change unnoticed.
    """
    table, state = session.specification.table(), session._state
    if directory is None or jax.default_backend() != "cpu" or "fingerprint" in table["algorithm"] or _has_users_types(table):
        yield
        return
    store, course, first = _Store(directory), state.course, session.events[0].digest
    places = [f"{first}-{name}" for name in ("setting", "state")]
    before = [store.read(place) for place in places]

    def in_force() -> object:
        return state.model.table(), state.standard, state.room

    course.run = store.run
    if all(before) and all(kept[0] == in_force() for kept in before):
        course.recall(*(kept[1] for kept in before))
    yield
    for place, old, new in zip(places, before, course.kept(), strict=True):
        if new is not None and (old is None or old[1] is not new):
            store.write(place, (in_force(), new))


def _has_users_types(table: object) -> bool:
    """Return whether a table names a class or function that is not the library's, as ``module:Name``."""
    if isinstance(table, dict):
        return ":" in str(table.get("type", "")) or any(map(_has_users_types, table.values()))
    return isinstance(table, list | tuple) and any(map(_has_users_types, table))


class _Store:
    """Values by name in files of a directory, each valid for the library's code, JAX, its settings and the process's flags."""

    def __init__(self, directory: Path) -> None:
        self.directory, made_by = directory, hashlib.sha256()
        versions = (sys.version, platform.platform(), jax.__version__, jaxlib.__version__, os.environ.get("XLA_FLAGS"))
        made_by.update(repr((versions, sorted(jax.config.values.items()), jax.devices())).encode())
        for file in sorted(PACKAGE.rglob("*.py")):
            made_by.update(f"\0{file}\0".encode() + file.read_bytes())
        self._made_by = made_by.digest()
        self._programs = dict[Any, Any]()

    def read(self, name: str) -> Any:
        """Return the value of a name; ``None`` where there is none that is whole and valid."""
        try:
            text = memoryview((self.directory / f"session-{name}").read_bytes())
        except OSError:
            return None
        is_valid = text[:SIZE] == self._made_by and text[SIZE : 2 * SIZE] == hashlib.sha256(text[2 * SIZE :]).digest()
        if not is_valid:
            return None
        leaves, structure = pickle.loads(text[2 * SIZE :])
        return jax.tree.unflatten(structure, [leaf.key() if isinstance(leaf, _Key) else leaf for leaf in leaves])

    def write(self, name: str, value: object) -> None:
        """Keep a value by a name, in place of an earlier one, where it can be kept."""
        # What cannot be written or pickled is made anew next time: a cache must not end the command that fills it.
        with contextlib.suppress(CannotWrite, pickle.PicklingError, TypeError, AttributeError):
            leaves, structure = jax.tree.flatten(value)
            held = dict[Any, Any]()  # equal arrays once, as each output's model has those of the domain
            leaves = [held.setdefault(_content(leaf), leaf) for leaf in map(_on_host, leaves)]
            body = pickle.dumps((leaves, structure), pickle.HIGHEST_PROTOCOL)
            head = self._made_by + hashlib.sha256(body).digest()
            write_whole(self.directory / f"session-{name}", lambda temporary: temporary.write_bytes(head + body))

    def run(self, program: Any, *given: Any) -> Any:
        """Return what a program gives, compiled as it was kept for arguments of this structure, or else compiled now."""
        leaves, structure = jax.tree.flatten((given, {}))
        which = program.__name__, structure, tuple(map(jax.typeof, leaves))
        if which not in self._programs:
            name = f"program-{hashlib.sha256(repr(which).encode()).hexdigest()}"
            kept = self.read(name)
            if kept is not None and kept[1] == structure:
                self._programs[which] = deserialize_and_load(*kept)
            else:
                afresh = jax.jit(functools.wraps(program.__wrapped__)(functools.partial(program.__wrapped__)))
                with uncached():  # a program that comes from a cache of JAX's cannot be kept again
                    self._programs[which] = afresh.lower(*given).compile()
                kept = serialize(self._programs[which])
                with contextlib.suppress(jax.errors.JaxRuntimeError):  # unless what is kept works, nothing is
                    jax.block_until_ready(deserialize_and_load(*kept)(*given))
                    self.write(name, kept)
        return self._programs[which](*given)


class _Key(NamedTuple):
    """A JAX key as plain values."""

    data: Any  # NumPy's: one of JAX's would take a program to make
    generator: str

    def key(self) -> jax.Array:
        return jax.random.wrap_key_data(self.data, impl=self.generator)


def _content(leaf: Any) -> object:
    return (leaf.dtype.str, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else id(leaf)


def _on_host(leaf: Any) -> Any:
    """Return a leaf that can be pickled; raises ``TypeError`` on an array of Python's numbers, which a NumPy array would not be."""
    if not isinstance(leaf, jax.Array):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return _Key(np.asarray(jax.random.key_data(leaf)), str(jax.random.key_impl(leaf)))
    if leaf.weak_type:
        raise TypeError("weakly typed")
    return np.asarray(leaf)
