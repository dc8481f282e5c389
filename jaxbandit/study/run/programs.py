"""Compiled programs of a running study: compiled together where several are needed, dropped when no longer needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import jax

from jaxbandit.study.run.runtime import cores

Lower: TypeAlias = Callable[[], jax.stages.Lowered]

MAX_COMPILED_TOGETHER = 4  # each takes memory


class Programs:
    """Compiled programs by name.

    Attributes:
      waited: seconds spent on compilation so far.
      charged: the same, of the programs that have been asked for; those made together share their seconds.
    """

    def __init__(self, note: Callable[[str], None], forget: Callable[[], object] = lambda: None) -> None:
        self.note, self.forget = note, forget  # called when programs are dropped, for other caches to let them go, too
        self.waited = self.charged = 0.0
        self._known: dict[Hashable, jax.stages.Compiled] = {}
        self._owed: dict[Hashable, float] = {}

    def get(self, name: Hashable, later: Callable[[], Iterable[tuple[Hashable, Lower | None]]]) -> jax.stages.Compiled:
        """Return a program, compiled unless it is known.

        Args:
          name: name of the program.
          later: gives the names of all programs that will be asked for, this one first, with what lowers them, ``None`` for what cannot
            be lowered yet. The first that are missing are compiled together, and programs of other names are dropped: each holds memory
            maps, of which a process has few.
        """
        if name not in self._known:
            needed: dict[Hashable, Lower | None] = {}
            for other, lower in later():
                needed.setdefault(other, lower)
            self._drop([known for known in self._known if known not in needed])
            missing = [(other, lower) for other, lower in needed.items() if other not in self._known and lower is not None]
            self._compile(missing[: min(MAX_COMPILED_TOGETHER, cores())])
        self.charged += self._owed.pop(name, 0.0)
        return self._known[name]

    def _drop(self, names: list[Hashable]) -> None:
        for name in names:
            del self._known[name]
        if names:
            self.forget()

    def _compile(self, missing: list[tuple[Hashable, Lower]]) -> None:
        start = time.perf_counter()
        lowered = [lower() for _, lower in missing]  # here: what is traced depends on settings of this thread
        with ThreadPoolExecutor(len(lowered)) as pool:
            programs = list(pool.map(lambda one: one.compile(), lowered))
        seconds = time.perf_counter() - start
        self.waited += seconds
        for (name, _), program in zip(missing, programs, strict=True):
            self._known[name] = program
            self._owed[name] = seconds / len(missing)
        self.note(f"compiled {len(missing)} programs in {seconds:.1f} s" if len(missing) > 1 else f"compiled in {seconds:.1f} s")
